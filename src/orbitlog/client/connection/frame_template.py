"""Frame template: requests whose headers differ in a few numbers only, without encoding JSON for each.

A client sends the same header thousands of times with another opaque number, offset or timestamp.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from orbitlog.wire.command import Command, encode_command
from orbitlog.wire.frame_start import FRAME_START_BYTES, TOTAL_BYTES, pack_frame_start

# They differ in each digit: so exactly the varying numbers are the places where two encoded headers differ, whatever
# the other fields contain.
_NUMBERS = 1_111_111_111, 2_000_000_000


class FrameTemplate:
    """The header of `make(number)`, which returns a command with that number in place of each varying one."""

    __slots__ = ("_format",)

    def __init__(self, make: Callable[[int], Command]) -> None:
        one, other = (encode_command(make(number))[FRAME_START_BYTES:] for number in _NUMBERS)
        digits = len(str(_NUMBERS[0]))
        pieces, start, position = [], 0, 0
        while position < len(one):
            if one[position] == other[position]:
                position += 1
                continue
            pieces.append(one[start:position].replace(b"%", b"%%"))
            start = position = position + digits
        self._format = b"%d".join((*pieces, one[start:].replace(b"%", b"%%")))

    def frame(self, numbers: tuple[int, ...], body_bytes: int = 0, body: Iterable[bytes | memoryview] = ()) -> bytes:
        """Return a whole frame with the numbers in the order of the header, and a body of `body_bytes` in parts."""
        header = self._format % numbers
        size = len(header)
        return b"".join((pack_frame_start(TOTAL_BYTES + size + body_bytes, size), header, *body))
