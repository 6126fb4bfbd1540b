"""Plain array: a one-dimensional view of typed elements in a buffer, as numpy's `ndarray` without numpy.

It has the operations that scans use, with numpy's results: slices and fields are views, lists and arrays as an index
copy, arithmetic wraps around at the size of its type. Everything else is an error.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import compress, repeat
from types import SimpleNamespace
from typing import Any, cast

from orbitlog.kernels.plain.plain_dtypes import Dtype, Scalar, bool_, dtype, int64, uint8

Operation = Callable[[Any, Any], Any]


class Row(tuple[int, ...]):
    """One element of an array of rows."""

    __slots__ = ()

    def item(self) -> tuple[int, ...]:
        return tuple(self)


class Array:
    """Elements of `dtype`, `step` bytes apart in a buffer."""

    __slots__ = ("_items", "_length", "_raw", "_start", "_step", "dtype")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, raw: memoryview, kind: Dtype, start: int, length: int, step: int | None = None) -> None:
        self.dtype = kind
        self._raw = raw
        self._start = start
        self._length = length
        self._step = kind.itemsize if step is None else step
        # Numbers in the machine's order, one after the other: a memoryview gets and sets them fastest.
        self._items: memoryview | None = None
        if kind.is_native and self._step == kind.itemsize:
            self._items = raw[start : start + length * kind.itemsize].cast(cast(Any, kind.code))

    # Properties

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self._length * self.dtype.itemsize

    @property
    def shape(self) -> tuple[int]:
        return (self._length,)

    @property
    def flags(self) -> SimpleNamespace:
        return SimpleNamespace(c_contiguous=self._is_contiguous, writeable=not self._raw.readonly)

    @property
    def data(self) -> memoryview:
        """The bytes of the elements, without a copy."""
        if not self._is_contiguous:
            raise ValueError("the elements are not stored one after the other")
        return self._raw[self._start : self._start + self.nbytes]

    @property
    def ctypes(self) -> SimpleNamespace:
        """What kernels take as the address of the elements: a memoryview."""
        return SimpleNamespace(data=self.data)

    @property
    def _is_contiguous(self) -> bool:
        return self._step == self.dtype.itemsize or self._length <= 1

    def __len__(self) -> int:
        return self._length

    def __bool__(self) -> bool:
        if self._length != 1:
            raise ValueError("the truth of an array with several elements is ambiguous")
        return bool(self[0])

    # Elements

    def tolist(self) -> list[Any]:
        if self._items is not None:
            values: list[Any] = self._items.tolist()
            return values
        kind, step, count = self.dtype, self._step, self._length
        if step < 0:
            return list(reversed(self[::-1].tolist()))
        if count == 0:
            return []
        last = self._start + (count - 1) * step
        spaced = struct.Struct(f"{kind.struct.format}{step - kind.itemsize}x")
        found = [*spaced.iter_unpack(self._raw[self._start : last]), kind.struct.unpack_from(self._raw, last)]
        return found if kind.scalar is None else [value for (value,) in found]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def tobytes(self) -> bytes:
        if self._is_contiguous:
            return bytes(self.data)
        size, places = self.dtype.itemsize, range(self._start, self._start + self._length * self._step, self._step)
        return b"".join(self._raw[place : place + size] for place in places)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, int):
            if self._items is not None:
                return self._items[key]
            found = self.dtype.struct.unpack_from(self._raw, self._place(key))
            return Row(found) if self.dtype.scalar is None else found[0]
        if isinstance(key, slice):
            start, stop, step = key.indices(self._length)
            count = len(range(start, stop, step))
            return Array(self._raw, self.dtype, self._start + start * self._step, count, self._step * step)
        if isinstance(key, str):
            kind, position = self.dtype.fields[key]
            return Array(self._raw, kind, self._start + position, self._length, self._step)
        return self._take(self._numbers(key))

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(key, int) and self._items is not None:
            self._items[key] = value
            return
        if isinstance(key, str):
            self[key][:] = value
            return
        numbers = range(self._length)[key] if isinstance(key, slice) else self._numbers(key)
        if isinstance(value, Array) and isinstance(key, slice) and self._copies_bytes(key, value):
            self[key].data[:] = value.data
            return
        values = repeat(value, len(numbers)) if isinstance(value, int) else value
        if not isinstance(value, int) and len(value) != len(numbers):
            raise ValueError(f"{len(value)} values for {len(numbers)} elements")
        for number, one in zip(numbers, values, strict=False):
            self.dtype.struct.pack_into(self._raw, self._place(number), *(one if isinstance(one, tuple) else (one,)))

    def _copies_bytes(self, key: slice, value: Array) -> bool:
        part = self[key]
        return part.dtype == value.dtype and part._is_contiguous and value._is_contiguous and len(part) == len(value)

    def _place(self, number: int) -> int:
        number = number + self._length if number < 0 else number
        if not 0 <= number < self._length:
            raise IndexError(f"element {number} of {self._length}")
        return self._start + number * self._step

    def _numbers(self, key: Any) -> Sequence[int]:
        """Return the numbers of elements that an index names: a number, numbers, or a truth value for each element."""
        if isinstance(key, int):
            return [key]
        is_mask = key.dtype.is_bool if isinstance(key, Array) else bool(key) and isinstance(key[0], bool)
        if not is_mask:
            return key.tolist() if isinstance(key, Array) else list(key)
        if len(key) != self._length:
            raise IndexError(f"a mask of {len(key)} elements for {self._length}")
        return list(compress(range(self._length), key))

    def _take(self, numbers: Sequence[int]) -> Array:
        if self.dtype.scalar is not None:
            values = self.tolist()
            return from_values([values[number] for number in numbers], self.dtype)
        size, raw = self.dtype.itemsize, self._raw
        taken = bytearray(b"".join(raw[place : place + size] for place in map(self._place, numbers)))
        return Array(memoryview(taken), self.dtype, 0, len(numbers))

    # Copies and views

    def copy(self) -> Array:
        return Array(memoryview(bytearray(self.tobytes())), self.dtype, 0, self._length)

    def astype(self, kind: Any) -> Array:
        wanted = dtype(kind)
        return self.copy() if wanted == self.dtype else from_values(self.tolist(), wanted)

    def view(self, kind: Any) -> Array:
        wanted = dtype(kind)
        if self.nbytes % wanted.itemsize:
            raise ValueError(f"{self.nbytes} bytes are not elements of {wanted.itemsize} bytes")
        return Array(self.data, wanted, 0, self.nbytes // wanted.itemsize)

    # Numbers over all elements

    def any(self) -> bool:
        if self.dtype.scalar is not None and self._is_contiguous:
            return bool(bytes(self.data).strip(b"\0"))
        return builtin_any(self.tolist())

    def all(self) -> bool:
        return builtin_all(self.tolist())

    def sum(self) -> int:
        return int64(builtin_sum(self.tolist()))

    def max(self) -> Any:
        return builtin_max(self.tolist())

    def min(self) -> Any:
        return builtin_min(self.tolist())

    def argmax(self) -> int:
        values = self.tolist()
        return values.index(builtin_max(values))

    # Operators

    def _with(self, other: Any, operation: Operation) -> Iterable[Any]:
        """Apply an operation to pairs of elements; a number or a single element is paired with each of the others."""
        if not isinstance(other, Array):
            return map(operation, self.tolist(), repeat(other))
        left, right = self.tolist(), other.tolist()
        if len(left) == len(right):
            return map(operation, left, right)
        if len(right) == 1:
            return map(operation, left, repeat(right[0]))
        if len(left) == 1:
            return map(operation, repeat(left[0]), right)
        raise ValueError(f"arrays of {len(left)} and {len(right)} elements")

    def _compare(self, other: Any, operation: Operation) -> Array:
        return from_values(list(self._with(other, operation)), dtype(bool_))

    def _combine(self, other: Any, operation: Operation) -> Array:
        kind = promoted([self.dtype, other.dtype]) if isinstance(other, Array) else promoted([self.dtype])
        return from_values(list(self._with(other, operation)), kind)

    def __eq__(self, other: object) -> Array:  # type: ignore[override]
        return self._compare(other, operator.eq)

    def __ne__(self, other: object) -> Array:  # type: ignore[override]
        return self._compare(other, operator.ne)

    def __lt__(self, other: Any) -> Array:
        return self._compare(other, operator.lt)

    def __le__(self, other: Any) -> Array:
        return self._compare(other, operator.le)

    def __gt__(self, other: Any) -> Array:
        return self._compare(other, operator.gt)

    def __ge__(self, other: Any) -> Array:
        return self._compare(other, operator.ge)

    def __and__(self, other: Any) -> Array:
        return self._combine(other, operator.and_)

    def __or__(self, other: Any) -> Array:
        return self._combine(other, operator.or_)

    def __add__(self, other: Any) -> Array:
        return self._combine(other, operator.add)

    def __sub__(self, other: Any) -> Array:
        return self._combine(other, operator.sub)

    def __mul__(self, other: Any) -> Array:
        return self._combine(other, operator.mul)

    def __floordiv__(self, other: Any) -> Array:
        return self._combine(other, operator.floordiv)

    def __mod__(self, other: Any) -> Array:
        return self._combine(other, operator.mod)

    __radd__, __rmul__ = __add__, __mul__

    def __invert__(self) -> Array:
        return from_values([not value if self.dtype.is_bool else ~value for value in self.tolist()], self.dtype)


builtin_any, builtin_all, builtin_sum, builtin_max, builtin_min = any, all, sum, max, min


def promoted(kinds: Sequence[Dtype]) -> Dtype:
    """Return the type, in the machine's order, that holds the numbers of all types: the widest of them."""
    widest = builtin_max(kinds, key=lambda kind: (not kind.is_bool, kind.itemsize))
    return widest if widest.scalar is None else dtype(widest.scalar)


