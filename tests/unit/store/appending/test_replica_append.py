"""The log of a slave: a copy of its master's, whatever pieces the bytes arrive in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from orbitlog.errors import ReplicaMismatch
from orbitlog.formats.derived.store_state import REPLICA_FILE
from orbitlog.formats.records.message import encode_message, make_message
from orbitlog.store.appending.put_result import PutStatus
from orbitlog.store.message_store import MessageStore
from orbitlog.storefiles.store_config import StoreConfig
from tests.support.workloads import Workload, random_message

SEGMENT_BYTES = 4096


@pytest.fixture
def master(tmp_path: Path) -> Iterator[MessageStore]:
    """A store with messages of all kinds over several segments."""
    workload = Workload(1, sync_flush=False)
    config = replace(workload.config, geometry=replace(workload.config.geometry, segment_bytes=SEGMENT_BYTES))
    with MessageStore.open(tmp_path / "master", config, workload.clock) as store:
        chance = Random(1)
        for number in range(60):
            store.append(random_message(chance, number))
        yield store


def open_slave(master: MessageStore, root: Path, *, is_replica: bool = True) -> MessageStore:
    return MessageStore.open(root, replica_config(master, is_replica=is_replica), lambda: 1_800_000_000_000)


def replica_config(master: MessageStore, *, is_replica: bool = True) -> StoreConfig:
    return replace(master._config, is_replica=is_replica)


def copy_some(master: MessageStore, slave: MessageStore, stop: int, bytes_max: int = 1 << 20) -> None:
    while slave.received_to < stop:
        data = master.read_log(slave.received_to, min(bytes_max, stop - slave.received_to))
        slave.append_replicated(slave.received_to, data)


def copy_all(master: MessageStore, slave: MessageStore) -> None:
    copy_some(master, slave, master.written_to)
    while slave.dispatched_to < slave.written_to:
        slave.dispatch_once()


def files(root: Path, *directories: str) -> dict[str, bytes]:
    """Contents by path, without files that have no data: the master creates segments ahead."""
    found = {
        str(path.relative_to(root)): path.read_bytes()
        for directory in directories
        for path in sorted((root / directory).rglob("*"))
        if path.is_file()
    }
    return {name: content for name, content in found.items() if content.strip(b"\0")}


@pytest.mark.parametrize("piece_bytes", [1, 7, 100, 1000, 1 << 20])
def test_log_copied_in_pieces_of_any_size_is_equal(master: MessageStore, tmp_path: Path, piece_bytes: int) -> None:
    with open_slave(master, tmp_path / "slave") as slave:
        copy_some(master, slave, master.written_to, piece_bytes)
        copy_all(master, slave)
        assert slave.messages_appended == 60
    master.close()
    for directory in ("commitlog", "consumequeue"):
        assert files(tmp_path / "slave", directory) == files(tmp_path / "master", directory)
    assert len(files(tmp_path / "slave", "commitlog")) >= 5


def test_incomplete_record_is_not_readable_and_is_cut_at_opening(master: MessageStore, tmp_path: Path) -> None:
    with open_slave(master, tmp_path / "slave") as slave:
        copy_some(master, slave, 1000)
        slave.append_replicated(1000, master.read_log(1000, 10))
        whole_to = slave.written_to
        assert slave.received_to == 1010
        assert slave.confirmed_to == whole_to < 1010
        slave.dispatch_once()
        assert slave.dispatched_to == whole_to
    with open_slave(master, tmp_path / "slave") as slave:
        assert slave.received_to == slave.written_to == whole_to
        copy_all(master, slave)
    assert files(tmp_path / "slave", "commitlog") == files(tmp_path / "master", "commitlog")


def test_log_that_ends_with_a_segment_continues_after_reopening(master: MessageStore, tmp_path: Path) -> None:
    with open_slave(master, tmp_path / "slave") as slave:
        copy_some(master, slave, SEGMENT_BYTES)
        assert slave.written_to == SEGMENT_BYTES
        assert not slave.prepare_once()
    with open_slave(master, tmp_path / "slave") as slave:
        copy_all(master, slave)
    assert files(tmp_path / "slave", "commitlog") == files(tmp_path / "master", "commitlog")


def test_empty_log_starts_at_a_later_segment(master: MessageStore, tmp_path: Path) -> None:
    start = 2 * SEGMENT_BYTES
    with open_slave(master, tmp_path / "slave") as slave:
        slave.append_replicated(start, master.read_log(start, 1))
        copy_all(master, slave)
        assert slave.min_physical_offset == start
        assert slave.dispatched_to == slave.written_to == master.written_to
        assert not slave.damage
    with open_slave(master, tmp_path / "slave") as slave:
        assert slave.received_to == master.written_to


@pytest.mark.parametrize(
    ("physical_offset", "data"),
    [
        (999, b"x"),
        (1001, b"x"),
        (0, b"x"),
        (1000, bytes(SEGMENT_BYTES)),  # crosses a segment
        (1000, bytes(600)),  # zeros where a record should be
        (1000, b"\xff" * 600),
    ],
)
def test_bytes_that_do_not_continue_the_log_are_refused(
    master: MessageStore, tmp_path: Path, physical_offset: int, data: bytes
) -> None:
    with open_slave(master, tmp_path / "slave") as slave:
        copy_some(master, slave, 1000)
        slave.append_replicated(1000, master.read_log(1000, 1500))  # to any position, then back to a record's end
    with open_slave(master, tmp_path / "slave") as slave:
        whole_to = slave.written_to
        with pytest.raises(ReplicaMismatch, match="nothing was overwritten"):
            slave.append_replicated(physical_offset - 1000 + whole_to if physical_offset else 0, data)
        assert slave.received_to == slave.written_to == whole_to
        copy_all(master, slave)  # the right bytes are still accepted
    assert files(tmp_path / "slave", "commitlog") == files(tmp_path / "master", "commitlog")


def test_record_of_another_offset_is_refused(master: MessageStore, tmp_path: Path) -> None:
    """As from a master with the same length and another history."""
    with open_slave(master, tmp_path / "slave") as slave:
        with pytest.raises(ReplicaMismatch, match="is a record of offset 0"):
            slave.append_replicated(SEGMENT_BYTES, master.read_log(0, 1000))


def test_empty_log_refuses_to_start_inside_a_segment(master: MessageStore, tmp_path: Path) -> None:
    with open_slave(master, tmp_path / "slave") as slave:
        with pytest.raises(ReplicaMismatch, match="start of a segment"):
            slave.append_replicated(1, b"x")


def test_slave_store_takes_no_messages_of_its_own(master: MessageStore, tmp_path: Path) -> None:
    message = make_message("Orders", b"x")
    with open_slave(master, tmp_path / "slave") as slave:
        result = slave.append(message)
        assert result.status is PutStatus.SERVICE_NOT_AVAILABLE
        assert "store of a slave" in result.reason
        assert slave.append_batch([message, message])[0].status is PutStatus.SERVICE_NOT_AVAILABLE
    with open_slave(master, tmp_path / "slave", is_replica=False) as former:
        assert former.append(message).is_stored


def test_record_with_zeros_survives_when_a_crashed_slave_becomes_master(master: MessageStore, tmp_path: Path) -> None:
    """Orbitlog writes such properties with a CRC, a Java master does not; and it may not exist any more."""
    root = tmp_path / "slave"
    message = make_message("Orders", b"x", properties={"a": "\0" * 20})
    record = encode_message(message._replace(physical_offset=0, store_timestamp_ms=1_700_000_000_000))
    slave = open_slave(master, root)
    slave.append_replicated(0, record)
    slave._opened.release()  # killed
    assert (root / REPLICA_FILE).exists()
    with open_slave(master, root, is_replica=False) as promoted:
        assert promoted.written_to == len(record)
        assert not (root / REPLICA_FILE).exists()
