"""A slave's connection to its master: what it reports, what it appends and when it closes; no socket is opened."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from orbitlog.errors import DiskFull, ReplicaMismatch
from orbitlog.replication.master_connection import MasterConnection, MasterLimits
from orbitlog.wire.ha_frames import encode_report, encode_transfer_head

LIMITS = MasterLimits(heartbeat_s=5, silence_s=20)


class Store:
    """Takes bytes that continue it; `full_at` is the offset from which its disk is full."""

    def __init__(self, received_to: int = 0, full_at: int = 1 << 40) -> None:
        self.received_to = received_to
        self.full_at = full_at
        self.data = b""

    def append_replicated(self, physical_offset: int, data: bytes) -> None:
        if physical_offset >= self.full_at:
            raise DiskFull("no space left")
        if self.received_to and physical_offset != self.received_to:
            raise ReplicaMismatch("does not continue")
        self.data += data
        self.received_to = physical_offset + len(data)

    def drop_incomplete(self) -> None:
        raise AssertionError("called for a new connection only")


class Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.is_aborted = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def abort(self) -> None:
        self.is_aborted = True


def transfer(physical_offset: int, body: bytes) -> bytes:
    return encode_transfer_head(physical_offset, len(body)) + body


def connected(
    work: Callable[[MasterConnection, Transport], None],
    store: Store,
    limits: MasterLimits = LIMITS,
    first_offset: int | None = None,
) -> int:
    """Run `work` with a connection; return how often bytes were appended."""
    counted: list[int] = []

    async def go() -> None:
        transport = Transport()
        connection = MasterConnection(store, limits, lambda: counted.append(store.received_to), first_offset)
        connection.connection_made(transport)
        work(connection, transport)

    asyncio.run(go())
    return len(counted)


def test_first_report_is_sent_at_once_and_states_the_end_of_the_log() -> None:
    def work(_: MasterConnection, transport: Transport) -> None:
        assert transport.written == encode_report(700)

    connected(work, Store(700))


def test_transfers_read_together_are_appended_and_reported_once() -> None:
    store = Store(100)

    def work(connection: MasterConnection, transport: Transport) -> None:
        data = transfer(100, b"a" * 10) + transfer(110, b"b" * 10)
        connection.data_received(data[:-1])
        connection.data_received(data[-1:])
        assert transport.written == b"".join(map(encode_report, (100, 110, 120)))

    assert connected(work, store) == 2
    assert store.data == b"a" * 10 + b"b" * 10


def test_heartbeat_of_another_offset_closes_the_connection() -> None:
    def work(connection: MasterConnection, transport: Transport) -> None:
        connection.data_received(transfer(101, b""))
        assert transport.is_aborted and connection.is_refused
        assert "continues at offset 101, but this log ends at 100" in connection.closed.result()

    connected(work, Store(100))


def test_empty_log_accepts_any_heartbeat() -> None:
    def work(connection: MasterConnection, transport: Transport) -> None:
        connection.data_received(transfer(4096, b""))
        assert not transport.is_aborted

    connected(work, Store())


def test_malformed_header_closes_the_connection() -> None:
    def work(connection: MasterConnection, transport: Transport) -> None:
        connection.data_received(b"\xff" * 12)
        assert transport.is_aborted and not connection.is_refused

    connected(work, Store(100))


def test_bytes_before_a_full_disk_are_kept_and_nothing_is_reported_after_the_close() -> None:
    store = Store(100, full_at=110)

    def work(connection: MasterConnection, transport: Transport) -> None:
        connection.data_received(transfer(100, b"a" * 10) + transfer(110, b"b" * 10))
        assert transport.is_aborted and not connection.is_refused
        assert transport.written == encode_report(100)

    assert connected(work, store) == 1
    assert store.received_to == 110


def test_tick_reports_after_a_pause_and_closes_after_silence() -> None:
    def work(connection: MasterConnection, transport: Transport) -> None:
        now_s = connection.read_s
        connection.tick(now_s + 4)
        assert transport.written == encode_report(100)
        connection.tick(now_s + 6)
        assert transport.written == encode_report(100) * 2
        connection.tick(now_s + 21)
        assert transport.is_aborted
        assert connection.closed.result() == "nothing was received for 20 s"

    connected(work, Store(100))


def test_observer_states_its_end_once_and_acknowledges_nothing() -> None:
    store = Store(100)

    def work(connection: MasterConnection, transport: Transport) -> None:
        connection.tick(connection.read_s + 6)
        assert transport.written == encode_report(100), "a second report before the answer would replace the request"
        connection.data_received(transfer(100, b"a" * 10))
        connection.data_received(transfer(110, b"b" * 10))
        connection.tick(connection.written_s + 6)
        assert transport.written == encode_report(100) + encode_report(0) * 2

    assert connected(work, store, LIMITS._replace(acknowledges=False)) == 2
    assert store.received_to == 120


def test_empty_store_asks_for_the_first_offset_and_accepts_no_other() -> None:
    store = Store()

    def work(connection: MasterConnection, transport: Transport) -> None:
        assert transport.written == encode_report(4096)
        connection.data_received(transfer(8192, b"a" * 10))
        assert transport.is_aborted and not connection.is_refused
        assert connection.closed.result() == "the master starts at offset 8192, not at 4096 as requested"

    connected(work, store, first_offset=4096)
    assert store.data == b""


def test_empty_store_gets_the_log_from_the_first_offset() -> None:
    store = Store()

    def work(connection: MasterConnection, transport: Transport) -> None:
        connection.data_received(transfer(4096, b"") + transfer(4096, b"a" * 10))
        assert not transport.is_aborted

    connected(work, store, first_offset=4096)
    assert store.received_to == 4106
