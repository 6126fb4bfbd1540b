"""Conversions and dumps of stores from strangers: no link is followed, nothing outside is written, nothing is huge."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from orbitlog.doctor.convert import store_convert
from orbitlog.doctor.convert.store_convert import convert_store
from orbitlog.errors import DiskFull, StoreLayoutError, StoreLinkError
from orbitlog.formats.derived.queue_entry import ENTRY_BYTES
from orbitlog.settings.store_settings import StoreSettings
from orbitlog.storefiles.inferred_geometry import robust_geometry
from orbitlog.storefiles.rocksdb.databases import open_database
from orbitlog.storefiles.rocksdb.queue_export import export_queues
from orbitlog.storefiles.store_files import find_store_files
from orbitlog.storefiles.store_inference import infer_geometry
from orbitlog.testing.golden import GoldenStore
from tests.support.cli_run import Run
from tests.support.cli_run import run as run
from tests.support.private_directory import SECRET, unharmed
from tests.support.private_directory import victim as victim
from tests.support.rocksdb_archives import ONE_PER_TABLE, unpack_rocksdb_store
from tests.support.store_kinds import fingerprint, make_dledger_store, put
from tests.support.work_counters import peak_bytes_of

NOTHING = StoreSettings()
TERABYTE = 1 << 40
PEAK_MAX = 1024 * 1024 * 1024
"""A rebuild fills index files in memory, which have 400 MB."""


@pytest.fixture
def dledger(golden_497_dledger: GoldenStore, golden_copy: Callable[[GoldenStore], GoldenStore]) -> Path:
    return golden_copy(golden_497_dledger).store


class Killed(BaseException):
    pass


def interrupt(root: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Begin a conversion that is killed after the log; return its working directory."""

    def die(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(store_convert, "convert_tables", die)
        with pytest.raises(Killed):
            convert_store(root, out, NOTHING)
    return out.with_name(out.name + ".converting")


# The working directory beside the new store


@pytest.mark.parametrize("name", ["", "orbitlog.convert", "commitlog", "config", "orbitlog.convert/progress.json"])
def test_conversion_follows_no_link_of_its_working_directory(
    dledger: Path, tmp_path: Path, victim: Path, name: str
) -> None:
    """An archive may contain a store and, beside it, a link with the name of the working directory."""
    link = tmp_path / "out.converting" / name
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(victim / "secret" if name.endswith(".json") else victim)
    with pytest.raises(StoreLinkError, match=r"out\.converting"):
        convert_store(dledger, tmp_path / "out", NOTHING)
    assert unharmed(victim) and not (tmp_path / "out").exists()


DEEP = 100_000
FOREIGN = (b"{}", b"not JSON", b"[" * DEEP, b'{"a":' * 900 + b"1" + b"}" * 900, b'{"log": [], "mark": "0"}', b"\xff")


@pytest.mark.parametrize("content", FOREIGN, ids=range(len(FOREIGN)))
def test_working_directory_of_a_stranger_is_not_continued(dledger: Path, tmp_path: Path, content: bytes) -> None:
    put(tmp_path / "out.converting" / "commitlog" / "00000000000000000000", b"chosen by the stranger")
    put(tmp_path / "out.converting.json", content)
    before = fingerprint(tmp_path / "out.converting")
    with pytest.raises(StoreLayoutError, match="not begun by this user"):
        convert_store(dledger, tmp_path / "out", NOTHING)
    assert fingerprint(tmp_path / "out.converting") == before


def test_signed_working_directory_is_not_continued_with_another_store(
    dledger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt(dledger, tmp_path / "out", monkeypatch)
    dledger.rename(tmp_path / "other")
    with pytest.raises(StoreLayoutError, match="or of another one"):
        convert_store(tmp_path / "other", tmp_path / "out", NOTHING)


def test_working_directory_whose_origin_was_changed_is_not_continued(
    dledger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = interrupt(dledger, tmp_path / "out", monkeypatch)
    origin = work.with_name("out.converting.json")
    changed = json.loads(origin.read_text())
    changed["store"] = "/another/store"
    origin.write_text(json.dumps(changed))
    with pytest.raises(StoreLayoutError, match="not begun by this user"):
        convert_store(dledger, tmp_path / "out", NOTHING)


def test_copied_log_of_an_earlier_state_is_not_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a store with tables in RocksDB the segments are copied: one that has grown since would keep its old part."""
    root = unpack_rocksdb_store(ONE_PER_TABLE, tmp_path)
    interrupt(root, tmp_path / "out", monkeypatch)
    (segment,) = find_store_files(root).segments
    os.utime(segment.path, ns=(1, 1))
    with pytest.raises(StoreLayoutError, match="as it was earlier"):
        convert_store(root, tmp_path / "out", NOTHING)


def test_run_that_was_killed_before_it_signed_is_begun_once_more(tmp_path: Path) -> None:
    root = tmp_path / "store"
    make_dledger_store(root)
    (tmp_path / "out.converting").mkdir()
    (tmp_path / "out.converting.json.orbitlog-new").write_text("{")
    assert convert_store(root, tmp_path / "out", NOTHING).records == 60
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "store"]


@pytest.mark.parametrize("name", ["out.converting.json", "out.converting.json.orbitlog-new"])
def test_link_in_place_of_the_origin_is_not_written_through(
    dledger: Path, tmp_path: Path, victim: Path, name: str
) -> None:
    (tmp_path / name).symlink_to(victim / "secret")
    assert convert_store(dledger, tmp_path / "out", NOTHING).records == 405
    assert unharmed(victim)


# Sparse files


SPARSE = (
    "timerwheel",
    "timerlog/00000000000000000000",
    "consumequeue/SCHEDULE_TOPIC_XXXX/0/00000000000000000000",
    "config/delayOffset.json",
    "dledger-n0/checkpoint",
    "checkpoint",
    "lock",
)


@pytest.mark.parametrize("name", SPARSE)
def test_sparse_file_of_a_terabyte_is_converted_without_its_hole_or_refused(
    dledger: Path, tmp_path: Path, name: str
) -> None:
    path = dledger / name
    path.parent.mkdir(exist_ok=True)
    path.touch()
    os.truncate(path, TERABYTE)
    out = tmp_path / "out"

    def convert() -> None:
        try:
            convert_store(dledger, out, NOTHING)
        except StoreLayoutError as error:
            assert name.rpartition("/")[2] in str(error)

    assert peak_bytes_of(convert) < PEAK_MAX
    assert sum(path.stat().st_blocks * 512 for path in tmp_path.rglob("out*/**/*") if path.is_file()) < PEAK_MAX


def test_table_that_is_too_large_is_refused_and_not_cut(dledger: Path, tmp_path: Path) -> None:
    os.truncate(dledger / "config" / "consumerFilter.json", TERABYTE)
    with pytest.raises(StoreLayoutError, match=r"consumerFilter\.json has 1099511627776 bytes"):
        convert_store(dledger, tmp_path / "out", NOTHING)


def test_sizes_that_no_broker_can_be_set_to_are_not_inferred(dledger: Path) -> None:
    files = find_store_files(dledger)
    for queue in files.queues.values():
        for file in queue:
            os.truncate(file.path, TERABYTE - TERABYTE % ENTRY_BYTES)
    for number in range(1, 9):
        put(dledger / "dledger-n0" / "data" / f"{number * TERABYTE:020d}", b"")
        os.truncate(dledger / "dledger-n0" / "data" / f"{number * TERABYTE:020d}", TERABYTE)
    for infer in (infer_geometry, robust_geometry):
        geometry = infer(find_store_files(dledger), NOTHING)
        assert geometry.queue_file_bytes < 1 << 31 and geometry.segment_bytes < 1 << 31


@pytest.mark.parametrize("name", ["MANIFEST-000005", "000004.log", "CURRENT", "OPTIONS-000007"])
def test_sparse_file_of_a_database_is_refused_before_it_is_copied(tmp_path: Path, name: str) -> None:
    root = unpack_rocksdb_store(ONE_PER_TABLE, tmp_path)
    (root / "consumequeue" / name).touch()
    os.truncate(root / "consumequeue" / name, TERABYTE)

    def convert() -> None:
        with pytest.raises(StoreLayoutError, match=r"store not (read|converted)|CURRENT"):
            convert_store(root, tmp_path / "out", NOTHING)

    assert peak_bytes_of(convert) < PEAK_MAX


@pytest.mark.parametrize("name", ["000010.sst", "MANIFEST-000005", "000099.log", "000099.sst"])
def test_pipe_in_a_database_is_not_opened(tmp_path: Path, name: str) -> None:
    root = unpack_rocksdb_store(ONE_PER_TABLE, tmp_path)
    path = root / "consumequeue" / name
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    try:
        convert_store(root, tmp_path / "out", NOTHING)
    except StoreLayoutError as error:
        assert "consumequeue" in str(error)


def test_database_does_not_choose_how_its_values_are_read(tmp_path: Path) -> None:
    """The binding pickles Python objects unless it is told otherwise, and has a file beside the tables for that."""
    root = unpack_rocksdb_store(ONE_PER_TABLE, tmp_path)
    with open_database(root / "consumequeue") as database:
        expected = list(database.items())
    put(root / "consumequeue" / "rocksdict-config.json", b'{"raw_mode":false,"prefix_extractors":{}}')
    with open_database(root / "consumequeue") as database:
        assert list(database.items()) == expected


def test_queues_of_a_database_leave_room_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first unit of a queue may be far in its file: fillers come before it, for each of very many queues."""
    root = unpack_rocksdb_store(ONE_PER_TABLE, tmp_path)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage._replace(free=2 * 24 * ENTRY_BYTES - 1))
    with pytest.raises(DiskFull, match="consumequeue"):
        export_queues(root / "consumequeue", tmp_path / "exported", 6_000_000)
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage._replace(free=2 * 24 * ENTRY_BYTES))
    export_queues(root / "consumequeue", tmp_path / "other", 6_000_000)


# Dumps


KINDS = ("commitlog", "consumequeue", "index", "checkpoint", "config", "timerwheel", "timerlog")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("entry", ["link", "pipe", "sparse"])
def test_dump_reads_nothing_from_outside_and_ends(dledger: Path, victim: Path, run: Run, kind: str, entry: str) -> None:
    """Every file of the store is another kind of entry: each kind of file is dumped without it, or refused."""
    paths = [path for path in sorted(dledger.rglob("*")) if path.is_file()]
    for path in (*paths, dledger / "timerwheel", dledger / "config" / "timercheck"):
        if entry == "sparse":
            path.touch()
            os.truncate(path, TERABYTE)
            continue
        path.unlink(missing_ok=True)
        if entry == "link":
            path.symlink_to(victim / "secret")
        else:
            os.mkfifo(path)
    limit = ("--limit", "20") if kind not in ("checkpoint", "config") else ()
    done: list[object] = []
    assert peak_bytes_of(lambda: done.append(run("dump", kind, dledger, *limit))) < PEAK_MAX
    assert SECRET.decode().strip() not in str(done)


@pytest.mark.parametrize("kind", ["timerwheel", "timerlog", "checkpoint"])
def test_dump_ends_without_reading_the_hole_of_a_sparse_file(dledger: Path, kind: str) -> None:
    """Only this file is sparse: nothing else ends the command."""
    path = dledger / kind if kind != "timerlog" else dledger / kind / f"{0:020d}"
    path.parent.mkdir(exist_ok=True)
    path.touch()
    os.truncate(path, TERABYTE)
    program = "from orbitlog.cli.main import main; main()"
    words = [sys.executable, "-c", program, "dump", kind, str(dledger)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in done.stderr and done.returncode in (0, 1)
