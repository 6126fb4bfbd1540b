"""A master and its slaves over sockets: what a slave is sent, what counts as an acknowledgement, what a send gets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvloop

from orbitlog.wire.bodies.body_json import read_body
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.ha_frames import Transfer, TransferDecoder, encode_report
from tests.support.broker_desk import Desk, desk_at, until

SEGMENT_BYTES = 1024 * 1024


class RawSlave:
    """A slave without a store: it keeps what it receives, and reports when a test asks for it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._decoder = TransferDecoder()
        self.transfers: list[Transfer] = []

    def report(self, end: int) -> None:
        self._writer.write(encode_report(end))

    async def read(self) -> bool:
        """Read once; return False if the master has closed the connection."""
        data = await self._reader.read(1 << 20)
        self.transfers += self._decoder.receive_data(data)
        return bool(data)

    async def read_until(self, end: int) -> None:
        while self.end < end:
            assert await self.read()

    @property
    def end(self) -> int:
        return self.transfers[-1].physical_offset + len(self.transfers[-1].body) if self.transfers else 0

    @property
    def log(self) -> bytes:
        return b"".join(transfer.body for transfer in self.transfers)

    async def is_closed(self) -> bool:
        try:
            while await self.read():
                pass
        except ConnectionError:
            pass
        return True


@asynccontextmanager
async def slave_of(desk: Desk, start: int | None = 0) -> AsyncIterator[RawSlave]:
    reader, writer = await asyncio.open_connection("127.0.0.1", desk.broker._master.port)
    slave = RawSlave(reader, writer)
    if start is not None:
        slave.report(start)
    try:
        yield slave
    finally:
        writer.close()


def written(desk: Desk) -> int:
    return desk.broker.state.store.written_to


async def send_all(desk: Desk, count: int, body: bytes) -> None:
    for _ in range(count):
        assert (await desk.send(body=body)).code == ResponseCode.SUCCESS


def test_slave_gets_every_byte_of_the_log_and_no_transfer_crosses_a_segment(tmp_path: Path) -> None:
    async def run() -> None:
        async with desk_at(tmp_path, haTransferBatchSize="100000") as desk:
            await send_all(desk, 60, b"x" * 60_000)
            async with slave_of(desk) as slave:
                await slave.read_until(written(desk))
                await send_all(desk, 3, b"later")
                await slave.read_until(written(desk))
                for start, body in slave.transfers:
                    assert start // SEGMENT_BYTES == (start + max(len(body) - 1, 0)) // SEGMENT_BYTES
                    assert len(body) <= 100_000
                store = desk.broker.state.store
                assert slave.log == b"".join(
                    store.read_log(base, min(SEGMENT_BYTES, store.written_to - base))
                    for base in range(0, store.written_to, SEGMENT_BYTES)
                )

    uvloop.run(run())


def test_empty_slave_starts_at_the_last_segment_if_asked_to(tmp_path: Path) -> None:
    async def run() -> None:
        async with desk_at(tmp_path, haFirstRequest="last") as desk:
            await send_all(desk, 40, b"x" * 60_000)
            async with slave_of(desk) as slave:
                await slave.read_until(written(desk))
                assert slave.transfers[0].physical_offset == 2 * SEGMENT_BYTES

    uvloop.run(run())


def test_async_master_acknowledges_without_a_slave(tmp_path: Path) -> None:
    async def run() -> None:
        async with desk_at(tmp_path) as desk:
            assert (await desk.send()).code == ResponseCode.SUCCESS

    uvloop.run(run())


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_sync_master_without_a_slave_stores_and_answers_slave_not_available(tmp_path: Path, flush: str) -> None:
    async def run() -> None:
        async with desk_at(tmp_path, brokerRole="SYNC_MASTER", flushDiskType=flush) as desk:
            for queue_offset in range(3):  # the first on the slow path, then on the fast path
                answer = await desk.send()
                assert answer.code == ResponseCode.SLAVE_NOT_AVAILABLE
                assert answer.ext_fields["queueOffset"] == str(queue_offset)
                assert answer.ext_fields["msgId"]
            await until(lambda: desk.broker.state.max_offset("Orders", 0) == 3)

    uvloop.run(run())


def test_message_that_does_not_wait_is_acknowledged_without_a_slave(tmp_path: Path) -> None:
    async def run() -> None:
        async with desk_at(tmp_path, brokerRole="SYNC_MASTER") as desk:
            assert (await desk.send(properties={"WAIT": "false"})).code == ResponseCode.SUCCESS

    uvloop.run(run())


