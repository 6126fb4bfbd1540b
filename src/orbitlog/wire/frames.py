"""Frame decoder: splits the bytes of a connection into commands, without I/O. Mirrors Java `NettyDecoder`.

`FrameDecoder.receive_data` takes bytes in chunks of any size and returns the complete commands. `receive_frames`
returns frames with their headers undecoded, for `decode` or for a fast path. The decoder buffers one incomplete frame
at most, within the limits: it checks the lengths of a frame before it waits for the rest. After a `WireError` the
decoder has failed, because the start of the next frame is unknown. Commands that were complete before the invalid
bytes are returned first; then `failure` is set, and the next call raises it.

A large frame is checked against the budget of its request code when its header is complete, before its body is
buffered. A frame over its budget is returned without its body, marked as `REFUSED`, and its body is skipped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitlog.errors import WireError
from orbitlog.wire.command import Command, Serialization
from orbitlog.wire.command_decoding import FRAME_BYTES_MAX, WireLimits, decode_binary_header, decode_json_header
from orbitlog.wire.frame_start import FRAME_START_BYTES, TOTAL_BYTES, unpack_frame_start
from orbitlog.wire.request_budgets import UNCHECKED_BYTES, BudgetRefusal

if TYPE_CHECKING:
    from orbitlog.wire.repeated_pulls import RepeatedPulls

_HEADER_BYTES_MASK = 0xFFFFFF
# The first bytes of other protocols, which clients send to the wrong port.
_TLS_START = b"\x16\x03"
_HTTP_STARTS = frozenset((b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI", b"PRI "))
_JSON = int(Serialization.JSON)
_BINARY = int(Serialization.BINARY)
_PULL_START = b'{"code":11,'
_PULL_START_BYTES = len(_PULL_START)

Frame = tuple[int, bytes, bytes]
"""The serialization, the header and the body of a command.

