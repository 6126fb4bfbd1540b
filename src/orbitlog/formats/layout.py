"""A fixed run of big-endian fields, declared once.

Everything RocketMQ keeps on disk is big-endian and unaligned. A `Layout` names its fields in order; the
`struct.Struct`, the byte positions and the tables in docs/formats.md all come from that one declaration.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

_CODES = {"i8": "b", "u8": "B", "i16": "h", "u16": "H", "i32": "i", "u32": "I", "i64": "q"}
_REGISTRY: dict[str, Layout] = {}


@dataclass(frozen=True, slots=True)
class Field:
    """One field: its name, its type (`i32`, `8s` for raw bytes, …) and what it means."""

    name: str
    type: str
    meaning: str

    @property
    def code(self) -> str:
        return _CODES.get(self.type, self.type)

    @property
    def size_bytes(self) -> int:
        return struct.calcsize(">" + self.code)


class Layout:
    """An ordered run of fields with one precompiled `struct`."""

    __slots__ = ("_positions", "fields", "size_bytes", "struct", "title")

    def __init__(self, title: str, *fields: Field) -> None:
        assert title not in _REGISTRY, f"layout {title!r} is declared twice"
        self.title = title
        self.fields = fields
        self.struct = struct.Struct(">" + "".join(field.code for field in fields))
        self.size_bytes = self.struct.size
        self._positions: dict[str, int] = {}
        position = 0
        for field in fields:
            self._positions[field.name] = position
            position += field.size_bytes
        assert position == self.size_bytes
        _REGISTRY[title] = self

    def position(self, field_name: str) -> int:
        """Return how many bytes precede the field."""
        return self._positions[field_name]


def declared_layouts() -> dict[str, Layout]:
    """Return every layout declared so far by title; docs/formats.md is drawn from it."""
    return dict(_REGISTRY)
