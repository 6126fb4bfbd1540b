"""Frame template: requests whose headers differ in a few numbers only, without encoding JSON for each.

A client sends the same header thousands of times with another opaque number, offset or timestamp.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from orbitlog.wire.command import Command, encode_command
from orbitlog.wire.frame_start import FRAME_START_BYTES, TOTAL_BYTES, pack_frame_start

# Numbers that stand for the varying ones. No name that brokers accept is this long and consists of digits alone, and
# text is quoted by the encoder, so a number after `:` or `"` that equals one of them is the placeholder.
OPAQUE_PLACE = 2_101_234_567
INT_PLACE = 2_101_234_568
LONG_PLACES = (7_701_234_567_890_123, 7_701_234_567_890_124)


class FrameTemplate:
    """The header of a command, in which `places` stand for numbers; they are in the order in which JSON has them."""

    __slots__ = ("_format",)

    def __init__(self, command: Command, places: Sequence[int]) -> None:
        header = encode_command(command)[FRAME_START_BYTES:]
        pieces, position = [], 0
        for place in places:
            text = b"%d" % place
            start = header.index(text, position)
            pieces.append(header[position:start].replace(b"%", b"%%"))
            position = start + len(text)
        pieces.append(header[position:].replace(b"%", b"%%"))
        self._format = b"%d".join(pieces)

    def frame(self, numbers: tuple[int, ...], body_bytes: int = 0, body: Iterable[bytes | memoryview] = ()) -> bytes:
        """Return a whole frame with these numbers, and with a body of `body_bytes` in parts."""
        header = self._format % numbers
        size = len(header)
        return b"".join((pack_frame_start(TOTAL_BYTES + size + body_bytes, size), header, *body))