If the frame is refused, `REFUSED` is added to the serialization, and the size of its body stands in for the body.
"""

REFUSED = 2


class FrameDecoder:
    """Decodes the bytes that one peer sends."""

    __slots__ = ("_kept", "_limits", "_needed_bytes", "_pulls", "_skipped_bytes", "failure", "has_frames")

    def __init__(self, max_frame_bytes: int = FRAME_BYTES_MAX, *, limits: WireLimits | None = None) -> None:
        self._limits = limits or WireLimits(frame_bytes_max=max_frame_bytes)
        self._kept = bytearray()  # one buffer, not a list of chunks: a peer may send two bytes at a time
        self._needed_bytes = FRAME_START_BYTES
        self._skipped_bytes = 0  # the rest of a refused body, not received yet
        self._pulls: RepeatedPulls | None = None
        self.has_frames = False
        """Whether a whole frame was received."""
        self.failure: WireError | None = None

    @property
    def kept_bytes(self) -> int:
        """Number of buffered bytes: those of an incomplete frame."""
        return len(self._kept)

    def receive_data(self, data: bytes) -> list[Command]:
        """Return the commands that `data` completes; raise `WireError` if it is invalid."""
        commands: list[Command] = []
        for frame in self.receive_frames(data):
            try:
                commands.append(self.decode(frame))
            except WireError:
                if commands:
                    return commands
                raise
        return commands

    def receive_frames(self, data: bytes) -> list[Frame]:
        """Return the frames that `data` completes, headers undecoded; they must be decoded in order."""
        if self.failure is not None:
            raise self.failure
        if self._kept:
            self._kept += data
            if len(self._kept) < self._needed_bytes:
                return []
            data = bytes(self._kept)
            self._kept = bytearray()
        elif self._skipped_bytes:
            skipped = min(self._skipped_bytes, len(data))
            self._skipped_bytes -= skipped
            data = data[skipped:]
        frames: list[Frame] = []
        try:
            position = self._cut_frames(data, frames)
        except WireError as error:
            self.failure = error
            if frames:
                return frames
            raise
        if frames:
            self.has_frames = True
        if position < len(data):
            self._kept += data[position:] if position else data
        return frames

    def decode(self, frame: Frame) -> Command:
        """Decode the header of a frame; raise `WireError`, after which the decoder has failed, if it is invalid."""
        kind, header, body = frame
        try:
            if kind & ~REFUSED == _JSON:
                if header[:_PULL_START_BYTES] == _PULL_START and (pull := self._read_pull(header, body)) is not None:
                    return pull
                return decode_json_header(header, body, self._limits)
            return decode_binary_header(header, body, self._limits)
        except WireError as error:
            self.failure = error
            self._kept = bytearray()
            raise

    def _read_pull(self, header: bytes, body: bytes) -> Command | None:
        if self._pulls is None:
            from orbitlog.wire.repeated_pulls import RepeatedPulls  # imported late: only brokers need it

            self._pulls = RepeatedPulls()
        return self._pulls.read(header, body, self._limits)

    def _cut_frames(self, data: bytes, frames: list[Frame]) -> int:
        """Append every complete frame to `frames`; return the position of the incomplete one."""
        position = 0
        end = len(data)
        limits = self._limits
        total_max = limits.frame_bytes_max - TOTAL_BYTES
        header_bytes_max = limits.header_bytes_max
        while position + FRAME_START_BYTES <= end:
            total, mark = unpack_frame_start(data, position)
            header_start = position + FRAME_START_BYTES
            # The serialization of JSON is 0: the mark is the length itself. Only if that is out of range, the upper
            # byte is masked out, so that the usual frame costs one comparison.
            header_bytes = mark
            if header_bytes > header_bytes_max or header_bytes + 4 > total or total > total_max:
                header_bytes = mark & _HEADER_BYTES_MASK
                if header_bytes > header_bytes_max or header_bytes + 4 > total or total > total_max:
                    raise WireError(_bad_lengths(total, header_bytes, limits))
            body_end = position + TOTAL_BYTES + total
            if body_end > end:
                if limits.budgets is not None and total > UNCHECKED_BYTES:
                    return self._check_large(data, position, frames)
                self._needed_bytes = body_end - position
                return position
            if mark != header_bytes and mark >> 24 != _BINARY:
                raise WireError(f"serialization {mark >> 24} is neither JSON (0) nor binary (1)")
            header_end = header_start + header_bytes
            frames.append((mark >> 24, data[header_start:header_end], data[header_end:body_end]))
            position = body_end
        self._needed_bytes = FRAME_START_BYTES
        return position

    def _check_large(self, data: bytes, position: int, frames: list[Frame]) -> int:
        """Check an incomplete frame against its budget; return the position of the bytes to keep.

        A refused one is appended to `frames` without its body.
        """
        total, mark = unpack_frame_start(data, position)
        header_start = position + FRAME_START_BYTES
        header_end = header_start + (mark & _HEADER_BYTES_MASK)
        body_end = position + TOTAL_BYTES + total
        self._needed_bytes = body_end - position
        if header_end > len(data):
            self._needed_bytes = header_end - position
            return position
        if mark >> 24 > _BINARY:
            raise WireError(f"serialization {mark >> 24} is neither JSON (0) nor binary (1)")
        frame = mark >> 24, data[header_start:header_end], b""
        if self.refusal(frame, self.decode(frame), body_end - header_end) is None:
            return position
        frames.append((frame[0] | REFUSED, frame[1], (body_end - header_end).to_bytes(4)))
        self._skipped_bytes = body_end - len(data)
        self._needed_bytes = FRAME_START_BYTES
        return len(data)

    def refusal(self, frame: Frame, command: Command, body_bytes: int) -> BudgetRefusal | None:
        """Return the response to a command that is over the budget of its code, otherwise None."""
        budgets = self._limits.budgets
        if budgets is None or len(frame[1]) + body_bytes <= UNCHECKED_BYTES:
            return None
        return budgets.refusal(command.code, command.flag, len(frame[1]), body_bytes)


def _bad_lengths(total: int, header_bytes: int, limits: WireLimits) -> str:
    if total > limits.frame_bytes_max - TOTAL_BYTES:
        start = total.to_bytes(4)
        if start[:2] == _TLS_START:
            return "the peer speaks TLS; this port serves plain connections only"
        if start in _HTTP_STARTS:
            return "the peer speaks HTTP; this port serves RocketMQ's remoting protocol only"
        return f"frame of {total + TOTAL_BYTES} bytes exceeds the maximum of {limits.frame_bytes_max}"
    if header_bytes > limits.header_bytes_max:
        return f"header of {header_bytes} bytes exceeds the maximum of {limits.header_bytes_max}"
    return f"header of {header_bytes} bytes in a frame of {total}"
