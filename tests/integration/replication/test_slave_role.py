"""An Orbitlog slave of an Orbitlog master: what it copies, what it refuses, and what it refuses to follow."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from orbitlog.formats.names import HALF_TOPIC
from orbitlog.wire.bodies.body_json import read_body
from orbitlog.wire.codes import RequestCode, ResponseCode
from tests.support.broker_desk import Desk, desk_at, records, until
from tests.support.replica_pair import Pair, run_pair


def files_of(root: Path, directory: str) -> dict[str, bytes]:
    found = {str(path.relative_to(root)): path.read_bytes() for path in (root / directory).rglob("*") if path.is_file()}
    return {name: content for name, content in found.items() if content.strip(b"\0")}


async def send_all(desk: Desk, count: int, body_bytes: int = 100, **more: object) -> None:
    for number in range(count):
        assert (await desk.send(body=bytes([number % 256]) * body_bytes, **more)).code == ResponseCode.SUCCESS


def test_slave_copies_log_queues_and_tables_over_restarts(tmp_path: Path) -> None:
    async def work(pair: Pair) -> None:
        master = pair.master
        await send_all(master, 40, 50_000)
        await master.heartbeat()
        for number in range(2):
            async with pair.slave() as slave:
                await send_all(master, 20, 50_000, queue_id=number)
                await send_all(master, 2, topic=f"Late{number}", properties={"DELAY": "3"})
                await master.ask(
                    RequestCode.UPDATE_CONSUMER_OFFSET, consumerGroup="G", topic="Orders", queueId=0, commitOffset=7
                )
                await pair.copied(slave)
                state = slave.broker.state
                await until(lambda state=state: state.topics.data_version == master.broker.state.topics.data_version)
                await until(lambda state=state: state.offsets.find("Orders", "G", 0) == 7)
                assert state.topics.table == master.broker.state.topics.table
                assert state.groups.table == master.broker.state.groups.table
                assert state.store.messages_appended > 0
        store = master.broker.state.store
        store.flush_derived()
        for directory in ("commitlog", "consumequeue"):
            assert files_of(tmp_path / "slave", directory) == files_of(tmp_path / "master", directory)
        assert len(files_of(tmp_path / "slave", "commitlog")) >= 4

    run_pair(tmp_path, work)


def test_slave_serves_reads_and_refuses_changes(tmp_path: Path) -> None:
    async def work(pair: Pair) -> None:
        await send_all(pair.master, 3)
        async with pair.slave() as slave:
            await pair.copied(slave)
            await until(lambda: slave.broker.state.topics.find("Orders") is not None)
            pulled = await slave.pull()
            assert [message.queue_offset for message in records(pulled)] == [0, 1, 2]
            first = records(pulled)[0]
            viewed = await slave.ask(RequestCode.VIEW_MESSAGE_BY_ID, offset=first.physical_offset)
            assert records(viewed) == [first]
            assert (await slave.send()).code == ResponseCode.SERVICE_NOT_AVAILABLE
            ended = await slave.ask(RequestCode.END_TRANSACTION)
            assert ended.code == ResponseCode.SLAVE_NOT_AVAILABLE
            created = await slave.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic="Mine")
            assert created.code == ResponseCode.SYSTEM_ERROR
            assert "from slave broker" in (created.remark or "")
            # A slave that lags does not move a consumer to its own end.
            far = await slave.pull(queue_offset=100)
            assert far.code == ResponseCode.PULL_NOT_FOUND
            assert far.ext_fields["nextBeginOffset"] == "100"
            assert slave.broker.state.store.written_to == pair.master.broker.state.store.written_to
            status = read_body((await slave.ask(RequestCode.GET_BROKER_HA_STATUS)).body)
            assert status["master"] is False
            assert status["haClientRuntimeInfo"]["activated"] is True

    run_pair(tmp_path, work)


def test_sync_master_acknowledges_what_an_orbitlog_slave_has(tmp_path: Path) -> None:
    async def work(pair: Pair) -> None:
        assert (await pair.master.send()).code == ResponseCode.SLAVE_NOT_AVAILABLE
        async with pair.slave() as slave:
            await pair.copied(slave)
            assert (await pair.master.send()).code == ResponseCode.SUCCESS
            assert slave.broker.state.store.received_to == pair.master.broker.state.store.written_to

    run_pair(tmp_path, work, brokerRole="SYNC_MASTER")


@pytest.mark.parametrize("kind", ["ahead", "other history", "other segment size"])
def test_slave_whose_store_does_not_fit_follows_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    """Its own messages stay as they are."""

    async def write_own() -> None:
        async with desk_at(tmp_path / "slave") as desk:
            await send_all(desk, {"ahead": 9, "other history": 2}[kind], 100)

    async def work(pair: Pair) -> None:
        await send_all(pair.master, 5, 100)
        if kind == "other segment size":
            settings = {"mappedFileSizeCommitLog": str(2 * 1024 * 1024)}
        else:
            settings = {}
            await write_own()
        before = files_of(tmp_path / "slave", "commitlog")
        async with pair.slave(**settings) as slave:
            with caplog.at_level(logging.ERROR):
                await until(lambda: "not following master" in caplog.text)
            assert not (await slave.ask(RequestCode.GET_BROKER_HA_STATUS)).remark
        expected = {
            "ahead": "messages that the master does not have",
            "other history": "another history",
            "other segment size": "set mappedFileSizeCommitLog=1048576",
        }
        assert expected[kind] in caplog.text
        assert files_of(tmp_path / "slave", "commitlog") == before

    run_pair(tmp_path, work)


def test_slave_keeps_the_queues_of_system_topics_that_the_master_does_not_list(tmp_path: Path) -> None:
    """A 4.9.7 master has no entry for the topic of half messages."""

    async def work(pair: Pair) -> None:
        assert (await pair.master.send(properties={"TRAN_MSG": "true"})).code == ResponseCode.SUCCESS
        topics = pair.master.broker.state.topics
        topics._topics.pop(HALF_TOPIC)
        topics.touch()
        for _ in range(2):  # the second start creates the topic, and copies the table without it
            async with pair.slave() as slave:
                state = slave.broker.state
                await pair.copied(slave)
                await until(lambda state=state: state.topics.find(HALF_TOPIC) is None)
                assert state.max_offset(HALF_TOPIC, 0) == 1

    run_pair(tmp_path, work)


def test_tables_of_a_master_with_another_history_are_not_copied(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They would delete the topics of this slave with their queues."""

    async def write_own() -> None:
        async with desk_at(tmp_path / "slave") as desk:
            await send_all(desk, 2, topic="Own")

    async def work(pair: Pair) -> None:
        await send_all(pair.master, 5)
        await write_own()
        async with pair.slave() as slave:
            with caplog.at_level(logging.ERROR):
                await until(lambda: "another history" in caplog.text)
            await slave.broker.slave._copy_tables()
            assert slave.broker.state.topics.find("Own") is not None
            assert len(records(await slave.pull("Own"))) == 2

    run_pair(tmp_path, work)


