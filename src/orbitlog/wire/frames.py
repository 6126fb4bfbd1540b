"""Bytes of a connection cut into commands, without a socket: h11's manner, for RocketMQ's frames.

`FrameDecoder.receive_data` takes bytes as they come and returns the commands that are complete; `receive_frames` cuts
them off and leaves their headers to `decode`, or to whoever knows a shorter way for some of them. Nothing is kept but
the bytes of one unfinished frame, and no more of them than the limits allow: a length is judged as soon as it is
there, before what it announces is waited for. After a `WireError` the decoder is dead: where the next frame starts
is not known. Commands that came whole before the garbage are returned first; then `failure` is set, and the next
call raises it. Mirrors Java `NettyDecoder`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitlog.errors import WireError
from orbitlog.wire.command import Command, Serialization
from orbitlog.wire.command_decoding import FRAME_BYTES_MAX, WireLimits, decode_binary_header, decode_json_header
from orbitlog.wire.frame_start import FRAME_START_BYTES, TOTAL_BYTES, unpack_frame_start

if TYPE_CHECKING:
    from orbitlog.wire.repeated_pulls import RepeatedPulls

_HEADER_BYTES_MASK = 0xFFFFFF
# What people point at the wrong port, told by the first bytes.
_TLS_START = b"\x16\x03"
_HTTP_STARTS = frozenset((b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI", b"PRI "))
_JSON = int(Serialization.JSON)
_BINARY = int(Serialization.BINARY)
_PULL_START = b'{"code":11,'
_PULL_START_BYTES = len(_PULL_START)

Frame = tuple[int, bytes, bytes]
"""The serialization, the header and the body of a command."""


class FrameDecoder:
    """Turns the bytes that one peer sends into commands."""

    __slots__ = ("_kept", "_limits", "_needed_bytes", "_pulls", "failure")

    def __init__(self, max_frame_bytes: int = FRAME_BYTES_MAX, *, limits: WireLimits | None = None) -> None:
        self._limits = limits or WireLimits(frame_bytes_max=max_frame_bytes)
        self._kept = bytearray()  # one buffer, not a list of chunks: a peer may send two bytes at a time
        self._needed_bytes = FRAME_START_BYTES
        self._pulls: RepeatedPulls | None = None
        self.failure: WireError | None = None

    @property
    def kept_bytes(self) -> int:
        """Bytes of an unfinished frame."""
        return len(self._kept)

    def receive_data(self, data: bytes) -> list[Command]:
        """Return the commands that `data` completes; `WireError` when it cannot be what a peer should send."""
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
        """Return the frames that `data` completes, their headers not looked at yet; they are to be decoded in order."""
        if self.failure is not None:
            raise self.failure
        if self._kept:
            self._kept += data
            if len(self._kept) < self._needed_bytes:
                return []
            data = bytes(self._kept)
            self._kept = bytearray()
        frames: list[Frame] = []
        try:
            position = self._cut_frames(data, frames)
        except WireError as error:
            self.failure = error
            if frames:
                return frames
            raise
        if position < len(data):
            self._kept += data[position:] if position else data
        return frames

    def decode(self, frame: Frame) -> Command:
        """Read a frame's header; the decoder is dead where that is impossible."""
        kind, header, body = frame
        try:
            if kind == _JSON:
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
            from orbitlog.wire.repeated_pulls import RepeatedPulls  # only whoever serves consumers needs it

            self._pulls = RepeatedPulls()
        return self._pulls.read(header, body, self._limits)

    def _cut_frames(self, data: bytes, frames: list[Frame]) -> int:
        """Cut off every whole frame; return where the unfinished one starts."""
        position = 0
        end = len(data)
        limits = self._limits
        total_max = limits.frame_bytes_max - TOTAL_BYTES
        header_bytes_max = limits.header_bytes_max
        while position + FRAME_START_BYTES <= end:
            total, mark = unpack_frame_start(data, position)
            header_start = position + FRAME_START_BYTES
            header_bytes = mark  # of JSON, whose kind is 0
            if header_bytes > header_bytes_max or header_bytes + 4 > total or total > total_max:
                header_bytes = mark & _HEADER_BYTES_MASK
                if header_bytes > header_bytes_max or header_bytes + 4 > total or total > total_max:
                    raise WireError(_bad_lengths(total, header_bytes, limits))
            body_end = position + TOTAL_BYTES + total
            if body_end > end:
                self._needed_bytes = body_end - position
                return position
            if mark != header_bytes and mark >> 24 != _BINARY:
                raise WireError(f"serialization {mark >> 24} is neither JSON (0) nor binary (1)")
            header_end = header_start + header_bytes
            frames.append((mark >> 24, data[header_start:header_end], data[header_end:body_end]))
            position = body_end
        self._needed_bytes = FRAME_START_BYTES
        return position


def _bad_lengths(total: int, header_bytes: int, limits: WireLimits) -> str:
    if total > limits.frame_bytes_max - TOTAL_BYTES:
        start = total.to_bytes(4)
        if start[:2] == _TLS_START:
            return "this is TLS, and only plain connections are served here"
        if start in _HTTP_STARTS:
            return "this is HTTP; RocketMQ's own protocol is served here"
        return f"a frame of {total + TOTAL_BYTES} bytes; at most {limits.frame_bytes_max}"
    if header_bytes > limits.header_bytes_max:
        return f"a header of {header_bytes} bytes; at most {limits.header_bytes_max}"
    return f"a header of {header_bytes} bytes in a frame of {total}"
