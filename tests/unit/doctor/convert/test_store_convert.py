"""Conversion of DLedger and RocksDB stores into ordinary ones."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orbitlog.doctor.convert import log_conversion, store_convert
from orbitlog.doctor.convert.derived_conversion import keep_expired_queues
from orbitlog.doctor.convert.store_convert import convert_store
from orbitlog.doctor.examination import examine
from orbitlog.errors import StoreLayoutError, StoreLocked
from orbitlog.formats import names
from orbitlog.formats import store_tree as tree
from orbitlog.formats.derived.queue_entry import ENTRY_BYTES, QueueEntry, encode_entry, scan_entries
from orbitlog.formats.records.dledger import DLedgerEntry, encode_entry_header, encode_file_end
from orbitlog.formats.records.message import Message, encode_message
from orbitlog.formats.records.message_scan import BLANK, MAGIC_BLANK, scan_messages
from orbitlog.formats.records.relocation import relocate_record
from orbitlog.settings.store_settings import StoreSettings
from orbitlog.storefiles.disk import RealDisk
from orbitlog.storefiles.store_files import find_store_files
from orbitlog.testing.golden import GoldenStore
from tests.support.rocksdb_archives import unpack_rocksdb_store
from tests.support.store_kinds import make_dledger_store

Copy = Callable[[GoldenStore], GoldenStore]
NOTHING = StoreSettings()


def messages(root: Path) -> list[Message]:
    found = []
    for segment in find_store_files(root).segments:
        view = segment.path.read_bytes()
        for one in scan_messages(view, base_physical_offset=segment.base):
            if isinstance(one, Message):
                found.append(one)
    return found


def fingerprint(root: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(root)): (
            path.read_bytes() if path.stat().st_size < 1 << 20 else b"",
            path.stat().st_mtime_ns,
        )
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def facts(one: dict[str, Any]) -> tuple[object, ...]:
    return one["topic"], one["queueId"], one["queueOffset"], one["storeTimestamp"], one["storeSize"]


def test_dledger_store_becomes_a_sound_ordinary_store(golden_497_dledger: GoldenStore, tmp_path: Path) -> None:
    before = fingerprint(golden_497_dledger.store)
    out = tmp_path / "out"
    result = convert_store(golden_497_dledger.store, out, NOTHING)
    assert fingerprint(golden_497_dledger.store) == before
    assert (result.records, result.uncommitted, result.queues) == (405, 0, 37)
    assert not out.with_name("out.converting").exists()
    found = messages(out)
    expected = golden_497_dledger.manifest["messages"]
    assert [(one.topic, one.queue_id, one.queue_offset, one.store_timestamp_ms, one.size_bytes) for one in found] == [
        facts(one) for one in expected
    ]
    examination = examine(out)
    assert examination.is_sound, examination.findings
    config = golden_497_dledger.store / "config"
    assert {path.name: path.read_bytes() for path in config.iterdir()} == {
        path.name: path.read_bytes() for path in (out / "config").iterdir()
    }


def test_references_between_records_lead_to_the_same_messages(golden_497_dledger: GoldenStore, tmp_path: Path) -> None:
    out = tmp_path / "out"
    convert_store(golden_497_dledger.store, out, NOTHING)
    expected = golden_497_dledger.manifest["messages"]
    old = {one["commitLogOffset"]: (one["topic"], one["queueId"], one["queueOffset"]) for one in expected}
    new = {one.physical_offset: (one.topic, one.queue_id, one.queue_offset) for one in messages(out)}
    references = 0
    for record, one in zip(messages(out), expected, strict=True):
        if one["preparedTransactionOffset"]:
            assert new[record.prepared_transaction_offset] == old[one["preparedTransactionOffset"]]
            references += 1
        for name in ("ORIGIN_MESSAGE_ID", "DLQ_ORIGIN_MESSAGE_ID"):
            if name in one["properties"] and int(one["properties"][name][-16:], 16) in old:
                assert new[int(record.properties[name][-16:], 16)] == old[int(one["properties"][name][-16:], 16)]
                references += 1
    assert references > 5


def test_dry_run_reports_and_writes_nothing(golden_497_dledger: GoldenStore, tmp_path: Path) -> None:
    result = convert_store(golden_497_dledger.store, tmp_path / "out", NOTHING, dry_run=True)
    assert (result.records, result.is_dry_run, result.kinds) == (405, True, ("DLedger log",))
    assert list(tmp_path.iterdir()) == []


class Killed(BaseException):
    """Stands for a kill: nothing catches it."""


@pytest.mark.parametrize("kill_at", range(10))
def test_interrupted_conversion_is_continued_to_the_same_store(
    golden_497_dledger: GoldenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kill_at: int
) -> None:
    whole = tmp_path / "whole"
    convert_store(golden_497_dledger.store, whole, NOTHING)
    out, steps = tmp_path / "out", iter(range(1_000_000))

    def dying(step: Callable[..., Any]) -> Callable[..., Any]:
        def call(*words: Any, **more: Any) -> Any:
            if next(steps) == kill_at:
                raise Killed
            return step(*words, **more)

        return call

    with monkeypatch.context() as patch:
        patch.setattr(log_conversion.LogConversion, "_save", dying(log_conversion.LogConversion._save))
        for name in ("convert_tables", "make_derived", "keep_expired_queues", "_publish"):
            patch.setattr(store_convert, name, dying(getattr(store_convert, name)))
        with pytest.raises(Killed):
            convert_store(golden_497_dledger.store, out, NOTHING)
    assert not out.exists()
    convert_store(golden_497_dledger.store, out, NOTHING)
    assert {name: data for name, (data, _) in fingerprint(out).items()} == {
        name: data for name, (data, _) in fingerprint(whole).items()
    }


def test_source_that_changed_since_the_interruption_is_refused(
    golden_497_dledger: GoldenStore, golden_copy: Copy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = golden_copy(golden_497_dledger).store

    def die(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(store_convert, "convert_tables", die)
        with pytest.raises(Killed):
            convert_store(root, tmp_path / "out", NOTHING)
    for name in ("checkpoint", "checkpoint.bak"):
        (root / "dledger-n0" / name).write_text("committedIndex=300\nendIndex=404\n")
    with pytest.raises(StoreLayoutError, match="as it was earlier"):
        convert_store(root, tmp_path / "out", NOTHING)


def grown_by_dledger(golden: GoldenStore, root: Path, count: int) -> int:
    """Add DLedger entries to an ordinary store, as a broker switched to DLedger mode does; return their number."""
    segments = find_store_files(root).segments
    size, last = segments[0].size_bytes, segments[-1]
    end = int(golden.manifest["endOfLastRecord"])
    with last.path.open("r+b") as file:
        file.seek(end - last.base)
        file.write(BLANK.struct.pack(last.base + size - end, MAGIC_BLANK))
    base = last.base + size
    data, units, position, index = bytearray(), bytearray(), 0, 0
    before = messages(root)
    for message in before[:count]:
        store_ms = before[-1].store_timestamp_ms + 1 + index
        more = {"topic": "Grown", "queue_id": 0, "queue_offset": index, "properties_raw": b""}
        record = encode_message(message._replace(**more, store_timestamp_ms=store_ms))
        if position % size + 48 + len(record) + 8 > size:
            data += encode_file_end(size - position % size)
            position = len(data)
        record = relocate_record(record, base + position + 48, lambda _: None)
        data += encode_entry_header(DLedgerEntry(index, 1, base + position, len(record))) + record
        units += encode_entry(QueueEntry(base + position + 48, len(record), 0))
        position, index = len(data), index + 1
    directory = root / "dledger-n0" / "data"
    directory.mkdir(parents=True)
    for start in range(0, len(data), size):
        (directory / tree.offset_file_name(base + start)).write_bytes(
            bytes(data[start : start + size]).ljust(size, b"\0")
        )
    queue = root / tree.queue_directory("Grown", 0)
    queue.mkdir(parents=True)
    for start in range(0, len(units), 1000):  # this store's queue files have 50 units
        (queue / tree.offset_file_name(start)).write_bytes(bytes(units[start : start + 1000]).ljust(1000, b"\0"))
    (root / "dledger-n0" / "checkpoint").write_text(f"committedIndex={index - 1}\nendIndex={index - 1}\n")
    return index


def test_store_switched_to_dledger_keeps_the_old_part_first(
    golden_497: GoldenStore, golden_copy: Copy, tmp_path: Path
) -> None:
    root = golden_copy(golden_497).store
    before = messages(root)
    count = grown_by_dledger(golden_497, root, 120)
    out = tmp_path / "out"
    result = convert_store(root, out, NOTHING)
    after = messages(out)
    assert after[: len(before)] == before, "the old part keeps its physical offsets"
    assert [one.queue_offset for one in after[len(before) :]] == list(range(count))
    assert result.records == len(before) + count
    assert {one.kind for one in examine(out).findings} <= {"topic"}, "topics.json has no entry for the new topic"


def test_queue_whose_messages_expired_keeps_its_offsets(
    golden_497_dledger: GoldenStore, golden_copy: Copy, tmp_path: Path
) -> None:
    root = golden_copy(golden_497_dledger).store
    for path in sorted((root / "dledger-n0" / "data").iterdir())[:5]:
        path.unlink()
    start = find_store_files(root).dledger_segments["dledger-n0"][0].base
    out = tmp_path / "out"
    result = convert_store(root, out, NOTHING)
    assert result.expired_queues > 0
    old, new = find_store_files(root).queues, find_store_files(out).queues
    assert find_store_files(out).segments[0].base == start
    assert new.keys() == {queue for queue, files in old.items() if files}
    for queue in new.keys():
        assert last_unit(new[queue]) == last_unit(old[queue]), queue


def test_deleted_topic_does_not_come_back(golden_497_dledger: GoldenStore, golden_copy: Copy, tmp_path: Path) -> None:
    root = golden_copy(golden_497_dledger).store
    topic = next(topic for topic, _ in find_store_files(root).queues if topic.startswith("Inv"))
    shutil.rmtree(root / "consumequeue" / topic)
    result = convert_store(root, tmp_path / "out", NOTHING)
    assert topic not in {name for name, _ in find_store_files(tmp_path / "out").queues}
    assert topic in result.notes[0]


def test_lost_queues_of_a_source_without_any_are_derived(
    golden_497_dledger: GoldenStore, golden_copy: Copy, tmp_path: Path
) -> None:
    root = golden_copy(golden_497_dledger).store
    shutil.rmtree(root / "consumequeue")
    assert convert_store(root, tmp_path / "out", NOTHING).queues == 37


def last_unit(files: Any) -> int:
    last = files[-1]
    units = last.path.read_bytes()
    return int(last.base) + max(at for at in range(0, len(units), ENTRY_BYTES) if any(units[at : at + ENTRY_BYTES]))


def test_ordinary_store_and_bad_places_are_refused(
    golden_497: GoldenStore, golden_497_dledger: GoldenStore, tmp_path: Path
) -> None:
    with pytest.raises(StoreLayoutError, match="is an ordinary store already"):
        convert_store(golden_497.store, tmp_path / "out", NOTHING)
    (tmp_path / "there").mkdir()
    with pytest.raises(StoreLayoutError, match="exists already"):
        convert_store(golden_497_dledger.store, tmp_path / "there", NOTHING)
    with pytest.raises(StoreLayoutError, match="does not exist; create it first"):
        convert_store(golden_497_dledger.store, tmp_path / "none" / "out", NOTHING)
    with pytest.raises(StoreLayoutError, match="inside the store"):
        convert_store(golden_497_dledger.store, golden_497_dledger.store / "out", NOTHING)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["there"]


def test_store_in_use_is_refused(golden_497_dledger: GoldenStore, golden_copy: Copy, tmp_path: Path) -> None:
    root = golden_copy(golden_497_dledger).store
    program = (
        "import sys; from pathlib import Path; from orbitlog.storefiles.disk import RealDisk;"
        "lock = RealDisk().lock_file(Path(sys.argv[1]) / 'lock', b'lock'); print('held', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen([sys.executable, "-c", program, str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        with pytest.raises(StoreLocked, match="stop it first"):
            convert_store(root, tmp_path / "out", NOTHING)
    finally:
        holder.communicate()


@pytest.fixture(params=["one_per_table", "joint"])
def rocksdb_store(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Stores of Apache RocketMQ 5.5.0 with its tables in RocksDB, one with its queues there too."""
    pytest.importorskip("rocksdict")
    return unpack_rocksdb_store(request.param, tmp_path)


