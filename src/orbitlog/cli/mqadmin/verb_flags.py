"""Flags of a verb, parsed as Apache's tool parses them.

Accepts what commons-cli's `DefaultParser` does: `-t Orders`, `-tOrders`, `-t=Orders`, `--topic Orders`,
`--topic=Orders`, `-topic Orders`; words that belong to no flag are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

_NUMBER = re.compile(r"-[0-9.]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag; `short` may be empty. Of the flags with the same `one_of`, exactly one must be given."""

    short: str
    long: str
    help: str
    takes_value: bool = True
    required: bool = False
    one_of: str = ""

    @property
    def name(self) -> str:
        return self.short or self.long


NAME_SERVER = Flag("n", "namesrvAddr", "name servers: host:port, separated by semicolons")
HELP = Flag("h", "help", "print this help", takes_value=False)


class BadFlags(Exception):
    """Invalid flags: the tool prints its help and exits with 1."""


class FlagValues(Mapping[str, str]):
    """Values of the given flags by their short names."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    def __getitem__(self, name: str) -> str:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def number(self, name: str, default: int) -> int:
        """Parse a whole number like `Long.parseLong`."""
        text = self._values.get(name)
        if text is None:
            return default
        if not re.fullmatch(r"[+-]?[0-9]{1,19}", text, re.ASCII):
            raise ValueError(f'For input string: "{text[:80]}"')
        return int(text)

    def truth(self, name: str, default: bool = False) -> bool:
        """Parse a boolean; anything but "true" is false."""
        text = self._values.get(name)
        return default if text is None else text.lower() == "true"

    def attributes(self, name: str) -> dict[str, str]:
        """Return changes of attributes in the notation of 5.x, `+key=value,-key`."""
        text = self.get(name)
        if text is None:
            return {}
        from orbitlog.client.admin.broker_admin import parse_attributes

        return parse_attributes(text)


def parse_flags(words: Sequence[str], flags: Sequence[Flag]) -> FlagValues:
    """Parse words; raise `BadFlags` with the message of Apache's tool."""
    by_short = {flag.short: flag for flag in flags if flag.short}
    by_long = {flag.long: flag for flag in flags}
    values: dict[str, str] = {}
    remaining = list(words)
    while remaining:
        word = remaining.pop(0)
        if not word.startswith("-") or word == "-" or _NUMBER.fullmatch(word):
            continue
        if word == "--":
            break
        flag, value = _flag_of(word, by_short, by_long)
        if flag.takes_value and value is None:
            if not remaining or _is_flag(remaining[0], by_short, by_long):
                raise BadFlags(f"Missing argument for option: {flag.name}")
            value = remaining.pop(0)
        values.setdefault(flag.name, (value or "").strip())
    if HELP.short not in values:
        _check_required(flags, values)
    return FlagValues(values)


def _flag_of(word: str, by_short: Mapping[str, Flag], by_long: Mapping[str, Flag]) -> tuple[Flag, str | None]:
    bare, equals, value = word.lstrip("-").partition("=")
    flag = by_long.get(bare) or (by_short.get(bare) if not word.startswith("--") else None)
    if flag is None and len(bare) > 1:
        candidates = [candidate for name, candidate in by_long.items() if name.startswith(bare)]
        flag = candidates[0] if len(candidates) == 1 else None
    if flag is not None:
        return flag, value if equals else None
    # A value without a separator: -tOrders.
    attached = by_short.get(word[1:2])
    if attached is None or word.startswith("--") or not attached.takes_value:
        raise BadFlags(f"Unrecognized option: {word}")
    return attached, word[2:]


def _is_flag(word: str, by_short: Mapping[str, Flag], by_long: Mapping[str, Flag]) -> bool:
    if not word.startswith("-") or len(word) == 1 or _NUMBER.fullmatch(word):
        return False
    try:
        _flag_of(word, by_short, by_long)
    except BadFlags:
        return False
    return True


def _check_required(flags: Sequence[Flag], values: Mapping[str, str]) -> None:
    missing = [flag.name for flag in flags if flag.required and flag.name not in values]
    for group in dict.fromkeys(flag.one_of for flag in flags if flag.one_of):
        members = [flag for flag in flags if flag.one_of == group]
        given = [flag.name for flag in members if flag.name in values]
        if not given:
            missing.append("[" + ", ".join(f"-{flag.short} {flag.help}" for flag in members) + "]")
        elif len(given) > 1:
            raise BadFlags(
                f"The option '{given[1]}' was specified but an option from this group has already been selected:"
                f" '{given[0]}'"
            )
    if missing:
        raise BadFlags(f"Missing required option{'s' if len(missing) > 1 else ''}: {', '.join(missing)}")


def usage(verb: str, help_text: str, flags: Sequence[Flag]) -> str:
    """Return the help of a verb."""
    flags = sorted(flags, key=lambda flag: flag.name.lower())
    words = []
    for flag in flags:
        dashed = f"-{flag.short}" if flag.short else f"--{flag.long}"
        text = f"{dashed} <arg>" if flag.takes_value else dashed
        words.append(text if flag.required or flag.one_of else f"[{text}]")
    rows = []
    for flag in flags:
        names = f"-{flag.short},--{flag.long}" if flag.short else f"   --{flag.long}"
        rows.append((f" {names}{' <arg>' if flag.takes_value else ''}", flag.help))
    width = max(len(left) for left, _ in rows)
    lines = [f"usage: orbitlog mqadmin {verb} {' '.join(words)}", help_text]
    return "\n".join([*lines, *(f"{left:{width}}   {right}" for left, right in rows)]) + "\n"
