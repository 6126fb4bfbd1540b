"""Byte layouts: a fixed run of big-endian fields, declared once.

RocketMQ stores everything big-endian and unaligned. A `Layout` names its fields in order; structs of all or some of
them, byte positions, numpy dtypes and the tables in docs/formats.md are derived from that one declaration.
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
        """Return the position of the field's first byte."""
        return self._positions[field_name]

    def partial(self, *items: str | tuple[str, ...], start: str = "") -> struct.Struct:
        """Return a struct of some fields, in the layout's order; fields left out become padding.

        A tuple of adjacent fields becomes one raw field of their bytes. Positions count from the field `start`, by
        default the first one; the struct ends with the last field named.
        """
        fields = {field.name: field for field in self.fields}
        codes, end = [">"], self._positions[start] if start else 0
        for item in items:
            names = (item,) if isinstance(item, str) else item
            first = self._positions[names[0]]
            assert first >= end, f"{names[0]} comes earlier in {self.title!r}"
            codes.append(f"{first - end}x")
            end = first
            for name in names:
                assert self._positions[name] == end, f"{names} are not adjacent in {self.title!r}"
                end += fields[name].size_bytes
            codes.append(fields[item].code if isinstance(item, str) else f"{end - first}s")
        return struct.Struct("".join(codes))

    @property
    def numpy_fields(self) -> list[tuple[str, str]]:
        """Names and numpy types of the fields: the argument of `numpy.dtype` for an array of such runs."""
        assert all(field.type in _CODES for field in self.fields), f"{self.title!r} has raw fields"
        return [(field.name, f">{field.type[0]}{field.size_bytes}") for field in self.fields]


def declared_layouts() -> dict[str, Layout]:
    """Return every layout declared so far by title; docs/formats.md is generated from it."""
    return dict(_REGISTRY)