def test_rocksdb_store_becomes_a_sound_ordinary_store_with_its_tables(rocksdb_store: Path, tmp_path: Path) -> None:
    before = fingerprint(rocksdb_store)
    out = tmp_path / "out"
    result = convert_store(rocksdb_store, out, NOTHING)
    assert fingerprint(rocksdb_store) == before
    assert result.records == len(messages(rocksdb_store)) == 24
    assert messages(out) == messages(rocksdb_store)
    assert examine(out).is_sound
    topics = json.loads((out / "config" / "topics.json").read_text())["topicConfigTable"]
    (topic,) = {one.topic for one in messages(out)}
    assert topics[topic]["readQueueNums"] == 4
    offsets = (out / "config" / "consumerOffset.json").read_text()
    assert offsets.partition("pullOffsetTable")[0].count(":3") == 4


def test_missing_binding_is_named(rocksdb_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    with pytest.raises(StoreLayoutError, match=r"orbitlog\[rocksdb\]"):
        convert_store(rocksdb_store, tmp_path / "out", NOTHING)
    assert list(tmp_path.glob("out*")) == []  # nothing was copied before


def test_damaged_database_is_refused(rocksdb_store: Path, tmp_path: Path) -> None:
    for path in (rocksdb_store / "config").rglob("MANIFEST-*"):
        path.write_bytes(b"damaged")
    with pytest.raises(StoreLayoutError, match="cannot be opened as a RocksDB database"):
        convert_store(rocksdb_store, tmp_path / "out", NOTHING)


def test_queue_in_rocksdb_whose_messages_expired_keeps_its_offsets(tmp_path: Path) -> None:
    rocksdict = pytest.importorskip("rocksdict")
    root = tmp_path / "source"
    (root / "commitlog").mkdir(parents=True)
    options = rocksdict.Options(raw_mode=True)
    database = rocksdict.Rdict(str(root / "consumequeue"), options)
    offsets = database.create_column_family("offset", rocksdict.Options(raw_mode=True))
    for topic, physical_offset, queue_offset in ((b"Old", 700, 123), (b"Live", 9000, 5)):
        key = struct.pack(">i", len(topic)) + b"\1" + topic + b"\1max\1" + struct.pack(">i", 2)
        offsets[key] = struct.pack(">qq", physical_offset, queue_offset)
    offsets.close()
    database.close()
    out, file_bytes = tmp_path / "out", 50 * ENTRY_BYTES
    (out / "state").mkdir(parents=True)
    kept = keep_expired_queues(
        RealDisk(),
        find_store_files(root),
        out,
        out / "state",
        derived=set(),
        log_start=4096,
        queue_file_bytes=file_bytes,
    )
    assert kept == 1
    (path,) = (path for path in out.rglob("*") if path.is_file())
    assert path == out / tree.queue_directory("Old", 2) / tree.offset_file_name(100 * ENTRY_BYTES)
    raw = path.read_bytes()
    assert len(raw) == file_bytes
    entries = list(scan_entries(raw))
    assert len(entries) == 24 and all(entry.is_pre_blank for entry in entries[:-1])
    assert entries[-1].physical_offset == 700


def schedule_times(root: Path) -> list[int]:
    files = [
        file
        for (topic, _), queue in sorted(find_store_files(root).queues.items())
        if topic == names.SCHEDULE_TOPIC
        for file in queue
    ]
    return [entry.tags_code for file in files for entry in scan_entries(file.path.read_bytes())]


def test_delayed_messages_keep_their_delivery_times_whatever_the_levels_are_set_to(
    golden_497_dledger: GoldenStore, tmp_path: Path
) -> None:
    times = schedule_times(golden_497_dledger.store)
    assert times
    for number, levels in enumerate(("1s 7s", "3h 4h 5h")):
        out = tmp_path / str(number)
        convert_store(golden_497_dledger.store, out, StoreSettings({"messageDelayLevel": levels}))
        assert schedule_times(out) == times


@pytest.mark.parametrize(("is_killed", "expected"), [(False, 40), (True, 60)])
def test_entries_that_a_killed_broker_had_dispatched_are_committed(
    is_killed: bool, expected: int, tmp_path: Path
) -> None:
    root = tmp_path / "store"
    make_dledger_store(root, 60)
    (root / "dledger-n0" / "checkpoint").write_text("committedIndex=39\nendIndex=59\n")
    if is_killed:
        (root / "abort").touch()
    result = convert_store(root, tmp_path / "out", NOTHING)
    assert (result.records, result.uncommitted) == (expected, 60 - expected)
    assert len(messages(tmp_path / "out")) == expected


def test_unknown_directory_is_left_out_with_a_note_unless_it_may_be_a_log(tmp_path: Path) -> None:
    root = tmp_path / "store"
    make_dledger_store(root)
    (root / "snapshots").mkdir()
    (root / "snapshots/monday.tar").write_bytes(b"data")
    for dry_run in (True, False):
        done = convert_store(root, tmp_path / "out", NOTHING, dry_run=dry_run)
        assert done.kinds == ("DLedger log",)
        assert done.notes == (f"{root}/snapshots is not a directory of a RocketMQ store and is left out",)
    (root / "snapshots/00000000000000000000").write_bytes(b"data")
    with pytest.raises(StoreLayoutError, match="snapshots is not a directory"):
        convert_store(root, tmp_path / "other", NOTHING)
    assert not (tmp_path / "other").exists()
