"""Keys whose hashes collide: a query by key looks at a limited number of entries, in short steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitlog.formats.derived.index_layout import index_key, key_hash
from orbitlog.remoting.loop_slices import COUNTERS
from orbitlog.store.reads.key_query import STEP_WORK, KeyQuery
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command
from tests.support.broker_desk import Desk, at_desk, until

COUNT = 600
RECORD_WORK = 1 + 16


async def ask(desk: Desk, key: str) -> Command:
    fields = {"topic": "Orders", "key": key, "maxNum": 64, "beginTimestamp": 0, "endTimestamp": 2**62}
    return await desk.ask(RequestCode.QUERY_MESSAGE, **fields)


async def fill(desk: Desk, count: int = COUNT) -> None:
    assert key_hash(index_key("Orders", "Aa")) == key_hash(index_key("Orders", "BB"))
    await desk.send(properties={"KEYS": "BB"})
    for _ in range(count):
        await desk.send(properties={"KEYS": "Aa"})
    store = desk.broker.state.store
    await until(lambda: store.dispatched_to == store.written_to)


def test_search_through_collisions_takes_short_steps_and_finds_the_message(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await fill(desk)
        COUNTERS.reset()
        answer = await ask(desk, "BB")
        assert answer.code == ResponseCode.SUCCESS and answer.remark is None
        assert COUNTERS.steps >= COUNT * RECORD_WORK // (STEP_WORK + RECORD_WORK)
        assert COUNTERS.items_max <= STEP_WORK + RECORD_WORK

    at_desk(tmp_path, work)


@pytest.mark.parametrize(
    ("key", "maximum"), [("keyQueryEntriesMax", "100"), ("keyQueryRecordsMax", "100"), ("keyQueryBytesMax", "10000")]
)
def test_search_ends_at_a_limit_and_says_so(key: str, maximum: str, tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await fill(desk, 150)
        answer = await ask(desk, "BB")
        assert answer.code == ResponseCode.QUERY_NOT_FOUND and "incomplete" in str(answer.remark)
        assert desk.broker.state.limits.reached[key] == 1

    at_desk(tmp_path, work, **{key: maximum})


def test_index_file_that_is_deleted_during_a_search_ends_it_there(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await fill(desk)
        store = desk.broker.state.store
        steps = store.query_steps(KeyQuery("Orders", "BB"))
        next(steps)
        index = store._index
        kept = list(index._files)
        index._files.clear()
        with pytest.raises(StopIteration) as ended:
            next(steps)
        assert ended.value.value.records == []
        index._files.extend(kept)

    at_desk(tmp_path, work)
