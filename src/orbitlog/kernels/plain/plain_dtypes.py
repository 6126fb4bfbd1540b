"""Element types of plain arrays: the subset of numpy's dtypes that scans use, with their names and spellings."""

from __future__ import annotations

import struct
import sys
from typing import Any, TypeAlias

_NATIVE = "<" if sys.byteorder == "little" else ">"
_CODES = {"i1": "b", "u1": "B", "i2": "h", "u2": "H", "i4": "i", "u4": "I", "i8": "q", "u8": "Q", "b1": "?"}


class Scalar:
    """A type of numbers: as numpy's types it converts a number, which wraps around, and it names a dtype."""

    __slots__ = ("_bits", "_is_signed", "name")

    def __init__(self, name: str, bits: int, *, is_signed: bool) -> None:
        self.name = name
        self._bits = bits
        self._is_signed = is_signed

    def __call__(self, value: int) -> int:
        value = int(value) & ((1 << self._bits) - 1)
        return value - (1 << self._bits) if self._is_signed and value >> (self._bits - 1) else value


class Boolean(Scalar):
    """The type of true and false."""

    def __call__(self, value: object) -> bool:
        return bool(value)


int8, int32, int64 = (Scalar(f"i{bits // 8}", bits, is_signed=True) for bits in (8, 32, 64))
uint8, uint32, uint64 = (Scalar(f"u{bits // 8}", bits, is_signed=False) for bits in (8, 32, 64))
uintp = uint64
bool_ = Boolean("b1", 1, is_signed=False)
void = Scalar("V", 8, is_signed=False)  # names arrays of rows in annotations

_SCALARS = {scalar.name: scalar for scalar in (int8, int32, int64, uint8, uint32, uint64, bool_)}


class Dtype:
    """The layout of one element: a number in some byte order, or a row of named fields without gaps."""

    __slots__ = ("fields", "is_native", "itemsize", "scalar", "struct")

    def __init__(self, scalar: Scalar | None, order: str, codes: str, fields: dict[str, tuple[Dtype, int]]) -> None:
        self.struct = struct.Struct(order + codes)
        self.itemsize = self.struct.size
        self.scalar = scalar
        self.fields = fields
        self.is_native = scalar is not None and (order == _NATIVE or self.itemsize == 1)

    @property
    def is_bool(self) -> bool:
        return self.scalar is bool_

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Dtype) and (self.struct.format, [*self.fields]) == (
            other.struct.format,
            [*other.fields],
        )

    def __hash__(self) -> int:
        return hash(self.struct.format)

    @property
    def _spelling(self) -> tuple[str, list[str]]:
        return self.struct.format, list(self.fields)

    @property
    def code(self) -> str:
        return self.struct.format[-1]


DtypeLike: TypeAlias = "Dtype | Scalar | str | list[tuple[str, str]]"


def dtype(kind: Any) -> Dtype:
    """Return the dtype of a scalar type, of a spelling such as ">i4", or of pairs of name and spelling."""
    if isinstance(kind, Dtype):
        return kind
    if isinstance(kind, Scalar):
        return Dtype(kind, _NATIVE, _CODES[kind.name], {})
    if isinstance(kind, str):
        order, name = (kind[0], kind[1:]) if kind[0] in "<>" else (_NATIVE, kind)
        return Dtype(_SCALARS[name], order, _CODES[name], {})
    fields: dict[str, tuple[Dtype, int]] = {}
    codes, position, orders = "", 0, set()
    for name, spelling in kind:
        if spelling.startswith("V"):
            codes += f"{spelling[1:]}x"  # bytes that no one reads
            position += int(spelling[1:])
            continue
        field = dtype(spelling)
        fields[name] = field, position
        codes += field.code
        orders.add(spelling[0])
        position += field.itemsize
    if len(orders) != 1:
        raise ValueError("the fields of a row have one byte order")
    return Dtype(None, orders.pop(), codes, fields)
