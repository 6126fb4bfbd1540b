"""Master connection: receives the CommitLog of a master and appends it to a slave's store. Mirrors `DefaultHAClient`.

The first report states the end of the slave's log, later ones acknowledge what it has appended. A transfer that does
not continue the log closes the connection; nothing is overwritten.

An observer acknowledges nothing: its later reports state offset 0, which keep the connection open and which no master
counts as a copy.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple, Protocol, cast

from orbitlog.errors import ReplicaMismatch, StoreError, WireError
from orbitlog.replication.log_transport import TRANSFERS_PER_READ_MAX
from orbitlog.wire.ha_frames import Transfer, TransferDecoder, encode_report

log = logging.getLogger(__name__)


class ReplicaStore(Protocol):
    """The part of a store that replication writes."""

    @property
    def received_to(self) -> int: ...
    def append_replicated(self, physical_offset: int, data: bytes) -> None: ...
    def drop_incomplete(self) -> None: ...


class MasterLimits(NamedTuple):
    """Times of a connection to a master, and whether this slave acknowledges."""

    heartbeat_s: float
    silence_s: float
    acknowledges: bool = True


class MasterConnection(asyncio.Protocol):
    """One connection to a master, until it is closed; `appended` is called after each read that added bytes.

    An empty store must get its first bytes from `first_offset` on, if that is given.
    """

    def __init__(
        self,
        store: ReplicaStore,
        limits: MasterLimits,
        appended: Callable[[], None],
        first_offset: int | None = None,
    ) -> None:
        self._store = store
        self._limits = limits
        self._appended = appended
        self._first_offset = first_offset
        self._has_answered = False
        self._decoder = TransferDecoder()
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self.read_s = self.written_s = self._loop.time()
        self._received_before = store.received_to  # offset at the last tick
        self.bytes_per_second = 0
        self.closed: asyncio.Future[str] = self._loop.create_future()
        """Done with the reason when the connection has ended."""
        self.is_refused = False
        """Whether the logs do not fit: the reason is a sentence for the operator."""

    # Called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports do not inherit from it
        self._write_report(self._store.received_to or self._first_offset or 0)

    def connection_lost(self, error: Exception | None) -> None:
        self._end(f"connection lost: {error}" if error else "the master closed the connection")

    def data_received(self, data: bytes) -> None:
        self.read_s = self._loop.time()
        received_before = self._store.received_to
        try:
            for count, transfer in enumerate(self._decoder.receive_data(data)):
                if count >= TRANSFERS_PER_READ_MAX:
                    raise WireError(f"HA transfer: more than {TRANSFERS_PER_READ_MAX} in {len(data)} bytes")
                self._take(transfer)
        except ReplicaMismatch as error:
            self.is_refused = True
            self.close(str(error))
        except (StoreError, WireError) as error:
            self.close(str(error))
        # Also after an error: what was appended before it is in the log.
        if self._store.received_to > received_before:
            self._appended()
            if self._limits.acknowledges:
                self._report()
        if not (self._limits.acknowledges or self._has_answered):
            # Not earlier: a Java master that reads both reports at once takes the last one for the request.
            self._has_answered = True
            self._report()

    def _take(self, transfer: Transfer) -> None:
        """Append a transfer; raise `ReplicaMismatch` if it does not continue the log, be it a heartbeat."""
        received_to = self._store.received_to
        if received_to not in (0, transfer.physical_offset):
            raise ReplicaMismatch(
                f"the master continues at offset {transfer.physical_offset}, but this log ends at {received_to};"
                " nothing was overwritten. Start this slave with an empty store"
            )
        if not received_to and self._first_offset not in (None, transfer.physical_offset):
            raise WireError(
                f"the master starts at offset {transfer.physical_offset}, not at {self._first_offset} as requested"
            )
        if transfer.body:
            self._store.append_replicated(transfer.physical_offset, transfer.body)

    def _report(self) -> None:
        self._write_report(self._store.received_to if self._limits.acknowledges else 0)

    def _write_report(self, physical_offset: int) -> None:
        if self._transport is not None:
            self._transport.write(encode_report(physical_offset))
            self.written_s = self._loop.time()

    def tick(self, now_s: float) -> None:
        """Report after a pause, and close the connection to a silent master; call it each second."""
        received_to = self._store.received_to
        self.bytes_per_second, self._received_before = received_to - self._received_before, received_to
        if now_s - self.read_s > self._limits.silence_s:
            self.close(f"nothing was received for {self._limits.silence_s:g} s")
        elif now_s - self.written_s > self._limits.heartbeat_s and (self._limits.acknowledges or self._has_answered):
            self._report()

    def close(self, reason: str) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.abort()
        self._end(reason)

    def _end(self, reason: str) -> None:
        self._transport = None
        if not self.closed.done():
            self.closed.set_result(reason)
