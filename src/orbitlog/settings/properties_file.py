"""Java properties files as `java.util.Properties` reads them, and the sources of settings that win over them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from orbitlog.settings.setting import AdvisedText, SettingError, split_assignment

COMMAND_LINE = "the command line"

_KEY_END = re.compile(r"(?<!\\)(?:\\\\)*(?P<separator>[=:\s])")
_MALFORMED = re.compile(r"(?<!\\)(?:\\\\)*\\u(?![0-9a-fA-F]{4})")
_PATH_KEY = re.compile(r"storePath[A-Za-z]+|readOnlyCommitLogStorePaths")
_SHOWN = 60
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.|$)", re.DOTALL)
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_properties(path: Path) -> dict[str, str]:
    """Read a properties file; raise a `SettingError` for a malformed `\\u` escape, as Java does not start with one."""
    # Java reads properties byte by byte as Latin-1, so every byte is a character.
    text = path.read_text(encoding="latin-1")
    for line in _logical_lines(text):
        if _MALFORMED.search(line):
            key = re.split(r"[=:\s]", line, maxsplit=1)[0][:_SHOWN]
            remedy = "write a backslash as two, or \\u with four hexadecimal digits"
            raise SettingError(AdvisedText(f"{key} from {path}: malformed \\u escape", remedy), key=key)
    return parse_properties(text)


def parse_properties(text: str) -> dict[str, str]:
    """Read Java properties: `key=value`, `#` and `!` comments, `\\` continuation and escapes."""
    pairs: dict[str, str] = {}
    for line in _logical_lines(text):
        match = _KEY_END.search(line)
        key, rest = (line[: match.start("separator")], line[match.start("separator") :]) if match else (line, "")
        value = re.sub(r"\A\s*[=:]?\s*", "", rest)
        key, value = _unescape(key), _unescape(value)
        # Java keeps blanks at the end of a value. They are never meant, and make numbers invalid; but a path names
        # another directory with them, so it stays as it is and is refused by its parser.
        pairs[key] = value if _PATH_KEY.fullmatch(key) else value.strip()
    return pairs


def replace_properties(text: str, values: Mapping[str, str]) -> str:
    """Return a properties file with some values replaced, and those that it does not have at its end.

    Comments and all other lines stay as they are. Values must be plain: without line ends and backslashes.
    """
    missing = dict(values)
    lines: list[str] = []
    entry: list[str] = []  # the lines of one entry: all but the last end with a backslash
    for line in text.splitlines():
        entry.append(line)
        is_comment = len(entry) == 1 and line.lstrip(" \t\f")[:1] in ("", "#", "!")
        if not is_comment and (len(line) - len(line.rstrip("\\"))) % 2:
            continue
        key = next(iter(parse_properties("\n".join(entry))), None)
        if key is not None and key in values:
            missing.pop(key, None)
            lines.append(f"{key}={values[key]}")
        else:
            lines += entry
        entry = []
    lines += [*entry, *(f"{key}={value}" for key, value in missing.items())]
    return "\n".join((*lines, ""))


def _logical_lines(text: str) -> list[str]:
    """Join continued lines, without comments and empty lines."""
    lines: list[str] = []
    continued = False
    for natural in re.split(r"\r\n|\r|\n", text):
        line = natural.lstrip(" \t\f")
        if not continued and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        continues = backslashes % 2 == 1
        content = line[:-1] if continues else line
        if continued:
            lines[-1] += content
        else:
            lines.append(content)
        continued = continues
    return lines


def _unescape(text: str) -> str:
    def replace(match: re.Match[str]) -> str:
        code = match.group(1)
        return chr(int(code[1:], 16)) if len(code) == 5 else _ESCAPED.get(code, code)

    return _ESCAPE.sub(replace, text)


def setting_sources(
    config_path: Path | None, environment: Mapping[str, str], assignments: Iterable[str]
) -> list[tuple[str, Mapping[str, str]]]:
    """Return name and texts of each source: the file, the `environment` by setting, and `key=value` texts."""
    sources: list[tuple[str, Mapping[str, str]]] = []
    if config_path is not None:
        sources.append((str(config_path), read_properties(config_path)))
    sources.append(("the environment", environment))
    sources.append((COMMAND_LINE, dict(map(split_assignment, assignments))))
    return sources


def settings_in(environment: Mapping[str, str], prefix: str) -> dict[str, str]:
    """Return the texts of variables with a prefix, by the setting that the rest of their name is."""
    return {name.removeprefix(prefix): text for name, text in environment.items() if name.startswith(prefix)}
