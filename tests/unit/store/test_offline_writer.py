"""A store written offline is one that every reader accepts."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import pytest

from orbitlog.errors import BadField, LimitExceeded, StoreLayoutError
from orbitlog.formats.compat import COMPAT_4_9, COMPAT_5_5, Compat
from orbitlog.formats.derived.checkpoint import decode_checkpoint
from orbitlog.formats.derived.derive import DeriveRules
from orbitlog.formats.derived.derived_files import DerivedFiles
from orbitlog.formats.derived.index_layout import IndexLayout, decode_header
from orbitlog.formats.records.flags import TransactionType
from orbitlog.formats.records.message import Message, make_message
from orbitlog.formats.tables.topic_config import decode_topics
from orbitlog.settings.store_settings import StoreGeometry, StoreSettings
from orbitlog.store.offline_writer import AppendResult, OfflineStoreWriter
from orbitlog.storefiles.log_walk import LogWalk
from orbitlog.storefiles.queue_walk import QueueWalk
from orbitlog.storefiles.store_files import find_store_files
from orbitlog.storefiles.store_inference import infer_compat, infer_geometry
from orbitlog.testing.crash_disk import CrashDisk
from orbitlog.testing.golden import GoldenStore

GEOMETRY = StoreGeometry(segment_bytes=4096, queue_file_bytes=200, index_layout=IndexLayout(10, 20))
START_MS = 1_700_000_000_000


def message(number: int, *, body_bytes: int = 100, **fields: int) -> Message:
    properties = {"UNIQ_KEY": f"U{number}", "KEYS": f"key{number} common", "TAGS": f"T{number % 3}"}
    fields = {"queue_id": number % 2, "store_timestamp_ms": START_MS + 10 * number, **fields}
    return make_message("Orders", b"x" * body_bytes, properties=properties, **fields)


def write(root: Path, messages: list[Message], compat: Compat = COMPAT_5_5) -> list[AppendResult]:
    with OfflineStoreWriter(root, GEOMETRY, DeriveRules(compat)) as writer:
        return [writer.append(each) for each in messages]


@pytest.fixture(params=[COMPAT_4_9, COMPAT_5_5], ids=lambda compat: compat.name)
def compat(request: pytest.FixtureRequest) -> Compat:
    chosen: Compat = request.param
    return chosen


def test_what_is_written_is_read_back(tmp_path: Path, compat: Compat) -> None:
    results = write(tmp_path, [message(number) for number in range(100)], compat)
    store = find_store_files(tmp_path)
    assert store.foreign == ()
    assert infer_geometry(store, StoreSettings()) == GEOMETRY
    assert infer_compat(store, StoreSettings()) is compat
    walk = LogWalk(store.segments, GEOMETRY.segment_bytes)
    read = list(walk.records())
    assert walk.damage == []
    assert len(store.segments) > 3
    assert [AppendResult(m.physical_offset, m.queue_offset, m.store_timestamp_ms, size) for m, size in read] == results
    assert [m._replace(queue_offset=0, physical_offset=0) for m, _ in read] == [
        message(number) for number in range(100)
    ]


def test_derived_files_are_those_of_the_log(tmp_path: Path, compat: Compat) -> None:
    write(tmp_path, [message(number) for number in range(60)], compat)
    store = find_store_files(tmp_path)
    derived = DerivedFiles(DeriveRules(compat), queue_file_bytes=200, index_layout=GEOMETRY.index_layout)
    derived.add(m for m, _ in LogWalk(store.segments, 4096).records())
    for key, files in store.queues.items():
        assert {file.base: file.path.read_bytes() for file in files} == derived.queues[key]
        assert len(list(QueueWalk(files, 200).units())) == 30
    assert [file.path.read_bytes() for file in store.index_files] == derived.index_files


def test_a_golden_log_written_again_is_the_same(golden_497: GoldenStore, tmp_path: Path) -> None:
    """The real broker's messages, offsets and all, come out as the real broker's bytes."""
    golden = find_store_files(golden_497.store)
    geometry = infer_geometry(golden, StoreSettings())
    with OfflineStoreWriter(tmp_path, geometry, DeriveRules(COMPAT_4_9)) as writer:
        originals = [original for original, _ in LogWalk(golden.segments, geometry.segment_bytes).records()]
        # Members of a batch share both times and their queue; nothing else marks them.
        for _, batch in groupby(
            originals, key=lambda m: (m.topic, m.queue_id, m.born_timestamp_ms, m.store_timestamp_ms)
        ):
            writer.append_batch(list(batch))
    written = find_store_files(tmp_path)
    for ours, theirs in zip(written.segments, golden.segments, strict=True):
        assert ours.path.read_bytes() == theirs.path.read_bytes()
    assert {key: [file.path.read_bytes() for file in files] for key, files in written.queues.items()} == {
        key: [file.path.read_bytes() for file in files] for key, files in golden.queues.items()
    }
    for ours_file, theirs_file in zip(written.index_files, golden.index_files, strict=True):
        assert ours_file.path.read_bytes() == theirs_file.path.read_bytes()
    assert (tmp_path / "checkpoint").read_bytes() == (golden_497.store / "checkpoint").read_bytes()


def test_times_of_files_are_those_of_their_last_message(tmp_path: Path) -> None:
    results = write(tmp_path, [message(number) for number in range(60)])
    store = find_store_files(tmp_path)
    stored = {result.physical_offset: result.store_timestamp_ms for result in results}

    def modified_ms(path: Path) -> int:
        return path.stat().st_mtime_ns // 1_000_000

    for segment in store.segments:
        inside = [ms for offset, ms in stored.items() if segment.base <= offset < segment.base + 4096]
        assert modified_ms(segment.path) == max(inside)
    for files in store.queues.values():
        for file in files:
            last = [
                unit for number, unit in QueueWalk(files, 200).units() if file.base <= number * 20 < file.base + 200
            ]
            assert modified_ms(file.path) == stored[last[-1].physical_offset]
    for index_file in store.index_files:
        assert modified_ms(index_file.path) == decode_header(index_file.path.read_bytes()).end_timestamp_ms


def test_checkpoint_and_topics(tmp_path: Path, compat: Compat) -> None:
    results = write(tmp_path, [message(number) for number in range(60)], compat)
    checkpoint = decode_checkpoint((tmp_path / "checkpoint").read_bytes())
    assert checkpoint.physic_msg_timestamp_ms == checkpoint.logics_msg_timestamp_ms == START_MS + 590
    assert 0 < checkpoint.index_msg_timestamp_ms < START_MS + 590
    assert checkpoint.logics_physical_offset == (results[-1].physical_offset if compat is COMPAT_5_5 else 0)
    topics = decode_topics((tmp_path / "config" / "topics.json").read_text()).topics
    assert (topics["Orders"].read_queue_count, topics["Orders"].write_queue_count) == (2, 2)


def test_store_times_never_fall_and_index_names_are_unique(tmp_path: Path) -> None:
    messages = [message(number, store_timestamp_ms=START_MS - number) for number in range(60)]
    results = write(tmp_path, messages)
    assert {result.store_timestamp_ms for result in results} == {START_MS}
    assert len(find_store_files(tmp_path).index_files) > 3


def test_transactions_without_outcome_get_no_queue_offset(tmp_path: Path) -> None:
    kinds = [TransactionType.NONE, TransactionType.PREPARED, TransactionType.ROLLBACK, TransactionType.COMMIT]
    results = write(tmp_path, [message(0, sys_flag=kind) for kind in kinds])
    assert [result.queue_offset for result in results] == [0, 0, 0, 1]
    ((_, files),) = find_store_files(tmp_path).queues.items()
    assert len(list(QueueWalk(files, 200).units())) == 2


def test_the_largest_record_fits_and_no_larger_one(tmp_path: Path) -> None:
    overhead = message(0, body_bytes=0).size_bytes
    write(tmp_path / "a", [message(0, body_bytes=4096 - 8 - overhead)] * 2)
    assert len(find_store_files(tmp_path / "a").segments) == 2
    with pytest.raises(LimitExceeded):
        write(tmp_path / "b", [message(0, body_bytes=4096 - 7 - overhead)])


def test_a_batch_is_not_torn(tmp_path: Path) -> None:
    with OfflineStoreWriter(tmp_path, GEOMETRY, DeriveRules()) as writer:
        writer.append(message(0, body_bytes=3000))
        results = writer.append_batch([message(number, body_bytes=400) for number in range(3)])
        assert [result.physical_offset // 4096 for result in results] == [1, 1, 1]
        with pytest.raises(LimitExceeded):
            writer.append_batch([message(number, body_bytes=1000) for number in range(4)])


def test_refused_messages(tmp_path: Path) -> None:
    with pytest.raises(BadField, match="topic"):
        write(tmp_path / "a", [make_message("../escape", b"x")])
    with pytest.raises(BadField, match="V2"):
        write(tmp_path / "b", [make_message("%RETRY%" + "x" * 150, b"x")], COMPAT_4_9)
    assert write(tmp_path / "c", [make_message("%RETRY%" + "x" * 150, b"x")])[0].physical_offset == 0


def test_only_a_new_or_empty_directory(tmp_path: Path) -> None:
    write(tmp_path / "store", [])
    assert find_store_files(tmp_path / "store").is_empty
    for occupied in (tmp_path, tmp_path / "store"):
        with pytest.raises(StoreLayoutError, match="not an empty directory"):
            OfflineStoreWriter(occupied, GEOMETRY, DeriveRules())
    (tmp_path / "file").touch()
    with pytest.raises(StoreLayoutError):
        OfflineStoreWriter(tmp_path / "file", GEOMETRY, DeriveRules())


def test_closing_twice_and_leaving_by_an_error(tmp_path: Path) -> None:
    writer = OfflineStoreWriter(tmp_path / "a", GEOMETRY, DeriveRules())
    writer.append(message(0))
    writer.close()
    writer.close()
    with pytest.raises(KeyError), OfflineStoreWriter(tmp_path / "b", GEOMETRY, DeriveRules()) as writer:
        writer.append(message(0))
        raise KeyError
    assert not (tmp_path / "b" / "checkpoint").exists()


def test_closed_store_survives_a_power_cut() -> None:
    disk = CrashDisk()
    with OfflineStoreWriter(Path("new/store"), GEOMETRY, DeriveRules(), disk) as writer:
        for number in range(60):
            writer.append(message(number))
    files = disk.files()
    assert len([path for path in files if path.parent.name == "commitlog"]) > 2
    for seed in range(20):
        assert disk.crash(seed).files() == files
