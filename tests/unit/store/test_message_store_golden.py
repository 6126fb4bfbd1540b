"""The store over stores of Apache brokers: what it finds in them, and that a rebuild changes no byte."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest

from orbitlog.formats.records.message import decode_message
from orbitlog.store.message_store import MessageStore
from orbitlog.store.reads.key_query import KeyQuery
from orbitlog.store.reads.queue_reader import GetStatus, ReadRequest
from orbitlog.store.reads.time_search import Boundary
from orbitlog.testing.golden import GoldenStore
from tests.support.golden_configs import CONFIGS

NOW_MS = 1_794_740_000_000
DERIVED = ("consumequeue", "index", "checkpoint")


@pytest.fixture(params=CONFIGS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def golden(name: str, request: pytest.FixtureRequest, golden_copy) -> GoldenStore:
    return golden_copy(request.getfixturevalue(name))


def open_store(golden: GoldenStore, name: str) -> MessageStore:
    return MessageStore.open(golden.store, CONFIGS[name], lambda: NOW_MS)


def fingerprint(root: Path) -> dict[str, str]:
    """Hash log and derived files; index files by their order, since their names say when they were made."""
    files = {
        path.relative_to(root).as_posix(): path
        for directory in ("commitlog", "consumequeue")
        for path in sorted((root / directory).rglob("*"))
        if path.is_file() and any(path.read_bytes())
    }
    files |= {f"index {number}": path for number, path in enumerate(sorted((root / "index").iterdir()))}
    return {key: hashlib.sha256(path.read_bytes()).hexdigest() for key, path in files.items()}


@pytest.mark.parametrize("removed", range(2 ** len(DERIVED)))
def test_what_is_derived_comes_back_byte_for_byte(golden: GoldenStore, name: str, removed: int) -> None:
    before = fingerprint(golden.store)
    for number, part in enumerate(DERIVED):
        if removed & 1 << number:
            path = golden.store / part
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for _ in range(2):
        open_store(golden, name).close()
        assert fingerprint(golden.store) == before
        assert not (golden.store / "abort").exists()


def test_queue_files_of_an_apache_broker_are_not_written_to(golden: GoldenStore, name: str) -> None:
    def files(*parts: str) -> dict[Path, tuple[bytes, int]]:
        paths = [path for part in parts for path in (golden.store / part).rglob("*") if path.is_file()]
        return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in paths if any(path.read_bytes())}

    assert not (golden.store / "orbitlog.state").exists()
    # A crashed broker's index is created again.
    parts = ("consumequeue",) if (golden.store / "abort").exists() else ("consumequeue", "index")
    before = files(*parts)
    open_store(golden, name).close()
    assert files(*parts) == before


def test_one_queue_lost_its_files(golden: GoldenStore, name: str) -> None:
    before = fingerprint(golden.store)
    open_store(golden, name).close()
    queue = next(path for path in sorted((golden.store / "consumequeue").glob("*/*")) if len(list(path.iterdir())) > 1)
    sorted(queue.iterdir())[-1].unlink()
    open_store(golden, name).close()
    assert fingerprint(golden.store) == before


def test_offsets_are_those_that_java_gives_after_opening(golden: GoldenStore, name: str) -> None:
    expected = golden.manifest["afterOpen"]
    with open_store(golden, name) as store:
        assert (store.min_physical_offset, store.written_to) == (expected["minPhyOffset"], expected["maxPhyOffset"])
        for row in expected["queues"]:
            queue = store.queue(row["topic"], row["queueId"])
            found = (queue.min_offset, queue.max_offset) if queue else (0, 0)
            assert found == (row["minOffset"], row["maxOffset"]), row
        assert store.damage == []


def test_every_message_is_read_through_its_queue(golden: GoldenStore, name: str) -> None:
    expected = {(row["topic"], row["queueId"], row["queueOffset"]): row for row in golden.manifest["messages"]}
    seen = set()
    with open_store(golden, name) as store:
        for row in golden.manifest["afterOpen"]["queues"]:
            queue_offset = row["minOffset"]
            while True:
                result = store.get(row["topic"], row["queueId"], ReadRequest(queue_offset, 32))
                if result.status is not GetStatus.FOUND:
                    break
                for record in result.records:
                    message = decode_message(record)
                    key = message.topic, message.queue_id, message.queue_offset
                    assert message.physical_offset == expected[key]["commitLogOffset"]
                    seen.add(key)
                queue_offset = result.next_offset
            assert queue_offset == row["maxOffset"]
    assert seen == expected.keys()


def test_messages_by_id(golden: GoldenStore, name: str) -> None:
    with open_store(golden, name) as store:
        for row in golden.manifest["messages"]:
            message = store.read_by_id(row["offsetMsgId"])
            assert message is not None
            assert message.properties == row["properties"]
        assert store.read_at(1) is None
        assert store.read_at(store.written_to) is None


def test_offsets_by_time_are_javas(golden: GoldenStore, name: str) -> None:
    boundaries = {"offset": Boundary.LOWER, "lower": Boundary.LOWER, "upper": Boundary.UPPER}
    compared = 0
    with open_store(golden, name) as store:
        for queue in golden.manifest["queues"]:
            for sample in queue["searchOffset"]:
                for field in boundaries.keys() & sample.keys():
                    place = queue["topic"], queue["queueId"], sample["timestamp"]
                    assert store.offset_by_time(*place, boundaries[field]) == sample[field], (place, field)
                    compared += 1
    assert compared > 400


def is_hit(query: dict, row: dict) -> bool:
    keys = [row["uniqKey"], *(row["keys"] or "").split(" ")]
    return row["topic"] == query["topic"] and query["key"] in keys


def test_key_queries_are_javas_without_its_collisions(golden: GoldenStore, name: str) -> None:
    rows = {row["commitLogOffset"]: row for row in golden.manifest["messages"]}
    with open_store(golden, name) as store:
        for query in golden.manifest["queries"]:
            topic, key = query["topic"], query["key"]
            # Java lets colliding messages use up the limit; then it finds fewer than there are.
            expected = [place for place in query["brokerReturns"] if is_hit(query, rows[place])]
            window = query["begin"], query["end"], query["maxNum"]
            result = store.query(KeyQuery(topic, key, *window, by_index_time=True))
            found = [message.physical_offset for message in result.messages]
            assert found == sorted(found, reverse=True)
            if len(expected) < len(query["brokerReturns"]):
                assert set(expected) <= set(found)
            else:
                assert sorted(found) == sorted(expected)
            exact = store.query(KeyQuery(topic, key, query["begin"], query["end"], 1000))
            assert exact.complete
            truth = [place for place, row in rows.items() if is_hit(query, row)]
            inside = [place for place in truth if query["begin"] <= rows[place]["storeTimestamp"] <= query["end"]]
            assert sorted(message.physical_offset for message in exact.messages) == inside