def test_slave_becomes_master_and_the_old_master_its_slave(tmp_path: Path) -> None:
    """Both are stopped and started with the other role."""

    async def first(pair: Pair) -> None:
        await send_all(pair.master, 10)
        async with pair.slave() as slave:
            await pair.copied(slave)
            await until(lambda: slave.broker.state.topics.find("Orders") is not None)

    async def second(pair: Pair) -> None:
        answer = await pair.master.send()
        assert answer.ext_fields["queueOffset"] == "10"
        async with pair.slave() as slave:
            await pair.copied(slave)
            assert len(records(await slave.pull())) == 11

    run_pair(tmp_path, first)
    (tmp_path / "slave").rename(tmp_path / "next")
    (tmp_path / "master").rename(tmp_path / "slave")
    (tmp_path / "next").rename(tmp_path / "master")
    run_pair(tmp_path, second)


def test_flow_control_limits_bytes_per_second(tmp_path: Path) -> None:
    async def work(pair: Pair) -> None:
        await send_all(pair.master, 8, 50_000)
        async with pair.slave() as slave:
            store = slave.broker.state.store
            await until(lambda: store.received_to > 0)
            assert store.received_to <= 200_000
            await pair.copied(slave)

    run_pair(
        tmp_path, work, haFlowControlEnable="true", maxHaTransferByteInSecond="200000", haTransferBatchSize="32768"
    )
