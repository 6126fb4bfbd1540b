r"""Format strings of `-f`: `{topic} {queueId}\t{body}` over one row at a time.

`{name}` is a field by its JSON name or in snake case (`{queue_id}`), `{name:<12}` is padded, and `{properties.colour}`
is a member of an object. `\n`, `\t`, `\r`, `\0`, `\\` and `\xHH` are the escapes of kcat; `{{` and `}}` are braces.
Templates are never evaluated: `str.format` would allow access to attributes of objects.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from orbitlog.cli.main import WrongUse
from orbitlog.cli.output.terminal import value_text

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
    """A parsed template; `text` fills it with one row."""

    def __init__(self, template: str, fields: Sequence[str]) -> None:
        self._fields = fields
        self._by_name = {_plain(field): field for field in fields}
        self._parts: list[str | tuple[str, str | None, str]] = []
        position = 0
        for match in _PIECE.finditer(template):
            self._parts.append(template[position : match.start()])
            self._parts.append(self._part(match, template))
            position = match.end()
        self._parts.append(template[position:])
        last = next((part for part in reversed(self._parts) if part != ""), "")
        # Rows end with a newline unless the template ends with one or with NUL.
        self._end = "" if isinstance(last, str) and last.endswith(_ENDS) else "\n"

    def _part(self, match: re.Match[str], template: str) -> str | tuple[str, str | None, str]:
        if match["hex"]:
            return chr(int(match["hex"], 16))
        if match["brace"]:
            return match["brace"][0]
        if match["name"]:
            field = self._by_name.get(_plain(match["name"]))
            if field is None:
                raise WrongUse(f"-f: unknown field {match['name']!r}; available: {', '.join(self._fields)}")
            return field, match["inner"], f"{match['align'] or '<'}{match['width']}" if match["width"] else ""
        if match["escape"] in _ESCAPES:
            return _ESCAPES[match["escape"]]
        problem = f"{match[0]!r} is not a valid escape" if match[0].startswith("\\") else "unbalanced brace"
        raise WrongUse(f"-f: {problem} in {template!r}; fields look like {{{self._fields[0]}}}, braces like {{{{")

    def text(self, row: Mapping[str, Any]) -> str:
        """Return the row as text."""
        return "".join([part if isinstance(part, str) else _filled(row, *part) for part in self._parts]) + self._end


def _plain(name: str) -> str:
    """Return the normal form of a name: `queueId`, `queue_id` and `queueid` are the same."""
    return name.replace("_", "").replace("-", "").lower()


def _filled(row: Mapping[str, Any], field: str, inner: str | None, padding: str) -> str:
    value = row.get(field)
    if inner is not None:
        value = value.get(inner) if isinstance(value, dict) else None
    return format(value_text(cell(value)), padding)


def cell(value: object) -> str:
    """Return a value as text: empty for None, yes and no for booleans, lists with commas."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return " ".join(f"{key}={child}" for key, child in value.items())
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
