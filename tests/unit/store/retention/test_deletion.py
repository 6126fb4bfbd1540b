"""Deleting expired segments: what is left can be read, found and opened, whatever happens in between."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import ClassVar

import pytest

from orbitlog.errors import StoreClosed, StoreError
from orbitlog.formats import names
from orbitlog.formats.compat import COMPAT_4_9
from orbitlog.formats.derived.derive import DeriveRules
from orbitlog.formats.derived.index_layout import IndexLayout
from orbitlog.formats.records.message import make_message
from orbitlog.settings.retention_policy import RetentionPolicy
from orbitlog.settings.store_settings import StoreGeometry
from orbitlog.store.appending.put_result import PutStatus
from orbitlog.store.message_store import MessageStore
from orbitlog.store.reads.key_query import KeyQuery
from orbitlog.store.reads.queue_reader import GetStatus, ReadRequest
from orbitlog.store.retention.deletion import Deleted
from orbitlog.store.retention.retention_rules import Rule
from orbitlog.storefiles.disk import DiskUsage, RealDisk
from orbitlog.storefiles.store_config import StoreConfig
from orbitlog.testing.crash_disk import CrashDisk
from orbitlog.testing.golden import GoldenStore
from tests.support.retention_stores import ANY_HOUR, CONFIG, GEOMETRY, HOUR_MS, RARE, Clock, Sent, check, fill, read_all


class Stopped(BaseException):
    """The process ends here."""


class FakedDisk(RealDisk):
    """A real disk with a settable usage, which counts calls and can stop at a removal."""

    def __init__(self) -> None:
        self.percent = 20.0
        self.asked: list[str] = []
        self.removals_left: int | None = None
        self.fails_to_remove = ""

    def usage(self, path: Path) -> DiskUsage:
        self.asked.append("usage")
        return DiskUsage(1000 * 4096, round(1000 * 4096 * (1 - self.percent / 100)))

    def modified_ms(self, path: Path) -> int:
        self.asked.append("modified")
        return super().modified_ms(path)

    def remove_file(self, path: Path) -> None:
        if self.removals_left is not None:
            if self.removals_left == 0:
                raise Stopped
            self.removals_left -= 1
        if self.fails_to_remove and self.fails_to_remove in path.parts:
            raise StoreError("it cannot be removed")
        super().remove_file(path)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def disk() -> FakedDisk:
    return FakedDisk()


def expire(root: Path, clock: Clock, count: int, hours: int = 73) -> None:
    """Let the oldest segments have been written last that many hours ago."""
    for number, path in enumerate(sorted((root / "commitlog").iterdir())):
        at_ns = (clock.now_ms - (hours if number < count else 0) * HOUR_MS) * 1_000_000
        os.utime(path, ns=(at_ns, at_ns))


def file_names(root: Path) -> set[str]:
    kinds = ("commitlog", "consumequeue", "index")
    return {str(path.relative_to(root)) for kind in kinds for path in (root / kind).rglob("*") if path.is_file()}


def test_expired_segments_go_and_queues_and_index_follow(tmp_path: Path, clock: Clock, disk: FakedDisk) -> None:
    with MessageStore.open(tmp_path, CONFIG, clock, disk) as store:
        sent = fill(store)
        before = file_names(tmp_path)
        expire(tmp_path, clock, 5)
        deleted = store.retain_once()
        assert [doomed.rule for doomed in deleted.segments] == [Rule.EXPIRED] * 5
        assert store.min_physical_offset == 5 * 4096
        gone = before - file_names(tmp_path)
        counts = (len(deleted.segments), deleted.queue_file_count, deleted.index_file_count)
        assert counts == tuple(
            sum(name.startswith(kind) for name in gone) for kind in ("commitlog", "consume", "index")
        )
        assert all(counts)
        check(store, sent)
        assert not store.retain_once()
        queried = store.query(KeyQuery("Orders", "k1"))
        assert (queried.messages, queried.complete) == ([], True)
    for _ in range(2):
        with MessageStore.open(tmp_path, CONFIG, clock, disk) as store:
            assert store.min_physical_offset == 5 * 4096
            check(store, sent)


def test_queue_whose_messages_have_all_expired_resumes_where_it_was(
    tmp_path: Path, clock: Clock, disk: FakedDisk
) -> None:
    with MessageStore.open(tmp_path, CONFIG, clock, disk) as store:
        sent = fill(store)
        expire(tmp_path, clock, 5)
        store.retain_once()
    with MessageStore.open(tmp_path, CONFIG, clock, disk) as store:
        queue = store.queue(*RARE)
        assert queue is not None
        assert queue.min_offset == queue.max_offset == len(sent[RARE])
        properties = {"KEYS": "again"}
        sent[RARE].append(store.append(make_message(RARE[0], b"x", properties=properties)))
        store.dispatch_once()
        check(store, sent)


@pytest.mark.parametrize("removals", range(20))
def test_a_crash_at_any_removal_is_harmless(tmp_path: Path, clock: Clock, disk: FakedDisk, removals: int) -> None:
    store = MessageStore.open(tmp_path / "store", CONFIG, clock, disk)
    sent = fill(store)
    expire(tmp_path / "store", clock, 5)
    disk.removals_left = removals
    try:
        deleted = store.retain_once()
        assert len(deleted.segments) == 5
    except Stopped:
        pass
    disk.removals_left = None
    shutil.copytree(tmp_path / "store", tmp_path / "found")
    expire(tmp_path / "found", clock, 5 - min(removals, 5))
    store.retain_once()
    check(store, sent)
    store.close()
    with MessageStore.open(tmp_path / "found", CONFIG, clock, disk) as found:
        assert found.min_physical_offset == 4096 * min(removals, 5)
        check(found, sent)
        found.retain_once()
        check(found, sent)
        queues = {name for name in file_names(tmp_path / "found") if not name.startswith("index")}
        assert queues == {name for name in file_names(tmp_path / "store") if not name.startswith("index")}


def test_a_power_cut_at_any_step_of_a_deletion_is_harmless(clock: Clock) -> None:
    """On a disk in memory, where files are as old as the hills and unsynced removals may or may not have happened."""
    root, disk = Path("/store"), CrashDisk()
    store = MessageStore.open(root, CONFIG, clock, disk)
    sent = fill(store, 90)
    starts = set()

    def look() -> None:
        disk.on_step = None  # a look takes steps of its own
        for seed in range(2):
            with MessageStore.open(root, CONFIG, clock, disk.crash(disk.steps * 10 + seed)) as found:
                check(found, sent)
                starts.add(found.min_physical_offset)
                found.retain_once()
                check(found, sent)
        disk.on_step = look

    disk.on_step = look
    assert len(store.retain_once().segments) > 3
    disk.on_step = None
    assert len(starts) > 4
    check(store, sent)
    store.close()


@pytest.mark.parametrize("seed", [*range(5), 81])
def test_power_cuts_while_messages_come_and_go(clock: Clock, seed: int) -> None:
    """Whatever a crash takes from the log's end, no queue forgets how many messages it had at the log's start."""
    root, disk, chance = Path("/store"), CrashDisk(), Random(seed)
    config = replace(CONFIG, retention=replace(ANY_HOUR, files_per_step=2))
    store, sent = MessageStore.open(root, config, clock, disk), Sent()
    for number in range(400):
        queue = RARE if number % 97 < 3 else ("Orders", chance.randrange(2))
        message = make_message(queue[0], b"x" * 120, queue_id=queue[1], properties={"KEYS": f"k{number}"})
        sent.setdefault(queue, []).append(store.append(message))
        if chance.random() < 0.5:
            store.dispatch_once(chance.choice([1, 10_000]))
        if chance.random() < 0.05:
            store.flush_derived()
        if chance.random() < 0.1:
            store.retain_once()
        if chance.random() < 0.1:
            with MessageStore.open(root, config, clock, disk.crash(number)) as found:
                known = {queue: [one for one in sent[queue] if one.end <= found.written_to] for queue in sent}
                check(found, {queue: results for queue, results in known.items() if results})
    assert store.min_physical_offset > 0
    store.close()


def test_a_queue_file_that_cannot_be_removed_is_tried_again(tmp_path: Path, clock: Clock, disk: FakedDisk) -> None:
    with MessageStore.open(tmp_path, CONFIG, clock, disk) as store:
        sent = fill(store)
        expire(tmp_path, clock, 5)
        disk.fails_to_remove = "Orders"
        with pytest.raises(StoreError, match="cannot be removed"):
            store.retain_once()
        disk.fails_to_remove = ""
        deleted = store.retain_once()
        assert not deleted.segments
        assert deleted.queue_file_count
        check(store, sent)


def test_a_segment_that_cannot_be_removed_stays_whole(tmp_path: Path, clock: Clock, disk: FakedDisk) -> None:
    with MessageStore.open(tmp_path, CONFIG, clock, disk) as store:
        sent = fill(store)
        expire(tmp_path, clock, 5)
        disk.fails_to_remove = "commitlog"
        with pytest.raises(StoreError, match="cannot be removed"):
            store.retain_once()
        assert store.min_physical_offset == 0
        check(store, sent)
        disk.fails_to_remove = ""
        assert len(store.retain_once().segments) == 5


def test_units_of_records_that_are_gone_are_passed_over(tmp_path: Path, clock: Clock, disk: FakedDisk) -> None:
    with MessageStore.open(tmp_path, CONFIG, clock, disk) as store:
        fill(store)
        store._log.segments.drop_before(3 * 4096)  # as a reader finds it between the log's step and the queues'
        answer = store.get(*RARE, ReadRequest(0, 8))
        assert (answer.status, answer.next_offset) == (GetStatus.MESSAGE_WAS_REMOVING, 5)


def test_view_outlives_its_segment(tmp_path: Path, clock: Clock, disk: FakedDisk) -> None:
    with MessageStore.open(tmp_path, CONFIG, clock, disk) as store:
        sent = fill(store)
        expire(tmp_path, clock, 1)
        view = store._log.segments.file(0).view()
        copy = bytes(view)
        assert len(store.retain_once().segments) == 1
        assert bytes(view) == copy
        check(store, sent)
        assert store._log.segments._in_use
        view.release()
        expire(tmp_path, clock, 1)
        store.retain_once()
        assert not store._log.segments._in_use


def test_only_what_is_derived_and_on_the_disk_may_go(tmp_path: Path, clock: Clock, disk: FakedDisk) -> None:
    with MessageStore.open(tmp_path, CONFIG, clock, disk) as store:
        for _ in range(100):
            store.append(make_message("T", b"x" * 200))
        expire(tmp_path, clock, 99)
        assert not store.retain_once()
        store.dispatch_once(max_bytes=3 * 4096)
        assert not store.retain_once()
        store.flush_derived()
        assert len(store.retain_once().segments) == 3
        store.dispatch_once()
        store.flush_derived()
        store.retain_once()
        assert store.min_physical_offset == store._log.segments.base_of(store.written_to)
        assert store.append(make_message("T", b"x")).queue_offset == 100


@pytest.mark.parametrize("is_crash", [False, True])
def test_a_log_is_never_left_with_an_empty_segment_alone(clock: Clock, is_crash: bool) -> None:
    root, disk = Path("/store"), CrashDisk()
    store = MessageStore.open(root, CONFIG, clock, disk)
    sent = fill(store, 60)
    last = store._log.segments.base_of(store.written_to)
    store._log._roll(last, store.written_to - last)  # as an append does that then finds the disk full
    store.dispatch_once()
    store.flush_derived()
    assert store.dispatched_to == store.written_to == last + 4096
    while store.retain_once():
        pass
    assert store.min_physical_offset == last
    if not is_crash:
        store.close()
    with MessageStore.open(root, CONFIG, clock, disk.crash(1)) as found:
        assert found.min_physical_offset == last
        check(found, sent)


def test_a_step_has_a_limit(tmp_path: Path, clock: Clock, disk: FakedDisk) -> None:
    config = StoreConfig(GEOMETRY, retention=replace(ANY_HOUR, files_per_step=2))
    with MessageStore.open(tmp_path, config, clock, disk) as store:
        sent = fill(store)
        expire(tmp_path, clock, 5)
        assert [len(store.retain_once().segments) for _ in range(4)] == [2, 2, 1, 0]
        check(store, sent)


def test_a_step_with_nothing_to_do_asks_the_disk_twice(tmp_path: Path, clock: Clock, disk: FakedDisk) -> None:
    with MessageStore.open(tmp_path, CONFIG, clock, disk) as store:
        assert not store.retain_once()
        fill(store)
        expire(tmp_path, clock, 0)
        store.retain_once()
        disk.asked.clear()
        assert not store.retain_once()
        assert disk.asked == ["usage", "modified"]
    with pytest.raises(StoreClosed):
        store.retain_once()


def test_a_disk_that_fills_up_loses_its_oldest_and_then_takes_nothing(
    tmp_path: Path, clock: Clock, disk: FakedDisk
) -> None:
    with MessageStore.open(tmp_path, CONFIG, clock, disk) as store:
        sent = fill(store)
        expire(tmp_path, clock, 0)
        disk.percent = 85.25
        assert [doomed.rule for doomed in store.retain_once().segments] == [Rule.FORCED] * 3
        check(store, sent)
        disk.percent = 91
        store.retain_once()
        refused = store.append(make_message("T", b"x"))
        assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE
        assert "91.0 % full" in refused.reason
        written_to = store.written_to
        disk.asked.clear()
        assert {store.append(make_message("T", b"x")).is_stored for _ in range(100)} == {False}
        assert disk.asked == [], "100 times 7 ms: the second is not over"
        disk.percent = 90
        results = [store.append(make_message("T", b"x")) for _ in range(50)]
        assert disk.asked == ["usage"]
        assert not results[0].is_stored
        assert results[-1].is_stored
        assert next(result for result in results if result.is_stored).physical_offset >= written_to


def test_disk_usage_that_cannot_be_read_is_reported(tmp_path: Path, clock: Clock, disk: FakedDisk) -> None:
    with MessageStore.open(tmp_path, CONFIG, clock, disk) as store:
        disk.percent = 95
        store.retain_once()
        disk.usage = broken  # type: ignore[method-assign]
        clock.now_ms += 1000
        refused = store.append(make_message("T", b"x"))
        assert "checking the free space" in refused.reason
        clock.now_ms += 1000
        (problem,) = store.retain_once().problems
        assert "checking the free space" in problem
        assert not store.append(make_message("T", b"x")).is_stored
        del disk.usage
        disk.percent = 50
        clock.now_ms += 1000
        assert store.append(make_message("T", b"x")).is_stored


def broken(path: Path) -> DiskUsage:
    raise OSError(5, "Input/output error")


def test_a_clock_that_jumps_back_does_not_delay_the_recheck(tmp_path: Path, clock: Clock, disk: FakedDisk) -> None:
    with MessageStore.open(tmp_path, CONFIG, clock, disk) as store:
        disk.percent = 95
        store.retain_once()
        disk.percent = 50
        clock.now_ms -= HOUR_MS
        assert store.append(make_message("T", b"x")).is_stored


@pytest.mark.parametrize("is_crash", [False, True])
def test_a_golden_store_without_its_first_segments(
    golden_497: GoldenStore, golden_copy, tmp_path: Path, clock: Clock, disk: FakedDisk, is_crash: bool
) -> None:
    golden = golden_copy(golden_497)
    clock.now_ms = 1_794_740_000_000
    geometry = StoreGeometry(65536, 1000, index_layout=IndexLayout(200, 400))
    config = StoreConfig(geometry, DeriveRules(COMPAT_4_9), retention=ANY_HOUR)
    root = golden.store
    store = MessageStore.open(root, config, clock, disk)
    before = found_by_key(store, golden)
    expire(root, clock, 3)
    deleted = store.retain_once()
    assert len(deleted.segments) == 3
    assert deleted.queue_file_count
    assert deleted.index_file_count
    check_golden(store, golden)
    after = {key: [place for place in places if place >= 3 * 65536] for key, places in before.items()}
    assert found_by_key(store, golden) == after
    assert after != before
    if is_crash:
        shutil.copytree(root, tmp_path / "found")
        root = tmp_path / "found"
    store.close()
    with MessageStore.open(root, config, clock, disk) as store:
        assert store.min_physical_offset == 3 * 65536
        check_golden(store, golden)
        assert found_by_key(store, golden) == after
        assert not store.retain_once().segments


def check_golden(store: MessageStore, golden: GoldenStore) -> None:
    start = store.min_physical_offset
    rows = [row for row in golden.manifest["messages"] if row["commitLogOffset"] >= start]
    for found in golden.manifest["afterOpen"]["queues"]:
        place = found["topic"], found["queueId"]
        alive = {row["queueOffset"]: row for row in rows if (row["topic"], row["queueId"]) == place}
        queue = store.queue(*place)
        if queue is None:
            assert not alive
            continue
        first = min(alive, default=found["maxOffset"])
        assert (queue.min_offset, queue.max_offset) == (first, found["maxOffset"]), place
        assert len(read_all(store, *place, first)) == len(alive)
        for row in golden.manifest["messages"]:
            if (row["topic"], row["queueId"]) == place:
                assert first <= store.offset_by_time(*place, row["storeTimestamp"]) <= found["maxOffset"], place


def found_by_key(store: MessageStore, golden: GoldenStore) -> dict[tuple[str, str], list[int]]:
    found = {}
    for query in golden.manifest["queries"]:
        result = store.query(KeyQuery(query["topic"], query["key"], limit=1000))
        assert result.complete
        found[query["topic"], query["key"]] = [message.physical_offset for message in result.messages]
    return found


def test_what_has_expired_goes_when_it_is_asked_for(tmp_path: Path, clock: Clock, disk: FakedDisk) -> None:
    never = replace(CONFIG, retention=RetentionPolicy(delete_hours=()))
    with MessageStore.open(tmp_path, never, clock, disk) as store:
        sent = fill(store)
        expire(tmp_path, clock, 2)
        assert not store.retain_once()
        store.delete_expired_now()
        deleted = store.retain_once()
        assert [doomed.rule for doomed in deleted.segments] == [Rule.EXPIRED_ASKED] * 2
        assert "was asked for" in deleted.segments[0].reason
        check(store, sent)
        expire(tmp_path, clock, 1)
        assert [bool(store.retain_once()) for _ in range(19)] == [True] + [False] * 18
        expire(tmp_path, clock, 1)
        assert not store.retain_once(), "asked for long ago"


def test_queues_whose_messages_have_all_expired_can_be_cleaned(tmp_path: Path, clock: Clock, disk: FakedDisk) -> None:
    with MessageStore.open(tmp_path, CONFIG, clock, disk) as store:
        for topic in ("Gone", names.SCHEDULE_TOPIC):
            store.append(make_message(topic, b"x"))
        fill(store)
        assert store.clean_expired_queues() == []
        expire(tmp_path, clock, 2)
        store.retain_once()
        store.append(make_message("Late", b"x"))
        assert store.clean_expired_queues() == [], "what is not dispatched yet may belong to any queue"
        store.dispatch_once()
        assert ("Gone", 0) in store.clean_expired_queues()
        assert store.queue("Gone", 0) is None
        assert store.queue(names.SCHEDULE_TOPIC, 0) is not None
        assert not list((tmp_path / "consumequeue" / "Gone").glob("*/*"))
        assert store.append(make_message("Gone", b"y")).queue_offset == 0
    with MessageStore.open(tmp_path, CONFIG, clock, disk) as store:
        assert store.get("Gone", 0, ReadRequest(0, 1)).status is GetStatus.FOUND
        assert not store.damage


def test_nothing_is_deleted_while_queues_are_flushed(tmp_path: Path, clock: Clock, disk: FakedDisk) -> None:
    with MessageStore.open(tmp_path, CONFIG, clock, disk) as store:
        fill(store)
        expire(tmp_path, clock, 2)
        seen: list[Deleted] = []
        sync = store._queues.sync
        store._queues.sync = lambda: (seen.append(store.retain_once()), sync())[1]  # type: ignore[method-assign]
        store.flush_derived()
        store._queues.sync = sync  # type: ignore[method-assign]
        assert not seen[0]
        assert "being flushed" in seen[0].problems[0]
        assert len(store.retain_once().segments) == 2


def test_a_disk_of_queues_or_index_counts_too(tmp_path: Path, clock: Clock) -> None:
    class ThreeDisks(FakedDisk):
        percents: ClassVar = {"commitlog": 20.0, "consumequeue": 20.0, "index": 20.0}

        def file_system(self, path: Path) -> int:
            return list(self.percents).index(path.name) if path.name in self.percents else 99

        def usage(self, path: Path) -> DiskUsage:
            return DiskUsage(1000, round(1000 - 10 * self.percents.get(path.name, 20.0)))

    disk = ThreeDisks()
    with MessageStore.open(tmp_path, CONFIG, clock, disk) as store:
        sent = fill(store)
        expire(tmp_path, clock, 0)
        assert not store.retain_once()
        disk.percents["consumequeue"] = 88.0
        (doomed,) = store.retain_once().segments  # one a step: what that frees over there is not known
        assert doomed.rule is Rule.FORCED
        assert "the disk of the queues is 88.0 % full" in doomed.reason
        check(store, sent)
        disk.percents |= {"consumequeue": 20.0, "index": 95.0}
        store.retain_once()
        assert "the disk of the index is 95.0 % full" in store.append(make_message("T", b"x")).reason
        disk.percents["index"] = 20.0
        clock.now_ms += 1000
        assert store.append(make_message("T", b"x")).is_stored
