r"""Format strings of `-f`: `{topic} {queueId}\t{body}` over one row at a time.

`{name}` is a field by its JSON name or as Python would spell it (`{queue_id}`), `{name:<12}` is padded, and
`{properties.colour}` looks into an object. `\n`, `\t`, `\r`, `\0`, `\\` and `\xHH` are what they are in kcat; `{{` and
`}}` are braces. Nothing of a template is ever run: this is no `str.format`, which would reach into objects.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from orbitlog.cli.main import WrongUse

_PIECE = re.compile(
    r"\\(?:x(?P<hex>[0-9a-fA-F]{2})|(?P<escape>.)|(?P<nothing>$))"
    r"|(?P<brace>\{\{|\}\})"
    r"|\{(?P<name>[A-Za-z][\w-]*)(?:\.(?P<inner>[^{}:]+))?(?::(?P<align>[<>^]?)(?P<width>[0-9]{1,3}))?\}"
    r"|(?P<stray>[{}])",
    re.DOTALL,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\", "a": "\a", "e": "\x1b"}
_ENDS = ("\n", "\0")


class RowFormat:
    """A template that was understood; `text` fills it with one row."""

    def __init__(self, template: str, fields: Sequence[str]) -> None:
        self._fields = fields
        self._by_name = {_plain(field): field for field in fields}
        self._parts: list[str | tuple[str, str | None, str]] = []
        position = 0
        for found in _PIECE.finditer(template):
            self._parts.append(template[position : found.start()])
            self._parts.append(self._part(found, template))
            position = found.end()
        self._parts.append(template[position:])
        last = next((part for part in reversed(self._parts) if part != ""), "")
        # As a line of its own, unless the template says how rows end.
        self._end = "" if isinstance(last, str) and last.endswith(_ENDS) else "\n"

    def _part(self, found: re.Match[str], template: str) -> str | tuple[str, str | None, str]:
        if found["hex"]:
            return chr(int(found["hex"], 16))
        if found["brace"]:
            return found["brace"][0]
        if found["name"]:
            field = self._by_name.get(_plain(found["name"]))
            if field is None:
                raise WrongUse(f"-f: there is no field {found['name']!r}; there are {', '.join(self._fields)}")
            return field, found["inner"], f"{found['align'] or '<'}{found['width']}" if found["width"] else ""
        if found["escape"] in _ESCAPES:
            return _ESCAPES[found["escape"]]
        problem = f"{found[0]!r} is no escape" if found[0].startswith("\\") else "a brace without its partner"
        raise WrongUse(f"-f: {problem} in {template!r}; fields look like {{{self._fields[0]}}}, braces like {{{{")

    def text(self, row: Mapping[str, Any]) -> str:
        """Fill the template."""
        return "".join([part if isinstance(part, str) else _filled(row, *part) for part in self._parts]) + self._end


def _plain(name: str) -> str:
    """`queueId`, `queue_id` and `queueid` are one name."""
    return name.replace("_", "").replace("-", "").lower()


def _filled(row: Mapping[str, Any], field: str, inner: str | None, padding: str) -> str:
    value = row.get(field)
    if inner is not None:
        value = value.get(inner) if isinstance(value, dict) else None
    return format(cell(value), padding)


def cell(value: object) -> str:
    """A value as people read it: nothing for None, yes and no, lists with commas."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return " ".join(f"{key}={child}" for key, child in value.items())
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
