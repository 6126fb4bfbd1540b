"""The functions of numpy that scans use, on plain arrays; imported as `np` and `npt` by `kernels.arrays`."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate, chain, compress, pairwise
from typing import Any

from orbitlog.kernels.plain.plain_array import Array, as_array, from_values, over_buffer, promoted, zeroed
from orbitlog.kernels.plain.plain_dtypes import (
    DtypeLike,
    bool_,
    dtype,
    int8,
    int32,
    int64,
    uint8,
    uint32,
    uint64,
    uintp,
    void,
)

ndarray = Array
frombuffer = over_buffer
asarray = as_array
DTypeLike = DtypeLike

__all__ = [
    "DTypeLike",
    "NDArray",
    "any",
    "append",
    "arange",
    "argsort",
    "array",
    "array_equal",
    "asarray",
    "bool_",
    "concatenate",
    "count_nonzero",
    "cumsum",
    "diff",
    "dtype",
    "empty",
    "flatnonzero",
    "frombuffer",
    "full",
    "full_like",
    "int8",
    "int32",
    "int64",
    "minimum",
    "ndarray",
    "repeat",
    "searchsorted",
    "split",
    "uint8",
    "uint32",
    "uint64",
    "uintp",
    "unique",
    "void",
    "zeros",
    "zeros_like",
]


class NDArray:
    """What numpy's annotations name."""

    def __class_getitem__(cls, kind: Any) -> type[Array]:
        return Array


def array(values: Sequence[int], kind: Any) -> Array:
    return from_values(list(values), dtype(kind))


def zeros(count: int, kind: Any) -> Array:
    return zeroed(count, dtype(kind))


empty = zeros  # reading what was never written would be an error in both


def zeros_like(like: Array) -> Array:
    return zeroed(len(like), like.dtype)


def full(count: int, value: int, kind: Any) -> Array:
    return from_values([value] * count, dtype(kind))


def full_like(like: Array, value: int) -> Array:
    return from_values([value] * len(like), like.dtype)


def arange(start: int, stop: int | None = None) -> Array:
    return from_values(range(start) if stop is None else range(start, stop), dtype(int64))


def concatenate(parts: Sequence[Any]) -> Array:
    arrays = [as_array(part) for part in parts]
    kinds = [given.dtype for given in arrays]
    if all(kind == kinds[0] for kind in kinds):
        raw = bytearray(b"".join(one.tobytes() for one in arrays))
        return Array(memoryview(raw), kinds[0], 0, sum(map(len, arrays)))
    return from_values(list(chain.from_iterable(one.tolist() for one in arrays)), promoted(kinds))


def append(values: Array, more: Any) -> Array:
    return concatenate([values, [more] if isinstance(more, int) else more])


def flatnonzero(values: Array) -> Array:
    return from_values(list(compress(range(len(values)), values.tolist())), dtype(int64))


def count_nonzero(values: Array) -> int:
    return sum(map(bool, values.tolist()))


def any(values: Array) -> bool:
    return values.any()


def searchsorted(values: Array, wanted: Any, side: str = "left") -> Any:
    search = bisect_right if side == "right" else bisect_left
    if isinstance(wanted, int):
        return search(values, wanted)  # it needs only elements and a length
    stored = values.tolist()
    return from_values([search(stored, one) for one in wanted], dtype(int64))


def unique(values: Array, *, return_counts: bool = False, return_inverse: bool = False) -> Any:
    """Return the different elements in order, and how often each occurs, or which of them each element is."""
    given = values.tolist()
    numbers = {value: number for number, value in enumerate(sorted(set(given)))}
    inverse = [numbers[value] for value in given]
    if return_counts:
        counts = [0] * len(numbers)
        for number in inverse:
            counts[number] += 1
        return from_values(list(numbers), values.dtype), from_values(counts, dtype(int64))
    first = {number: place for place, number in reversed(list(enumerate(inverse)))}
    found = values[[first[number] for number in range(len(numbers))]]
    return (found, from_values(inverse, dtype(int64))) if return_inverse else found


def diff(values: Array, prepend: int | None = None) -> Array:
    given = values.tolist() if prepend is None else [prepend, *values.tolist()]
    return from_values([right - left for left, right in pairwise(given)], promoted([values.dtype]))


def cumsum(values: Any) -> Array:
    return from_values(list(accumulate(as_array(values).tolist())), dtype(int64))


def argsort(values: Array, kind: str) -> Array:
    assert kind == "stable"
    given = values.tolist()
    return from_values(sorted(range(len(given)), key=given.__getitem__), dtype(int64))


def array_equal(left: Array, right: Array) -> bool:
    if len(left) != len(right):
        return False
    if left.dtype == right.dtype and left.flags.c_contiguous and right.flags.c_contiguous:
        return left.data == right.data
    return left.tolist() == right.tolist()


def split(values: Array, bounds: Any) -> list[Array]:
    edges = [0, *bounds, len(values)]
    return [values[start:stop] for start, stop in pairwise(edges)]


def repeat(values: Array, counts: Array) -> Array:
    pairs = zip(values.tolist(), counts.tolist(), strict=True)
    return from_values([value for value, count in pairs for _ in range(count)], values.dtype)


def minimum(values: Array, most: int) -> Array:
    return from_values([min(value, most) for value in values.tolist()], promoted([values.dtype]))
