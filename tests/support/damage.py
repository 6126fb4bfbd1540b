"""What every codec test does to bytes: cut them short everywhere, flip each of them, and look what comes out."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from hypothesis import settings

from orbitlog.errors import FormatError

repeatable = settings(derandomize=True, database=None, deadline=None, max_examples=80)


def truncations(data: bytes) -> Iterator[bytes]:
    return (data[:length] for length in range(len(data)))


def flips(data: bytes, *, step: int = 1) -> Iterator[bytes]:
    """Each byte (or each `step`th) inverted, and with its lowest bit flipped."""
    for position in range(0, len(data), step):
        for mask in (0xFF, 0x01):
            yield data[:position] + bytes([data[position] ^ mask]) + data[position + 1 :]


def gives_value_or_format_error(decode: Callable[[bytes], object], data: bytes, *, step: int = 1) -> None:
    """Whatever happens to the bytes, the answer is a value or a `FormatError`, never another error."""
    for damaged in (*truncations(data), *flips(data, step=step)):
        try:
            decode(damaged)
        except FormatError:
            pass


def java_text(drawn: str) -> str:
    """Text that Java wrote, drawn with `→` for a TAB and without the newlines around it."""
    return drawn.strip("\n").replace("→", "\t")