def from_values(values: Sequence[Any], kind: Dtype) -> Array:
    """Return a new array of numbers, which wrap around at the size of their type."""
    scalar = cast(Scalar, kind.scalar)
    packer = struct.Struct(f"{kind.struct.format[0]}{len(values)}{kind.code}")
    try:
        raw = packer.pack(*values)
    except struct.error:
        raw = packer.pack(*map(scalar, values))
    return Array(memoryview(bytearray(raw)), kind, 0, len(values))


def zeroed(count: int, kind: Dtype) -> Array:
    return Array(memoryview(bytearray(count * kind.itemsize)), kind, 0, count)


def as_array(values: Any) -> Array:
    """Return an array as it is, and a list as an array of truth values or numbers."""
    if isinstance(values, Array):
        return values
    kind = bool_ if values and isinstance(values[0], bool) else int64
    return from_values(values, dtype(kind))


def over_buffer(buffer: Any, kind: Any = uint8, count: int = -1, offset: int = 0) -> Array:
    """Return an array over the bytes of a buffer, without a copy."""
    raw = buffer.data if isinstance(buffer, Array) else memoryview(buffer).cast("B")
    element = dtype(kind)
    if count < 0:
        count, rest = divmod(len(raw) - offset, element.itemsize)
        if rest:
            raise ValueError("buffer size must be a multiple of element size")
    if offset + count * element.itemsize > len(raw):
        raise ValueError(f"{count} elements from byte {offset} on are more than {len(raw)} bytes")
    return Array(raw, element, offset, count)
