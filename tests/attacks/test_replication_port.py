"""Replication: a hostile slave cannot stop its master, nor a hostile master its slave."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest
import uvloop

from orbitlog.broker.slave.paged_tables import TOPIC_PAGES, Page, fetch_pages
from orbitlog.errors import OrbitlogError, RemotingError, ReplicaMismatch
from orbitlog.formats.derived.epoch_file import EpochEntry
from orbitlog.formats.java import LONG_MAX
from orbitlog.formats.records.message import encode_message, make_message
from orbitlog.formats.tables.topic_config import TopicConfig
from orbitlog.replication.group.master_term import Follower, MasterTerm
from orbitlog.replication.group.member_driver import DriverEvents, DriverLimits, MemberDriver
from orbitlog.replication.group.member_links import Frame, MemberLink
from orbitlog.replication.log_transport import TRANSFERS_PER_READ_MAX
from orbitlog.replication.master_connection import MasterConnection, MasterLimits
from orbitlog.replication.slave_connection import SlaveConnection, SlaveEvents, SlaveLimits
from orbitlog.settings.limits import HA_CONNECTIONS
from orbitlog.settings.store_settings import StoreGeometry
from orbitlog.store.message_store import MessageStore
from orbitlog.storefiles.store_config import StoreConfig
from orbitlog.wire.bodies.registration_body import TopicWrapper
from orbitlog.wire.codes import ResponseCode
from orbitlog.wire.ha_frames import TRANSFER_BODY_BYTES_MAX, TransferDecoder, encode_report, encode_transfer_head
from orbitlog.wire.replication.epoch_frames import (
    BODY_BYTES_MAX,
    EpochReport,
    Handshake,
    HandshakeAnswer,
    TransferHead,
    encode_epoch_report,
    encode_epoch_transfer_head,
    encode_handshake,
    encode_handshake_answer,
)
from tests.support.broker_desk import Desk, desk_at, until

LIMITS = MasterLimits(heartbeat_s=5, silence_s=20)


@asynccontextmanager
async def slave_of(desk: Desk) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", desk.broker._master.port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def log_of(desk: Desk) -> bytes:
    """Follow the master as a new slave, to the end of its log."""
    decoder, received = TransferDecoder(), b""
    async with slave_of(desk) as (reader, writer):
        writer.write(encode_report(0))
        while len(received) < desk.broker.state.store.written_to:
            data = await reader.read(65536)
            assert data, "the master closed the connection"
            received += b"".join(transfer.body for transfer in decoder.receive_data(data))
    return received


def test_connections_that_never_report_do_not_keep_slaves_out(tmp_path: Path) -> None:
    async def run() -> None:
        async with desk_at(tmp_path) as desk:
            assert (await desk.send()).code == ResponseCode.SUCCESS
            count = HA_CONNECTIONS.default + 8
            silent = [await asyncio.open_connection("127.0.0.1", desk.broker._master.port) for _ in range(count)]
            assert len(await log_of(desk)) == desk.broker.state.store.written_to
            assert desk.broker.state.limits.reached[HA_CONNECTIONS.key] >= 8
            for _, writer in silent:
                writer.close()

    uvloop.run(run())


def test_slaves_that_follow_are_not_closed_for_new_connections(tmp_path: Path) -> None:
    async def run() -> None:
        async with desk_at(tmp_path, haConnectionsMax="1") as desk:
            await desk.send()
            async with slave_of(desk) as (reader, writer):
                writer.write(encode_report(0))
                assert await reader.read(65536)
                async with slave_of(desk) as (late, _):
                    assert not await late.read()
                assert len(desk.broker._master.slaves) == 1

    uvloop.run(run())


def test_slave_that_never_reports_is_closed(tmp_path: Path) -> None:
    async def run() -> None:
        async with desk_at(tmp_path, haHousekeepingInterval="1000") as desk, slave_of(desk) as (reader, _):
            assert not await reader.read()

    uvloop.run(run())


def test_slave_that_never_reads_keeps_a_bounded_buffer(tmp_path: Path) -> None:
    async def run() -> None:
        async with desk_at(tmp_path, mappedFileSizeCommitLog=str(32 * 1024 * 1024)) as desk:
            for _ in range(24):
                assert (await desk.send(body=bytes(1_000_000))).code == ResponseCode.SUCCESS
            deaf = socket.socket()
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.connect(("127.0.0.1", desk.broker._master.port))
            deaf.sendall(encode_report(0))
            await until(lambda: desk.broker._master.slaves and desk.broker._master.slaves[0].sent_to > 0)
            for _ in range(20):
                await asyncio.sleep(0)
            (connection,) = desk.broker._master._hub._connections
            assert connection._transport is not None
            assert connection._transport.get_write_buffer_size() <= 6 * 1024 * 1024
            assert connection.progress is not None
            assert connection.progress.sent_to < desk.broker.state.store.written_to
            assert (await desk.send()).code == ResponseCode.SUCCESS
            deaf.close()

    uvloop.run(run())


class _Source:
    min_physical_offset, confirmed_to, segment_bytes = 0, 1_000, 1 << 20

    def read_log(self, physical_offset: int, bytes_max: int) -> bytes:
        return bytes(bytes_max)


class _Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1)})
        self.is_aborted = False

    def write(self, data: bytes | bytearray | memoryview) -> None: ...

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def abort(self) -> None:
        self.is_aborted = True


def test_reports_of_one_read_are_one_update() -> None:
    updates = list[int]()

    async def run() -> None:
        events = SlaveEvents(lambda _: None, lambda: updates.append(1), lambda _: None)
        connection = SlaveConnection(_Source(), SlaveLimits(4096, 5, 20, False), events)
        connection.connection_made(_Transport())
        connection.data_received(encode_report(0) + encode_report(1_000) * 30_000)
        assert connection.progress is not None and connection.progress.acked_to == 1_000

    asyncio.run(run())
    assert len(updates) == 1


def test_malformed_reports_fill_no_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with desk_at(tmp_path) as desk:
            for number in range(100):
                async with slave_of(desk) as (reader, writer):
                    writer.write(encode_report(-1) if number % 2 else encode_report(1 << 60))
                    try:
                        assert not await reader.read()
                    except ConnectionError:
                        pass

    with caplog.at_level(logging.INFO):
        uvloop.run(run())
    assert 0 < sum("HA connection" in record.getMessage() for record in caplog.records) < 25


class _Store:
    """A store that counts its appends."""

    def __init__(self) -> None:
        self.received_to = 0
        self.appends = 0

    def append_replicated(self, physical_offset: int, data: bytes) -> None:
        self.received_to = physical_offset + len(data)
        self.appends += 1


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (encode_transfer_head(0, 0) * (TRANSFERS_PER_READ_MAX + 1), "HA transfer: more than"),
        (b"".join(encode_transfer_head(n, 1) + b"x" for n in range(TRANSFERS_PER_READ_MAX + 1)), "HA transfer: more"),
        (encode_transfer_head(0, TRANSFER_BODY_BYTES_MAX + 1), "are not a valid header"),
        (encode_transfer_head(0, -1), "are not a valid header"),
        (encode_transfer_head(-1, 1), "are not a valid header"),
        (encode_transfer_head(LONG_MAX - 9, 10), "are not a valid header"),
        (b"".join(encode_transfer_head(n, 1) + b"x" for n in (0, 7)), "the master continues at offset 7"),
    ],
)
def test_hostile_master_is_left(data: bytes, reason: str) -> None:
    async def run() -> None:
        store, transport = _Store(), _Transport()
        connection = MasterConnection(store, LIMITS, lambda: None)
        connection.connection_made(transport)
        connection.data_received(data)
        assert transport.is_aborted and reason in connection.closed.result()
        assert store.appends <= TRANSFERS_PER_READ_MAX
        connection.data_received(encode_transfer_head(0, 5) + b"later")

    asyncio.run(run())


@pytest.mark.parametrize(
    "first",
    [
        b"HTTP/1.1 200 OK".ljust(64, b" "),
        bytes(64),
        encode_message(make_message("T", b"x", store_timestamp_ms=1_700_000_000_000)),
        b"\x00\x00\x00\x40\xcb\xd4\x31\x94" + bytes(56),
    ],
    ids=["no log", "zeros", "a record of offset 0", "a short blank"],
)
def test_bytes_that_are_refused_do_not_fix_where_an_empty_log_starts(first: bytes, tmp_path: Path) -> None:
    """It then could follow no master, not even after a restart."""
    geometry = StoreGeometry(segment_bytes=4096, queue_file_bytes=2000)
    config = StoreConfig(geometry=geometry, is_replica=True)
    record = encode_message(make_message("T", b"x", store_timestamp_ms=1_700_000_000_000))
    for offset in (99 * 4096, LONG_MAX - 4095):
        store = MessageStore.open(tmp_path / "slave", config, lambda: 1_800_000_000_000)
        with pytest.raises(ReplicaMismatch):
            store.append_replicated(offset, first)
        assert store.received_to == 0
        store.close()
    store = MessageStore.open(tmp_path / "slave", config, lambda: 1_800_000_000_000)
    store.append_replicated(0, record)
    assert store.received_to == store.written_to == len(record)
    store.close()


@pytest.mark.parametrize("offset", [LONG_MAX, -2])
def test_master_of_a_group_with_invalid_offsets_is_left(offset: int) -> None:
    async def run() -> None:
        events = _Frames()
        link = link_of(-1, events)
        link.data_received(encode_handshake_answer(HandshakeAnswer(0, 1, (EpochEntry(1, 0),))))
        link.data_received(encode_epoch_transfer_head(TransferHead(1, offset, 1, 0, 0)) + b"x")
        assert len(events.taken) == 1 and len(events.lost) == 1

    asyncio.run(run())


def test_unfinished_transfer_is_bounded() -> None:
    decoder = TransferDecoder()
    head = encode_transfer_head(0, TRANSFER_BODY_BYTES_MAX)
    for part in (head, *[bytes(65536)] * (TRANSFER_BODY_BYTES_MAX // 65536)):
        assert not list(decoder.receive_data(part))
    assert decoder.kept_bytes <= TRANSFER_BODY_BYTES_MAX + len(head)


@pytest.mark.parametrize("topic", ["../../outside", "/outside", "a/../../../outside", "..", "a\0b"])
def test_names_in_the_log_of_a_master_do_not_become_paths(topic: str, tmp_path: Path) -> None:
    root = tmp_path / "deep" / "slave"
    geometry = StoreGeometry(segment_bytes=4096, queue_file_bytes=2000)
    record = encode_message(make_message(topic, b"x", store_timestamp_ms=1_700_000_000_000))
    store = MessageStore.open(root, StoreConfig(geometry=geometry, is_replica=True), lambda: 1_800_000_000_000)
    try:
        store.append_replicated(0, record)
        store.dispatch_once()
    except OrbitlogError:
        pass
    finally:
        store.close()
    assert list(tmp_path.iterdir()) == [tmp_path / "deep"] and list((tmp_path / "deep").iterdir()) == [root]
    assert not [path for path in root.rglob("*outside*")]


class _Member:
    """A member of a group that notes the handshakes of its slaves."""

    leadership = None
    actions: ClassVar[list[object]] = []

    def __init__(self) -> None:
        self.slaves: list[int] = []

    def handshake(self, _: int, frame: Handshake) -> None:
        self.slaves.append(frame.slave_id)

    def disconnected(self, _: int) -> None:
        pass


def test_silent_connections_to_a_group_member_do_not_keep_slaves_out() -> None:
    async def run() -> None:
        member, full = _Member(), []
        events = DriverEvents(
            *(cast(Any, None),) * 5,
            admits=lambda _: True,
        )
        limits = DriverLimits(connections_max=4, on_full=lambda: full.append(1))
        driver = MemberDriver(cast(Any, member), cast(Any, None), cast(Any, None), events, limits)
        server = await asyncio.get_running_loop().create_server(driver.accept, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(6)]
        for slave in range(1, 5):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            silent.append((_, writer))
            writer.write(encode_handshake(Handshake(slave)))
            await until(lambda slave=slave: slave in member.slaves)
        late, writer = await asyncio.open_connection("127.0.0.1", port)
        silent.append((late, writer))
        assert not await late.read(), "members that follow are not closed for new connections"
        assert len(driver.links) == 4 and len(full) == 7
        server.close()
        for _, writer in silent:
            writer.close()
        for link in list(driver.links.values()):
            link.close()
        await asyncio.sleep(0.05)

    asyncio.run(run())


class _Frames:
    """Events of a link: the frames that reach the member of a group."""

    def __init__(self) -> None:
        self.taken: list[Frame] = []
        self.lost: list[str] = []

    def link_opened(self, _: MemberLink) -> None: ...
    def frames_done(self, _: MemberLink) -> None: ...
    def frame_received(self, _: MemberLink, frame: Frame) -> None:
        self.taken.append(frame)

    def link_lost(self, _: MemberLink, reason: str) -> None:
        self.lost.append(reason)


def link_of(number: int, events: _Frames) -> MemberLink:
    link = MemberLink(number, events, BODY_BYTES_MAX)
    link.connection_made(_Transport())
    return link


def test_reports_of_one_read_are_one_update_of_a_group() -> None:
    async def run() -> None:
        events = _Frames()
        link = link_of(1, events)
        link.data_received(encode_handshake(Handshake(2)) + encode_epoch_report(0) + encode_epoch_report(5) * 20_000)
        assert events.taken == [Handshake(2), EpochReport(0), EpochReport(5)]
        link.data_received(b"".join(encode_epoch_report(end) for end in range(6, 20_000)))
        assert events.taken[3:] == [EpochReport(19_999)]
        link.data_received(encode_epoch_report(20_000) + encode_epoch_report(-1))
        assert events.lost and not events.taken[4:]

    asyncio.run(run())


@pytest.mark.parametrize("body", [b"", b"x"], ids=["heartbeats", "single bytes"])
def test_master_of_a_group_with_endless_transfers_is_left(body: bytes) -> None:
    async def run() -> None:
        events = _Frames()
        link = link_of(-1, events)
        link.data_received(encode_handshake_answer(HandshakeAnswer(0, 1, (EpochEntry(1, 0),))))
        heads = (TransferHead(len(body), end, 1, 0, 0) for end in range(TRANSFERS_PER_READ_MAX + 1))
        link.data_received(b"".join(encode_epoch_transfer_head(head) + body for head in heads))
        assert len(events.taken) == 1 + TRANSFERS_PER_READ_MAX
        assert [reason.partition(":")[0] for reason in events.lost] == ["HA transfer"]

    asyncio.run(run())


def test_slaves_with_ever_new_ids_are_not_remembered() -> None:
    """A slave states its id itself, in the handshake and in the request that reports its tables."""
    term = MasterTerm(1, 7, 0, frozenset((1, 2)), 0.0, tables_number=1)
    for member_id in range(2, 5_000):
        term.add(Follower(member_id, member_id, 0, 0.0))
        term.tables_reported(member_id, 1, 0.0)
        term.remove(member_id, 1.0)
    remembered = (term._absent_s, term._tables_of, term._tables_lag_s)
    assert all(2 in values and len(values) < 1_100 for values in remembered), "2 is in the in-sync set"
    assert term.has_tables(4_999, 1) and not term.has_tables(3, 1)


def test_table_of_a_master_without_end_is_left() -> None:
    page = TopicWrapper(topics={f"T{number}": TopicConfig(f"T{number}") for number in range(60_000)})
    asked: list[str] = []

    async def ask(fields: Mapping[str, str]) -> Page:
        asked.append(fields["topicSeq"])
        return Page({"totalTopicNum": str(10**18)}, b"")

    with pytest.raises(RemotingError, match="more than 1000000 rows"):
        asyncio.run(fetch_pages(ask, TOPIC_PAGES, lambda _: page, lambda rows: len(rows.topics)))
    assert len(asked) == 17
