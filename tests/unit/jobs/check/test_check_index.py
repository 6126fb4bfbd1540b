"""Index files in the state in which a killed broker leaves them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from orbitlog.doctor.examination import examine
from orbitlog.formats.derived.index_layout import decode_header, decode_index_entry
from orbitlog.store.derived.index_files import IndexFiles
from orbitlog.storefiles.disk import RealDisk
from orbitlog.storefiles.findings import FindingKind
from tests.support.store_kinds import CONFIG, STORED_MS, make_store, put


@pytest.mark.parametrize("is_killed", [True, False])
def test_only_index_file_of_zeros_is_sound_after_a_kill(is_killed: bool, tmp_path: Path) -> None:
    """A broker was killed just after it created the file: nothing records the number of its slots and entries."""
    make_store(tmp_path)
    for path in (tmp_path / "index").iterdir():
        path.unlink()
    put(tmp_path / "index" / "20261118032646856", bytes(2240))
    if is_killed:
        put(tmp_path / "abort", b"")
    kinds = {one.finding.kind for one in examine(tmp_path).problems}
    assert (FindingKind.INDEX in kinds) is not is_killed


def indexed_offsets(root: Path) -> dict[int, list[int]]:
    """Return the key hashes of each message that the index holds."""
    keys: dict[int, list[int]] = {}
    for file in sorted((root / "index").iterdir()):
        data = file.read_bytes()
        for number in range(1, decode_header(data).index_count):
            entry = decode_index_entry(data, CONFIG.geometry.index_layout.entry_position(number))
            keys.setdefault(entry.physical_offset, []).append(entry.key_hash)
    return keys


def index_again(root: Path, repeats: dict[int, int], *, drop_key: bool = False) -> None:
    """Rebuild the index of a store, with these messages as often as given; without the last key if asked."""
    keys = indexed_offsets(root)
    shutil.rmtree(root / "index")
    files = IndexFiles(RealDisk(), root, CONFIG.geometry.index_layout)
    files.load()
    offsets = sorted(keys)
    for number, offset in enumerate(offsets):
        times = repeats.get(number - len(offsets), repeats.get(number, 1))
        hashes = keys[offset] * times
        files.put(hashes[:-1] if drop_key and times > 1 else hashes, offset, STORED_MS)
    files.settle()
    files.sync()
    files.close()


@pytest.mark.parametrize("repeats", [{}, {-1: 2}, {-1: 3}, {7: 2}, {7: 2, -1: 2}], ids=str)
def test_message_that_a_killed_java_broker_indexed_twice_is_sound(repeats: dict[int, int], tmp_path: Path) -> None:
    make_store(tmp_path)
    index_again(tmp_path, repeats)
    assert [str(one) for one in examine(tmp_path).problems if one.finding.kind is FindingKind.INDEX] == []


@pytest.mark.parametrize("repeats", [{-1: 2}, {7: 2}], ids=str)
def test_part_of_a_message_that_is_indexed_twice_is_found(repeats: dict[int, int], tmp_path: Path) -> None:
    make_store(tmp_path, keys=2)
    index_again(tmp_path, repeats, drop_key=True)
    assert FindingKind.INDEX in {one.finding.kind for one in examine(tmp_path).problems}


@pytest.mark.parametrize("is_killed", [True, False])
@pytest.mark.parametrize("missing", [["consumequeue", "index"], ["index"]])
def test_store_of_a_broker_killed_before_its_first_flush_is_sound(
    missing: list[str], is_killed: bool, tmp_path: Path
) -> None:
    make_store(tmp_path)
    for name in missing:
        shutil.rmtree(tmp_path / name)
    put(tmp_path / "checkpoint", bytes(4096))
    if is_killed:
        put(tmp_path / "abort", b"")
    found = {one.finding.kind for one in examine(tmp_path).problems}
    assert (found & {FindingKind.QUEUE_FILE, FindingKind.INDEX} == set()) is is_killed


@pytest.mark.parametrize("is_whole", [True, False])
def test_repeated_message_of_a_file_that_begins_before_the_log(is_whole: bool, tmp_path: Path) -> None:
    make_store(tmp_path, keys=2)
    first, second, *_ = sorted((tmp_path / "commitlog").iterdir())
    repeated = next(
        number for number, offset in enumerate(sorted(indexed_offsets(tmp_path))) if offset >= int(second.name)
    )
    index_again(tmp_path, {repeated: 2}, drop_key=not is_whole)
    first.unlink()
    kinds = {one.finding.kind for one in examine(tmp_path).problems}
    assert (FindingKind.INDEX in kinds) is not is_whole
