"""YAML subset: reads one document of mappings, lists and scalars, and keeps how each scalar was written.

It has what account files need: block and flow collections, plain and quoted scalars on one or more lines, comments.
Anchors, aliases, tags, directives, block scalars (`|`, `>`) and keys that are not plain or quoted text are refused, as
are tabs outside quotes; no object is constructed. Depth, values and size are limited. A plain scalar that YAML 1.1 does
not read as text keeps its type, so that a caller can refuse a secret such as 01234567, which Java reads as an octal
number. Positions are those of bytes: a text of megabytes is not decoded before it is refused.
"""

from __future__ import annotations

import codecs
import re
from typing import NoReturn

from orbitlog.access.yaml_scalars import Scalar, plain_scalar, unquoted
from orbitlog.errors import OrbitlogError

TEXT_BYTES_MAX = 4 * 1024 * 1024
_DEPTH_MAX = 8
_NODES_MAX = 1_000_000
_KEY_BYTES_MAX = 1024
_CHUNK_BYTES = 64 * 1024
# Control characters, line breaks that only YAML 1.1 has, and byte order marks, as UTF-8.
_FORBIDDEN = re.compile(
    rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n)|\xc2[\x80-\x9f]|\xe2\x80[\xa8\xa9]|\xef\xbf[\xbe\xbf]|\xef\xbb\xbf"
)
_SPACES = re.compile(rb" *")
_MARKER = re.compile(rb"(?:---|\.\.\.)(?=[ \t\r\n]|\Z)")
_DASH = re.compile(rb"-(?=[ \t\r\n]|\Z)")
_COLON = re.compile(rb" *:(?=[ \t\r\n]|\Z)")
_QUOTE_OR_ESCAPE = re.compile(rb'["\\]')
# Beginning and end of a plain scalar, outside and inside of brackets.
_PLAIN = re.compile(rb"[^ \t\r\n\-?:,\[\]{}#&*!|>'\"%@`]|[-?:](?=[^ \t\r\n])")
_PLAIN_END = re.compile(rb":(?=[ \t\r\n]|\Z)| #|[\t\r\n]")
_FLOW_PLAIN = re.compile(rb"[^ \t\r\n\-?:,\[\]{}#&*!|>'\"%@`]|-(?=[^ \t\r\n,?\[\]{}])")
_AMBIGUOUS = re.compile(rb"\?|:[,\[\]{}]")  # parsers disagree on them
_FLOW_PLAIN_END = re.compile(rb":(?=[ \t\r\n,\[\]{}]|\Z)| #|[\t\r\n,?\[\]{}]")
_UNSUPPORTED = {
    b"*": "aliases are not supported; put a value that starts with * in quotes",
    b"&": "anchors and tags are not supported",
    b"!": "anchors and tags are not supported",
    b"|": "texts that start with | or > are not supported; put the value in quotes",
    b">": "texts that start with | or > are not supported; put the value in quotes",
}


class BadYaml(OrbitlogError):
    """A text that is not valid YAML, or uses more of YAML than account files need."""


YamlValue = Scalar | None | list["YamlValue"] | dict[str, "YamlValue"]


def read_yaml(data: bytes) -> YamlValue:
    """Return the value of one document, None if it is empty; raise `BadYaml` with the line."""
    if len(data) > TEXT_BYTES_MAX:
        raise BadYaml(f"{len(data)} bytes exceed the maximum of {TEXT_BYTES_MAX}")
    data = data.removeprefix(codecs.BOM_UTF8)
    forbidden = _FORBIDDEN.search(data)
    if forbidden:
        line = data.count(b"\n", 0, forbidden.start()) + 1
        raise BadYaml(f"not valid YAML: line {line}: a control character or an unusual line break")
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for start in range(0, len(data), _CHUNK_BYTES):
            decoder.decode(data[start : start + _CHUNK_BYTES])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        raise BadYaml("not valid YAML: the text is not UTF-8") from None
    return _Reader(data).document()


