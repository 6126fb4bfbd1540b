"""Slave connection: sends the CommitLog to one slave and takes its acknowledgements. Mirrors `DefaultHAConnection`.

Bytes are pushed in the turn of the event loop that appended them, up to the store's confirmed offset: with SYNC_FLUSH a
slave never has bytes that this master could lose in a power cut. A transfer never crosses a segment, because a Java
slave appends each one to one file.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple, Protocol

from orbitlog.errors import StoreError, WireError
from orbitlog.replication.log_transport import TURN_BYTES, open_transport
from orbitlog.replication.replica_acks import ReplicaProgress
from orbitlog.settings.limits import HA_CONNECTIONS
from orbitlog.wire.ha_frames import ReportDecoder, encode_transfer_head

log = logging.getLogger(__name__)


class LogSource(Protocol):
    """The part of a store that replication reads."""

    @property
    def min_physical_offset(self) -> int: ...
    @property
    def confirmed_to(self) -> int: ...
    @property
    def segment_bytes(self) -> int: ...
    def read_log(self, physical_offset: int, bytes_max: int) -> bytes: ...


class SlaveLimits(NamedTuple):
    """Sizes and times of a connection to a slave."""

    transfer_bytes: int
    heartbeat_s: float
    silence_s: float
    starts_at_last_segment: bool
    bytes_per_second_max: int = 0
    """Bytes sent between two ticks at most; 0 for no limit."""
    connections_max: int = HA_CONNECTIONS.default
    on_full: Callable[[], None] = lambda: None
    """Called when that number is reached."""


class SlaveEvents(NamedTuple):
    """Calls of a connection into the server that accepted it."""

    joined: Callable[[SlaveConnection], None]
    acknowledged: Callable[[], None]
    left: Callable[[SlaveConnection], None]
    is_worth_a_line: Callable[[], bool] = lambda: True
    """Returns whether to log that a connection is closed: a peer can repeat it without limit."""


class SlaveConnection(asyncio.Protocol):
    """One slave, from its first report on."""

    def __init__(self, source: LogSource, limits: SlaveLimits, events: SlaveEvents) -> None:
        self._source = source
        self._limits = limits
        self._events = events
        self._decoder = ReportDecoder()
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._is_paused = False
        self._pump_planned: asyncio.Handle | None = None
        self._read_s = self._written_s = self._loop.time()
        self._sent_before = 0  # offset at the last tick
        self.bytes_per_second = 0
        self.peer = ""
        self.progress: ReplicaProgress | None = None
        """None until the first report, which states where to start."""

    # Called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport, self.peer = open_transport(transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if self._pump_planned is not None:
            self._pump_planned.cancel()
        self._events.left(self)

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self.push()

    def data_received(self, data: bytes) -> None:
        self._read_s = self._loop.time()
        try:
            reports = self._decoder.receive_data(data)
            if reports and self.progress is None:
                self._start(reports.pop(0))
            if reports and self.progress is not None:
                # Only the last one counts. A read can have thousands of reports, and each would cost an update.
                self.progress.acknowledge(reports[-1])
                self._events.acknowledged()
        except WireError as error:
            self.close(str(error))

    # Reports

    def _start(self, requested: int) -> None:
        source = self._source
        if requested > source.confirmed_to:
            raise WireError(
                f"HA report: the slave's log ends at {requested}, past the end of this log at {source.confirmed_to};"
                " it follows another log, or this master lost its last bytes: examine both with `orbitlog doctor check`"
            )
        start = requested or self._first_offset()
        if start < source.min_physical_offset:
            log.warning(
                "slave %s asks for offset %d, but the log starts at %d: it gets nothing; copy the segments to it,"
                " or start it with an empty store",
                self.peer,
                start,
                source.min_physical_offset,
            )
        self.progress = ReplicaProgress(start, start)
        self._sent_before = start
        log.info("slave %s follows from offset %d", self.peer, start)
        self._events.joined(self)
        self.push()

    def _first_offset(self) -> int:
        """Return where an empty slave starts: a Java slave writes the first bytes it gets to the start of a segment."""
        source = self._source
        if self._limits.starts_at_last_segment:
            return max(source.confirmed_to - source.confirmed_to % source.segment_bytes, source.min_physical_offset)
        return source.min_physical_offset

    # Transfers

    def push(self) -> None:
        """Send what is confirmed and not sent yet, as much as the transport takes."""
        if self._pump_planned is None:
            self._push_turn()

    def _push_turn(self) -> None:
        self._pump_planned = None
        progress = self.progress
        if progress is None or progress.sent_to < self._source.min_physical_offset:
            return
        limit = self._limits.bytes_per_second_max
        end = min(self._source.confirmed_to, self._sent_before + limit) if limit else self._source.confirmed_to
        stop = min(end, progress.sent_to + TURN_BYTES)
        while progress.sent_to < stop and not self._is_paused and self._transport is not None:
            if not self._send_next(progress, stop):
                return
        if progress.sent_to < end and not self._is_paused and self._transport is not None:
            self._pump_planned = self._loop.call_soon(self._push_turn)

    def _send_next(self, progress: ReplicaProgress, stop: int) -> bool:
        """Send one transfer; return False if the connection was closed."""
        assert self._transport is not None
        bytes_max = min(self._limits.transfer_bytes, stop - progress.sent_to)
        try:
            body = self._source.read_log(progress.sent_to, bytes_max)
        except StoreError as error:
            self.close(f"could not read the log at {progress.sent_to}: {error}")
            return False
        self._transport.writelines((encode_transfer_head(progress.sent_to, len(body)), body))
        progress.sent_to += len(body)
        self._written_s = self._loop.time()
        return True

    def tick(self, now_s: float) -> None:
        """Send a heartbeat after a pause, and close the connection of a silent slave; call it each second."""
        if self._transport is None:
            return
        if self.progress is not None:
            self.bytes_per_second = self.progress.sent_to - self._sent_before
            self._sent_before = self.progress.sent_to
        if now_s - self._read_s > self._limits.silence_s:
            self.close(f"no report for {self._limits.silence_s:g} s")
        elif self.progress is not None and now_s - self._written_s > self._limits.heartbeat_s and not self._is_paused:
            self._transport.write(encode_transfer_head(self.progress.sent_to, 0))
            self._written_s = now_s
        if self._limits.bytes_per_second_max:
            self.push()  # what the limit held back

    def close(self, reason: str) -> None:
        """Close the connection at once; the slave reconnects."""
        if self._transport is not None:
            if self._events.is_worth_a_line():
                log.warning("closing HA connection of %s: %s", self.peer, reason)
            self._transport.abort()
            self._transport = None
