"""HA frames: the bytes that a master and a slave exchange on the HA port, without I/O. Mirrors `DefaultHAConnection`.

    slave to master   physical offset (8 bytes)                     report: the end of the slave's CommitLog
    master to slave   physical offset (8 bytes), size (4), bytes    transfer: bytes of the CommitLog, or a heartbeat

The first report of a connection is the request, later ones are acknowledgements. Neither side identifies itself.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from orbitlog.errors import WireError
from orbitlog.formats.java import LONG_MAX

_REPORT = struct.Struct(">q")
_TRANSFER_HEAD = struct.Struct(">qi")
REPORT_BYTES = _REPORT.size
TRANSFER_HEAD_BYTES = _TRANSFER_HEAD.size
TRANSFER_BODY_BYTES_MAX = 4 * 1024 * 1024 - TRANSFER_HEAD_BYTES
"""Java slaves read header and body into a buffer of 4 MiB."""


class Transfer(NamedTuple):
    """Bytes of a master's CommitLog; an empty body is a heartbeat."""

    physical_offset: int
    body: bytes


def encode_report(physical_offset: int) -> bytes:
    """Return a slave's report that its log ends at `physical_offset`."""
    return _REPORT.pack(physical_offset)


def encode_transfer_head(physical_offset: int, body_bytes: int) -> bytes:
    """Return the header of a transfer; the body follows it on the wire."""
    return _TRANSFER_HEAD.pack(physical_offset, body_bytes)


class ReportDecoder:
    """Decodes what a slave sends; keeps at most seven bytes."""

    def __init__(self) -> None:
        self._kept = b""

    def receive_data(self, data: bytes) -> list[int]:
        """Return the reports that `data` completes, in order; raise `WireError` for a negative offset."""
        buffered = self._kept + data
        complete_bytes = len(buffered) - len(buffered) % REPORT_BYTES
        self._kept = buffered[complete_bytes:]
        reports = [offset for (offset,) in _REPORT.iter_unpack(buffered[:complete_bytes])]
        if reports and min(reports) < 0:
            raise WireError(f"HA report: {min(reports)} is not a physical offset")
        return reports


class TransferDecoder:
    """Decodes what a master sends; keeps at most one incomplete transfer."""

    def __init__(self, body_bytes_max: int = TRANSFER_BODY_BYTES_MAX) -> None:
        self._body_bytes_max = body_bytes_max
        self._kept = bytearray()

    @property
    def kept_bytes(self) -> int:
        return len(self._kept)

    def receive_data(self, data: bytes) -> Iterator[Transfer]:
        """Yield the transfers that `data` completes; raise `WireError` if a header is invalid."""
        kept = self._kept
        kept += data
        position = 0
        try:
            while len(kept) - position >= TRANSFER_HEAD_BYTES:
                physical_offset, body_bytes = _TRANSFER_HEAD.unpack_from(kept, position)
                is_size = 0 <= body_bytes <= self._body_bytes_max
                if not (is_size and 0 <= physical_offset <= LONG_MAX - body_bytes):
                    raise WireError(
                        f"HA transfer: offset {physical_offset} and size {body_bytes} are not a valid header"
                        f" (at most {self._body_bytes_max} bytes)"
                    )
                body_start = position + TRANSFER_HEAD_BYTES
                if len(kept) - body_start < body_bytes:
                    return
                position = body_start + body_bytes
                yield Transfer(physical_offset, bytes(kept[body_start:position]))
        finally:
            del kept[:position]