def test_sync_master_behaves_as_5x_if_asked_to(tmp_path: Path) -> None:
    async def run() -> None:
        async with desk_at(tmp_path, brokerRole="SYNC_MASTER", haCompatSyncDefault="true") as desk:
            assert (await desk.send()).code == ResponseCode.SUCCESS

    uvloop.run(run())


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_sync_master_acknowledges_when_the_slave_has_acknowledged(tmp_path: Path, flush: str) -> None:
    async def run() -> None:
        async with desk_at(tmp_path, brokerRole="SYNC_MASTER", flushDiskType=flush) as desk:
            async with slave_of(desk) as slave:
                await until(lambda: bool(desk.broker._master.slaves))
                for _ in range(3):
                    sending = asyncio.ensure_future(desk.send())
                    await until(lambda: written(desk) > slave.end)
                    await slave.read_until(written(desk))
                    assert not sending.done()
                    slave.report(slave.end)
                    assert (await sending).code == ResponseCode.SUCCESS

    uvloop.run(run())


def test_send_times_out_with_flush_slave_timeout_if_the_slave_is_silent(tmp_path: Path) -> None:
    async def run() -> None:
        async with desk_at(tmp_path, brokerRole="SYNC_MASTER", slaveTimeout="50") as desk, slave_of(desk):
            await until(lambda: bool(desk.broker._master.slaves))
            for queue_offset in range(2):
                answer = await desk.send()
                assert answer.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
                assert answer.ext_fields["queueOffset"] == str(queue_offset)

    uvloop.run(run())


def test_three_copies_wait_for_both_slaves(tmp_path: Path) -> None:
    async def run() -> None:
        async with desk_at(tmp_path, brokerRole="SYNC_MASTER", inSyncReplicas="3") as desk:
            async with slave_of(desk) as first, slave_of(desk) as second:
                await until(lambda: len(desk.broker._master.slaves) == 2)
                sending = asyncio.ensure_future(desk.send())
                await until(lambda: written(desk) > 0)
                await first.read_until(written(desk))
                first.report(first.end)
                await second.read_until(written(desk))
                assert not sending.done()
                second.report(second.end)
                assert (await sending).code == ResponseCode.SUCCESS

    uvloop.run(run())


@pytest.mark.parametrize("end", [2**40, 2**62])
def test_stray_bytes_on_the_ha_port_are_no_acknowledgement(tmp_path: Path, end: int) -> None:
    async def run() -> None:
        async with desk_at(tmp_path, brokerRole="SYNC_MASTER") as desk:
            async with slave_of(desk, end) as stray:
                assert await stray.is_closed()
            async with slave_of(desk, 0) as stray:
                stray.report(end)
                assert await stray.is_closed()
            assert (await desk.send()).code == ResponseCode.SLAVE_NOT_AVAILABLE

    uvloop.run(run())


def test_silent_connection_does_not_count_as_a_slave(tmp_path: Path) -> None:
    async def run() -> None:
        async with desk_at(tmp_path, brokerRole="SYNC_MASTER") as desk, slave_of(desk, None):
            assert (await desk.send()).code == ResponseCode.SLAVE_NOT_AVAILABLE

    uvloop.run(run())


def test_idle_master_sends_heartbeats_and_disconnects_a_silent_slave(tmp_path: Path) -> None:
    async def run() -> None:
        settings = {"haSendHeartbeatInterval": "100", "haHousekeepingInterval": "2500"}
        async with desk_at(tmp_path, **settings) as desk, slave_of(desk) as slave:
            assert await slave.is_closed()
            assert slave.transfers
            assert all(transfer == Transfer(0, b"") for transfer in slave.transfers)

    uvloop.run(run())


def test_connection_from_outside_the_members_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with desk_at(tmp_path, haMembers="192.0.2.7,2001:db8::/32") as desk, slave_of(desk) as slave:
            assert await slave.is_closed()
        assert "haMembers" in caplog.text

    uvloop.run(run())


def test_stopped_master_closes_the_connections_of_its_slaves(tmp_path: Path) -> None:
    async def run() -> None:
        async with desk_at(tmp_path) as desk:
            async with slave_of(desk) as slave:
                await until(lambda: bool(desk.broker._master.slaves))
                await desk.broker._master.stop()
                assert await slave.is_closed()

    uvloop.run(run())


def test_ha_status_and_addresses_are_those_of_the_connected_slave(tmp_path: Path) -> None:
    async def run() -> None:
        async with desk_at(tmp_path) as desk:
            await send_all(desk, 3, b"x" * 1000)
            async with slave_of(desk) as slave:
                await slave.read_until(written(desk))
                slave.report(slave.end)
                await until(lambda: desk.broker._master.slaves[0].acked_to == slave.end)
                status = read_body((await desk.ask(RequestCode.GET_BROKER_HA_STATUS)).body)
                [connection] = status["haConnectionInfo"]
                assert (connection["diff"], connection["inSync"]) == (0, True)
                assert connection["slaveAckOffset"] == connection["transferFromWhere"] == written(desk)
                assert (status["inSyncSlaveNums"], status["masterCommitLogMaxOffset"]) == (1, written(desk))
            answer = await desk.ask(RequestCode.EXCHANGE_BROKER_HA_INFO)
            assert answer.ext_fields["masterHaAddress"] == f"127.0.0.1:{desk.broker._master.port}"
            assert answer.ext_fields["masterAddress"] == desk.address

    uvloop.run(run())
