"""Time that an Apache broker takes to rebuild queues and index of a store: the baseline of Orbitlog's rebuilds.

The log is copied without derived files, and Apache's broker is started over the copy: it derives all queues and the
index before it serves. The files show when: derivation starts with the first queue file, and ends when the last unit
of every queue and the count of every index file are present. Their values are known in advance, because Orbitlog's
rebuild writes the same bytes. The broker's queues and index are compared with Orbitlog's at the end.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.broker_pairs import HOST, VERSION, start_java
from orbitlog.doctor.repair.derived_rebuild import RebuildWish, rebuild_elsewhere
from orbitlog.formats import store_tree as tree
from orbitlog.formats.derived.index_layout import INDEX_HEADER, decode_header
from orbitlog.formats.derived.queue_entry import ENTRY_BYTES
from orbitlog.settings.store_settings import StoreGeometry, load_settings
from orbitlog.storefiles.store_files import QueueTable, find_queues, find_store_files
from orbitlog.storefiles.store_inference import infer_geometry
from tests.interop.harness.cluster import Ports
from tests.interop.harness.packages import apache_packages

SECONDS_MAX = 600.0
# The rules that this version derives by; a bare log has no signs of a version.
RULES_OF_5X = ("compat=5.5",)
_POLL_SECONDS = 0.005
_DISK = ("-Drocketmq.broker.diskSpaceWarningLevelRatio=0.98", "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.97")


@dataclass(frozen=True)
class ApacheRebuild:
    """Size of the derived data, and its time: derivation alone, and from the start of the process."""

    messages: int
    keys: int
    log_bytes: int
    seconds: float
    seconds_with_start: float


@dataclass(frozen=True)
class _Wanted:
    """How the derived files of the store end."""

    directory: Path
    units: dict[Path, tuple[int, bytes]]
    queues: QueueTable
    keys_indexed: int


def measure_apache_rebuild(
    store: Path, scratch: Path, *, heap: str = "1g", settings: Sequence[str] = (), seconds_max: float = SECONDS_MAX
) -> ApacheRebuild:
    """Have a broker derive the log of a store below `scratch`; raise `NotAvailable` without Java or the packages."""
    apache_packages(VERSION)
    rules = load_settings(None, RULES_OF_5X)
    geometry = infer_geometry(find_store_files(store), rules)
    with tempfile.TemporaryDirectory(prefix="apache-rebuild-", dir=scratch) as temporary:
        directory = Path(temporary)
        ours = rebuild_elsewhere(store, directory / "wanted", RebuildWish(), rules)
        if not ours.is_published:
            raise ValueError(f"{store} is damaged: {ours.findings[0]}")
        wanted = _wanted(directory / "wanted")
        copied = directory / "store"
        shutil.copytree(store / tree.COMMITLOG, copied / tree.COMMITLOG)
        alone, whole = _timed(directory, copied, wanted, _conf(copied, geometry, settings), heap, seconds_max)
        _compare(wanted, copied)
    return ApacheRebuild(ours.messages, ours.keys, ours.log_bytes, alone, whole)


def _wanted(directory: Path) -> _Wanted:
    queues = find_queues(directory / tree.CONSUMEQUEUE)
    units = {}
    for files in queues.values():
        last = files[-1]
        raw = last.path.read_bytes()
        end = -(-len(raw.rstrip(b"\0")) // ENTRY_BYTES) * ENTRY_BYTES
        units[last.path.relative_to(directory)] = (end - ENTRY_BYTES, raw[end - ENTRY_BYTES : end])
    return _Wanted(directory, units, queues, _keys_indexed(directory))


def _keys_indexed(root: Path) -> int:
    """Sum up what the headers of the index files say that they hold."""
    count = 0
    for path in sorted((root / tree.INDEX).iterdir()) if (root / tree.INDEX).exists() else ():
        with path.open("rb") as file:
            raw = file.read(INDEX_HEADER.size_bytes)
        if len(raw) == INDEX_HEADER.size_bytes:
            count += decode_header(raw).key_count
    return count


def _conf(store: Path, geometry: StoreGeometry, settings: Sequence[str]) -> list[str]:
    return [
        f"bindAddress={HOST}", f"brokerIP1={HOST}",
        f"storePathRootDir={store}", f"storePathCommitLog={store / tree.COMMITLOG}",
        f"mappedFileSizeCommitLog={geometry.segment_bytes}", f"mappedFileSizeConsumeQueue={geometry.queue_file_bytes}",
        f"maxHashSlotNum={geometry.index_layout.slot_count}", f"maxIndexNum={geometry.index_layout.entry_count}",
        "diskMaxUsedSpaceRatio=95", *settings,
    ]  # fmt: skip


def _timed(
    directory: Path, store: Path, wanted: _Wanted, conf: Sequence[str], heap: str, seconds_max: float
) -> tuple[float, float]:
    """Start the broker, wait until all is derived, and kill it; no name server is needed for that."""
    ports = Ports.find()
    path = directory / "broker.conf"
    lines = [*conf, f"listenPort={ports.broker}", f"namesrvAddr={HOST}:{ports.name_server}"]
    path.write_text("".join(line + "\n" for line in lines))
    started_s = time.perf_counter()
    process = start_java(
        apache_packages(VERSION),
        directory / "home",
        (f"-Xms{heap}", f"-Xmx{heap}", *_DISK),
        "broker.BrokerStartup",
        path,
    )
    try:
        begun_s = _wait(process, lambda: any((store / tree.CONSUMEQUEUE).glob("*/*/*")), path, seconds_max)
        done_s = _wait(process, lambda: _is_derived(store, wanted), path, seconds_max)
    finally:
        process.kill()
        process.wait()
        if process.stdin is not None:
            process.stdin.close()
    return done_s - begun_s, done_s - started_s


def _wait(process: subprocess.Popen[bytes], is_so: Callable[[], bool], conf: Path, seconds_max: float) -> float:
    deadline = time.monotonic() + seconds_max
    while not is_so():
        if process.poll() is not None or time.monotonic() > deadline:
            said = conf.with_suffix(".log").read_text(errors="replace")[-2000:]
            raise RuntimeError(f"the broker did not derive its log within {seconds_max:.0f} s: {said}")
        time.sleep(_POLL_SECONDS)
    return time.perf_counter()


def _is_derived(store: Path, wanted: _Wanted) -> bool:
    return all(_has(store / path, *unit) for path, unit in wanted.units.items()) and (
        _keys_indexed(store) == wanted.keys_indexed
    )


def _has(path: Path, position: int, unit: bytes) -> bool:
    try:
        with path.open("rb") as file:
            file.seek(position)
            return file.read(len(unit)) == unit
    except FileNotFoundError:
        return False


def _compare(wanted: _Wanted, store: Path) -> None:
    """Both derive the same: a difference would make the figures worthless."""
    for files in wanted.queues.values():
        for file in files:
            path = file.path.relative_to(wanted.directory)
            assert file.path.read_bytes() == (store / path).read_bytes(), path
    ours, theirs = (sorted((root / tree.INDEX).iterdir()) for root in (wanted.directory, store))
    for one, other in zip(ours, theirs, strict=True):  # their names are creation times
        assert one.read_bytes() == other.read_bytes(), other.name
