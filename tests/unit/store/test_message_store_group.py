"""The store of a group member: readers end at the confirm offset, cuts are durable, recovery stays behind the group."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from orbitlog.errors import ReplicaMismatch, StoreLayoutError
from orbitlog.formats.derived.store_state import EPOCHS_FILE
from orbitlog.formats.records.message import make_message
from orbitlog.store.appending.put_result import PutStatus
from orbitlog.store.message_store import MessageStore
from orbitlog.storefiles.store_config import StoreConfig
from tests.support.workloads import Workload

Open = Callable[..., MessageStore]


@pytest.fixture
def open_member(tmp_path: Path) -> Open:
    workload = Workload(1, sync_flush=False)
    geometry = replace(workload.config.geometry, segment_bytes=4096)
    config = replace(workload.config, geometry=geometry, is_group_member=True, is_replica=True)

    def open_it(name: str = "member", **changes: bool) -> MessageStore:
        (tmp_path / name / EPOCHS_FILE).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name / EPOCHS_FILE).touch()
        return MessageStore.open(tmp_path / name, replace(config, **changes), workload.clock)

    return open_it


@pytest.fixture
def source(tmp_path: Path) -> MessageStore:
    """A log of another master, over three segments."""
    workload = Workload(1, sync_flush=False)
    geometry = replace(workload.config.geometry, segment_bytes=4096)
    store = MessageStore.open(tmp_path / "source", replace(workload.config, geometry=geometry), workload.clock)
    for number in range(40):
        store.append(make_message("Orders", b"%d" % number * 30))
    return store


def copy(source: MessageStore, member: MessageStore, end: int) -> None:
    while member.received_to < end:
        member.append_replicated(member.received_to, source.read_log(member.received_to, end - member.received_to))


def dispatch(store: MessageStore) -> None:
    while store.dispatched_to < store.confirmed_to:
        store.dispatch_once()


def record_ends(source: MessageStore) -> list[int]:
    dispatch(source)
    queue = source.queue("Orders", 0)
    assert queue is not None
    entries = [queue.entry(number) for number in range(queue.max_offset)]
    return [entry.physical_offset + entry.size_bytes for entry in entries if entry is not None]


def test_member_dispatches_only_confirmed_messages(open_member: Open, source: MessageStore) -> None:
    ends = record_ends(source)
    with open_member() as member:
        copy(source, member, source.written_to)
        dispatch(member)
        assert member.confirmed_to == member.dispatched_to == 0
        member.confirm(ends[4])
        dispatch(member)
        queue = member.queue("Orders", 0)
        assert queue is not None
        assert (member.dispatched_to, queue.max_offset) == (ends[4], 5)


def test_recovery_of_a_killed_member_ends_at_the_confirm_offset(open_member: Open, source: MessageStore) -> None:
    ends = record_ends(source)
    member = open_member()
    copy(source, member, source.written_to)
    member.confirm(ends[7])
    member._opened.release()  # as a kill: nothing is flushed or dispatched
    with open_member() as reopened:
        assert reopened.written_to == source.written_to
        assert reopened.dispatched_to == reopened.confirmed_to == ends[7]


def test_cut_is_durable_and_the_log_continues_with_other_bytes(open_member: Open, source: MessageStore) -> None:
    ends = record_ends(source)
    member = open_member()
    copy(source, member, source.written_to)
    member.confirm(ends[2])
    dispatch(member)
    member.cut_log(ends[5])
    assert (member.written_to, member.received_to) == (ends[5], ends[5])
    member._opened.release()
    with open_member() as reopened:
        assert reopened.written_to == ends[5]
        copy(source, reopened, source.written_to)
        reopened.confirm(source.written_to)
        dispatch(reopened)
        queue = reopened.queue("Orders", 0)
        assert queue is not None
        assert queue.max_offset == 40


def test_cut_of_an_incomplete_record_leaves_no_byte_of_it(open_member: Open, source: MessageStore) -> None:
    ends = record_ends(source)
    with open_member() as member:
        copy(source, member, ends[3] + 50)
        assert (member.written_to, member.received_to) == (ends[3], ends[3] + 50)
        member.cut_log(member.written_to)
        assert member.received_to == ends[3]
        assert not any(member._log.segments.file(0).read(ends[3], 200))


def test_cut_of_confirmed_messages_is_refused(open_member: Open, source: MessageStore) -> None:
    ends = record_ends(source)
    with open_member() as member:
        copy(source, member, ends[9])
        member.confirm(ends[9])
        dispatch(member)
        with pytest.raises(ReplicaMismatch, match="were confirmed to readers"):
            member.cut_log(ends[8])
        assert member.written_to == ends[9]


def test_promoted_member_continues_queue_offsets(open_member: Open, source: MessageStore) -> None:
    with open_member() as member:
        copy(source, member, source.written_to)
        member.confirm(source.written_to)
    with open_member(is_replica=False) as master:
        assert master.dispatched_to == master.written_to
        put = master.append(make_message("Orders", b"next"))
        assert (put.status, put.queue_offset) == (PutStatus.PUT_OK, 40)


def test_fenced_master_stores_nothing(open_member: Open) -> None:
    with open_member(is_replica=False) as master:
        master.availability.fence("another master was elected")
        put = master.append(make_message("Orders", b"late"))
        assert put.status is PutStatus.SERVICE_NOT_AVAILABLE
        assert master.append_run([]) == []
        master.availability.fence("")
        assert master.append(make_message("Orders", b"in time")).status is PutStatus.PUT_OK


def test_store_of_a_member_is_not_opened_outside_of_its_group(open_member: Open) -> None:
    open_member().close()
    with pytest.raises(StoreLayoutError, match="set replicaCoordinator"):
        open_member(is_replica=False, is_group_member=False)


def test_first_store_of_a_group_is_dispatched_completely(tmp_path: Path) -> None:
    config: StoreConfig = replace(Workload(1, sync_flush=False).config)
    with MessageStore.open(tmp_path, config, lambda: 1_800_000_000_000) as store:
        store.append(make_message("Orders", b"before the group"))
    joined = replace(config, is_group_member=True, is_replica=True)
    with MessageStore.open(tmp_path, joined, lambda: 1_800_000_000_000) as member:
        assert member.dispatched_to == member.confirmed_to == member.written_to > 0