class _Reader:
    """Recursive descent: each method begins at the first character of what it reads."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0
        self._line = 1
        self._line_start = 0
        self._count = 0

    def document(self) -> YamlValue:
        self._skip_gap()
        is_started = self._data.startswith(b"---", self._position) and self._is_marker()
        is_same_line = False
        if is_started:
            self._position += 3
            is_same_line = not self._skip_gap()
        value: YamlValue = None
        if not (self._is_end() or (is_started and self._is_marker())):
            value = self._flow_or_scalar(-1, 0) if is_same_line else self._block(-1, 0)
        if self._data.startswith(b"...", self._position) and self._is_marker():
            self._position += 3
            self._skip_gap()
        if self._is_marker():
            raise BadYaml("more than one document")
        if not self._is_end():
            self._fail("wrong indentation, or text after the end of the document")
        return value

    # Collections in block style

    def _block(self, parent: int, depth: int) -> YamlValue:
        """Read a node that begins a line, or follows a dash; `parent` is the column of the collection around it."""
        column = self._column()
        if _DASH.match(self._data, self._position):
            return self._sequence(column, depth)
        key = self._key(depth + 1)
        return self._flow_or_scalar(parent, depth) if key is None else self._mapping(column, depth, key)

    def _sequence(self, column: int, depth: int) -> list[YamlValue]:
        self._enter(depth)
        items = []
        while True:
            self._position += 1
            items.append(self._value(column, depth + 1, after_dash=True))
            if self._ends_block(column) or not _DASH.match(self._data, self._position):
                return items

    def _mapping(self, column: int, depth: int, key: Scalar | None) -> dict[str, YamlValue]:
        self._enter(depth)
        table: dict[str, YamlValue] = {}
        while True:
            if key is None:
                self._fail("expected a key and a colon")
            if key.text in table:
                raise BadYaml(f"line {key.line}: {key.text[:40]} is given twice")
            table[key.text] = self._value(column, depth + 1, after_dash=False)
            if self._ends_block(column):
                return table
            key = self._key(depth + 1)

    def _value(self, column: int, depth: int, *, after_dash: bool) -> YamlValue:
        """Read the value after a dash or a colon of a collection at `column`; nothing is None."""
        if not self._skip_gap():
            if self._is_end():
                return None
            return self._block(column, depth) if after_dash else self._flow_or_scalar(column, depth)
        if self._is_end() or self._is_marker():
            return None
        if self._column() > column:
            return self._block(column, depth)
        # The dashes of a list may stand below the first letter of its key.
        if self._column() == column and not after_dash and _DASH.match(self._data, self._position):
            return self._sequence(column, depth)
        return None

    def _ends_block(self, column: int) -> bool:
        """Return whether a collection at `column` ends before this line; refuse a line that is indented more."""
        if self._is_end() or self._is_marker() or self._column() < column:
            return True
        if self._column() > column:
            self._fail("wrong indentation")
        return False

    def _key(self, depth: int) -> Scalar | None:
        """Read a key and its colon; return None, and stay, if none begins here."""
        start, line = self._position, self._line
        quote = self._peek()
        if quote in (b'"', b"'"):
            end = self._quoted_end()
            colon = _COLON.match(self._data, end)
            if colon is None or self._data.find(b"\n", start, end) >= 0:
                return None
            key: Scalar | None = Scalar(self._unquoted(end), True, False, line)
        elif _PLAIN.match(self._data, start) and not self._is_marker():
            colon = _PLAIN_END.search(self._data, start)
            if colon is None or colon[0] != b":":
                return None
            key = plain_scalar(self._data[start : colon.start()].rstrip(b" ").decode(), line)
        else:
            return None
        if colon.end() - start > _KEY_BYTES_MAX:
            self._fail(f"a key of more than {_KEY_BYTES_MAX} bytes")
        self._enter(depth)
        self._position = colon.end()
        return self._as_key(key)

    def _as_key(self, key: YamlValue) -> Scalar:
        if not isinstance(key, Scalar):
            raise BadYaml(f"line {self._line}: a key is not text")
        return key

    # Flow collections and scalars

    def _flow_or_scalar(self, parent: int, depth: int) -> YamlValue:
        """Read a value to the end of its last line, which contains nothing else."""
        value = self._flow(depth) if self._peek() in (b"[", b"{") else self._scalar(parent, depth)
        if not self._skip_gap() and not self._is_end():
            self._fail("unexpected text after a value")
        return value

    def _flow(self, depth: int) -> YamlValue:
        self._enter(depth)
        is_list = self._peek() == b"["
        close = b"]" if is_list else b"}"
        items: list[YamlValue] = []
        table: dict[str, YamlValue] = {}
        self._position += 1
        while self._flow_next() != close:
            if is_list:
                items.append(self._flow_node(depth + 1))
            else:
                self._flow_pair(table, depth + 1)
            separator = self._flow_next()
            if separator == b",":
                self._position += 1
            elif separator != close:
                self._fail(f"expected a comma or {close.decode()}")
        self._position += 1
        return items if is_list else table

    def _flow_pair(self, table: dict[str, YamlValue], depth: int) -> None:
        key = self._as_key(self._flow_node(depth))
        if key.text in table:
            raise BadYaml(f"line {key.line}: {key.text[:40]} is given twice")
        table[key.text] = None
        if self._flow_next() != b":":
            return
        if self._line != key.line:
            self._fail("a key and its colon are on different lines")
        self._position += 1
        if self._flow_next() not in (b",", b"}"):
            table[key.text] = self._flow_node(depth)

    def _flow_node(self, depth: int) -> YamlValue:
        return self._flow(depth) if self._peek() in (b"[", b"{") else self._scalar(None, depth)

    def _flow_next(self) -> bytes:
        """Return the next character inside of brackets."""
        self._skip_gap()
        if self._is_marker() or self._is_end():
            self._fail("a bracket is not closed")
        return self._peek()

    def _scalar(self, parent: int | None, depth: int) -> Scalar | None:
        """Read a quoted or plain scalar; `parent` is None inside of brackets, where indentation is free."""
        self._enter(depth)
        line, quote = self._line, self._peek()
        if quote in (b'"', b"'"):
            end = self._quoted_end()
            return Scalar(self._unquoted(end), True, False, line)
        if quote in _UNSUPPORTED:
            raise BadYaml(f"line {line}: {_UNSUPPORTED[quote]}")
        if self._is_marker() or not (_FLOW_PLAIN if parent is None else _PLAIN).match(self._data, self._position):
            self._fail("a value does not start with this character; put it in quotes")
        return plain_scalar(self._plain(parent), line)

    def _plain(self, parent: int | None) -> str:
        """Read plain text; a line break becomes a space, a blank line a line break."""
        end = _FLOW_PLAIN_END if parent is None else _PLAIN_END
        parts = []
        while True:
            stop = end.search(self._data, self._position)
            stop_at = stop.start() if stop else len(self._data)
            parts.append(self._data[self._position : stop_at].rstrip(b" ").decode())
            self._position = stop_at
            if parent is None and _AMBIGUOUS.match(self._data, stop_at):
                self._fail("a question mark or a colon inside of brackets; put the value in quotes")
            before = self._position, self._line, self._line_start
            line_breaks = 0
            while self._skip_line_break():
                line_breaks += 1
            continues = line_breaks and (parent is None or self._column() > parent) and not self._is_end()
            if not continues or self._is_marker() or self._peek() == b"#" or end.match(self._data, self._position):
                self._position, self._line, self._line_start = before
                return "".join(parts)
            parts.append("\n" * (line_breaks - 1) or " ")

    def _quoted_end(self) -> int:
        """Return the position after the closing quote."""
        data, position = self._data, self._position + 1
        if data[position - 1 : position] == b'"':
            while found := _QUOTE_OR_ESCAPE.search(data, position):
                if found[0] == b'"':
                    return found.end()
                position = found.end() + 1
        else:
            while (position := data.find(b"'", position) + 1) > 0:
                if data[position : position + 1] != b"'":
                    return position
                position += 1
        self._fail("a quoted text is not closed")

    def _unquoted(self, end: int) -> str:
        """Return the text of a quoted scalar, and move after it."""
        raw = self._data[self._position + 1 : end - 1]
        line = self._line
        while (line_break := self._data.find(b"\n", self._position, end)) >= 0:
            self._start_line(line_break + 1)
            if self._is_marker():
                self._fail("a document ends inside of a quoted text")
        self._position = end
        try:
            return unquoted(raw.decode(), self._data[end - 1 : end].decode())
        except ValueError as error:
            raise BadYaml(f"not valid YAML: line {line}: {error}") from None

    # Positions

    def _skip_gap(self) -> bool:
        """Move past spaces, comments and line breaks; return whether there was a line break."""
        is_next_line = False
        while True:
            is_comment = self._skip_spaces() == b"#"
            if is_comment:
                if self._column() and self._data[self._position - 1 : self._position] != b" ":
                    self._fail("a comment needs a space before it")
                line_break = self._data.find(b"\n", self._position)
                self._position = len(self._data) if line_break < 0 else line_break
            if self._skip_line_break():
                is_next_line = True
            elif self._peek() == b"\t":
                self._fail("a tab outside of quotes")
            else:
                return is_next_line

    def _skip_spaces(self) -> bytes:
        self._position = _SPACES.match(self._data, self._position).end()  # type: ignore[union-attr]
        return self._peek()

    def _skip_line_break(self) -> bool:
        """Move to the first letter of the next line, if this one ends here."""
        width = {b"\n": 1, b"\r": 2}.get(self._peek(), 0)
        if width:
            self._start_line(self._position + width)
            self._skip_spaces()
        return width > 0

    def _start_line(self, position: int) -> None:
        self._position = self._line_start = position
        self._line += 1

    def _peek(self) -> bytes:
        return self._data[self._position : self._position + 1]

    def _is_end(self) -> bool:
        return self._position == len(self._data)

    def _is_marker(self) -> bool:
        return self._column() == 0 and _MARKER.match(self._data, self._position) is not None

    def _column(self) -> int:
        return self._position - self._line_start

    def _enter(self, depth: int) -> None:
        self._count += 1
        if depth >= _DEPTH_MAX or self._count > _NODES_MAX:
            raise BadYaml(f"line {self._line}: nested deeper than {_DEPTH_MAX} levels, or too many values")

    def _fail(self, problem: str) -> NoReturn:
        raise BadYaml(f"not valid YAML: line {self._line}: {problem}")
