"""Light queues (LMQ) at the broker: sends, pulls without a topic, offsets in their own file, refused starts."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from orbitlog.broker.runtime.broker_opening import open_broker_store
from orbitlog.broker.runtime.broker_settings import BrokerSettings
from orbitlog.errors import StoreError
from orbitlog.formats.compat import COMPAT_5_5
from orbitlog.formats.tables.offset_tables import (
    CONSUMER_OFFSET,
    LMQ_CONSUMER_OFFSET,
    ConsumerOffsets,
    LmqConsumerOffsets,
    TopicGroup,
)
from orbitlog.formats.tables.topic_config import DataVersion
from orbitlog.wire.codes import RequestCode, ResponseCode
from tests.support.broker_desk import SMALL, Desk, at_desk, records

LMQ = {"enableLmq": "true", "enableMultiDispatch": "true"}
ORDINARY, LIGHT = "consumerOffset.json", "lmqConsumerOffset.json"


async def commit(desk: Desk, topic: str, group: str, offset: int, queue_id: int = 0) -> None:
    fields = {"consumerGroup": group, "topic": topic, "queueId": queue_id, "commitOffset": offset}
    assert (await desk.ask(RequestCode.UPDATE_CONSUMER_OFFSET, **fields)).code == ResponseCode.SUCCESS


async def committed(desk: Desk, topic: str, group: str, queue_id: int = 0) -> int | None:
    fields = {"consumerGroup": group, "topic": topic, "queueId": queue_id, "setZeroIfNotFound": "false"}
    answer = await desk.ask(RequestCode.QUERY_CONSUMER_OFFSET, **fields)
    return int(answer.ext_fields["offset"]) if answer.code == ResponseCode.SUCCESS else None


async def send_light(desk: Desk, queues: str, body: bytes = b"light", **more: Any) -> int:
    return (await desk.send(body=body, properties={"INNER_MULTI_DISPATCH": queues}, **more)).code


def saved(root: Path) -> LmqConsumerOffsets:
    return LMQ_CONSUMER_OFFSET.decode((root / "config" / LIGHT).read_text())


def write_ordinary(root: Path, queue_offset: int, timestamp_ms: int) -> None:
    offsets = {TopicGroup("Orders", "G"): {0: queue_offset}}
    table = ConsumerOffsets(offsets, data_version=DataVersion(timestamp_ms=timestamp_ms))
    (root / "config" / ORDINARY).write_text(CONSUMER_OFFSET.encode(table, COMPAT_5_5))


@pytest.mark.parametrize("crc", [{}, {"enabledAppendPropCRC": "true"}])
@pytest.mark.parametrize("compat", ["4.9", "5.5"])
def test_light_queues_continue_after_a_restart(tmp_path: Path, compat: str, crc: dict[str, str]) -> None:
    async def bodies(desk: Desk, topic: str) -> list[bytes]:
        return [record.body for record in records(await desk.pull(topic, group="%LMQ%g"))]

    async def first(desk: Desk) -> None:
        assert await send_light(desk, "%LMQ%a,%LMQ%b", b"both") == ResponseCode.SUCCESS
        assert await send_light(desk, "%LMQ%b", b"second", queue_id=3) == ResponseCode.SUCCESS
        await desk.send(body=b"plain")
        assert await bodies(desk, "%LMQ%a") == [b"both"]
        assert await bodies(desk, "%LMQ%b") == [b"both", b"second"]
        [found] = records(await desk.pull("%LMQ%a"))
        assert found.properties["INNER_MULTI_QUEUE_OFFSET"] == "0,0"
        assert found.topic == "Orders"
        await commit(desk, "%LMQ%b", "%LMQ%g", 1)
        await commit(desk, "%LMQ%b", "G", 2)
        await commit(desk, "Orders", "G", 1)

    async def second(desk: Desk) -> None:
        assert await send_light(desk, "%LMQ%b,%LMQ%c,%LMQ%b", b"third") == ResponseCode.SUCCESS
        assert await bodies(desk, "%LMQ%b") == [b"both", b"second", b"third", b"third"]
        assert [record.properties["INNER_MULTI_QUEUE_OFFSET"] for record in records(await desk.pull("%LMQ%c"))] == [
            "2,0,3"
        ]
        assert await committed(desk, "%LMQ%b", "%LMQ%g") == 1
        assert await committed(desk, "%LMQ%b", "G") == 2
        assert await committed(desk, "Orders", "G") == 1
        assert not desk.broker.state.store.damage

    at_desk(tmp_path, first, compat=compat, **LMQ, **crc)
    at_desk(tmp_path, second, compat=compat, **LMQ, **crc)
    table = saved(tmp_path)
    assert table.lmq_offsets == {TopicGroup("%LMQ%b", "%LMQ%g"): 1}
    assert table.offsets[TopicGroup("%LMQ%b", "G")] == {0: 2}
    assert not (tmp_path / "config" / ORDINARY).exists()
    assert "%LMQ%" not in (tmp_path / "config" / "topics.json").read_text()
    assert "%LMQ%" not in (tmp_path / "config" / "subscriptionGroup.json").read_text()


@pytest.mark.parametrize("queues", ["Plain", "%LMQ%a,Plain", "%LMQ%a/b", "%LMQ%a b", "%LMQ%a,,%LMQ%b"])
def test_invalid_names_of_light_queues_are_refused(tmp_path: Path, queues: str) -> None:
    async def work(desk: Desk) -> None:
        assert await send_light(desk, queues) == ResponseCode.MESSAGE_ILLEGAL
        assert await send_light(desk, "%LMQ%a") == ResponseCode.SUCCESS
        [found] = records(await desk.pull("%LMQ%a"))
        assert found.queue_offset == 0

    at_desk(tmp_path, work, **LMQ)


@pytest.mark.parametrize(
    ("compat", "setting", "code"),
    [
        ("5.5", "enableLmq", ResponseCode.MESSAGE_ILLEGAL),
        ("4.9", "enableLmq", ResponseCode.MESSAGE_ILLEGAL),
        ("4.9", "enableMultiDispatch", ResponseCode.MESSAGE_ILLEGAL),
        ("5.5", "enableMultiDispatch", ResponseCode.SUCCESS),  # as Java 5.x: without effect
        ("5.5", "traceOn", ResponseCode.SUCCESS),
    ],
)
def test_enable_lmq_without_multi_dispatch_is_refused(tmp_path: Path, compat: str, setting: str, code: int) -> None:
    async def work(desk: Desk) -> None:
        assert await send_light(desk, "%LMQ%a") == code
        assert (await desk.send()).code == ResponseCode.SUCCESS

    at_desk(tmp_path, work, compat=compat, **{setting: "true"})


def test_lite_topic_is_a_light_queue(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await desk.send(properties={"__LITE_TOPIC": "lite"})
        [found] = records(await desk.pull("%LMQ%$Orders$lite"))
        assert found.properties["INNER_MULTI_DISPATCH"] == "%LMQ%$Orders$lite"

    at_desk(tmp_path, work, **LMQ)


def test_light_queues_survive_a_lost_setting_and_unused_topics_being_cleaned(tmp_path: Path) -> None:
    async def fill(desk: Desk) -> None:
        assert await send_light(desk, "%LMQ%a") == ResponseCode.SUCCESS
        await desk.pull("%LMQ%a")

    async def clean(desk: Desk) -> None:
        await desk.ask(RequestCode.CLEAN_UNUSED_TOPIC)

    async def read(desk: Desk) -> None:
        assert len(records(await desk.pull("%LMQ%a"))) == 1

    at_desk(tmp_path, fill, **LMQ)
    (tmp_path / "orbitlog.state").unlink()
    at_desk(tmp_path, clean)
    at_desk(tmp_path, read, **LMQ)


# Which table is in force


async def commit_five(desk: Desk) -> None:
    await desk.send()
    await commit(desk, "Orders", "G", 5)


async def expect_five(desk: Desk) -> None:
    assert await committed(desk, "Orders", "G") == 5


def open_with(root: Path, **settings: str) -> None:
    open_broker_store(BrokerSettings({**SMALL, **settings}), root).store.close()


def test_setting_switched_on_takes_the_offsets_over(tmp_path: Path) -> None:
    at_desk(tmp_path, commit_five)
    at_desk(tmp_path, expect_five, **LMQ)
    assert saved(tmp_path).offsets == {TopicGroup("Orders", "G"): {0: 5}}
    at_desk(tmp_path, expect_five, **LMQ)


def test_lost_setting_is_refused_before_anything_changes(tmp_path: Path) -> None:
    at_desk(tmp_path, commit_five, **LMQ)
    copy = tmp_path.with_name("copy")
    shutil.copytree(tmp_path, copy)
    with pytest.raises(StoreError, match=r"lmqConsumerOffset.json was saved after .* Set enableLmq=true"):
        open_with(tmp_path)
    for path in copy.rglob("*"):
        if path.is_file() and path.name != "lock":
            assert (tmp_path / path.relative_to(copy)).read_bytes() == path.read_bytes()
    at_desk(tmp_path, expect_five, **LMQ)


def test_table_left_over_from_an_earlier_time_does_not_block(tmp_path: Path) -> None:
    at_desk(tmp_path, commit_five, **LMQ)
    config = tmp_path / "config"
    (config / LIGHT).rename(config / "kept")
    (config / f"{LIGHT}.bak").unlink(missing_ok=True)
    at_desk(tmp_path, commit_five)
    (config / "kept").rename(config / LIGHT)
    at_desk(tmp_path, expect_five)  # the regular table has a later version
    write_ordinary(tmp_path, 3, 0)
    with pytest.raises(StoreError, match="is obsolete"):
        open_with(tmp_path)
    with_time = (config / LIGHT).stat().st_mtime - 3600
    os.utime(config / LIGHT, (with_time, with_time))
    open_with(tmp_path)


def test_table_that_is_not_ahead_does_not_block(tmp_path: Path) -> None:
    at_desk(tmp_path, commit_five, **LMQ)
    write_ordinary(tmp_path, 5, 0)
    at_desk(tmp_path, expect_five)
