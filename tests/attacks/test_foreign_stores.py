"""Stores from strangers: no command follows a link out of a store, waits for a pipe, or obeys a foreign journal."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from orbitlog.doctor.examination import examine
from orbitlog.doctor.repair.derived_rebuild import RebuildWish, rebuild_in_place
from orbitlog.doctor.repair.repair_journal import RepairJournal, finish_interrupted, undo_last
from orbitlog.doctor.repair.store_repair import apply_repair, plan_repair
from orbitlog.errors import OrbitlogError, StoreLayoutError, StoreLinkError
from orbitlog.formats import store_tree as tree
from orbitlog.formats.derived import index_layout
from orbitlog.formats.derived.index_layout import INDEX_HEADER, infer_layout
from orbitlog.jobs.local_runner import run_here
from orbitlog.jobs.log_splits import SPLIT_BYTES_DEFAULT
from orbitlog.jobs.rebuild.rebuild_publish import STAGING
from orbitlog.jobs.rebuild.store_rebuild import rebuild_with
from orbitlog.pipeline.sources.broker_stores import BrokerStore
from orbitlog.pipeline.sources.log_partitions import plan_whole_log
from orbitlog.pipeline.sources.source_options import Subscription
from orbitlog.pipeline.sources.store_snapshot import StoreSnapshot
from orbitlog.settings.store_settings import StoreSettings
from orbitlog.store.message_store import MessageStore
from orbitlog.storefiles.confined.confined_disk import ConfinedDisk
from orbitlog.storefiles.disk import RealDisk
from orbitlog.storefiles.found_config import find_config
from orbitlog.storefiles.rocksdb.rocksdb_tables import _merged
from orbitlog.storefiles.store_config import StoreConfig
from orbitlog.storefiles.store_files import find_store_files
from orbitlog.storefiles.store_inference import infer_index_layout
from orbitlog.storefiles.store_paths import StorePaths
from orbitlog.testing.golden import GoldenStore
from tests.support.private_directory import SECRET, unharmed
from tests.support.private_directory import victim as victim
from tests.support.repaired_stores import fingerprint
from tests.support.work_counters import peak_bytes_of, steps_of


@pytest.fixture
def store(golden_497: GoldenStore, golden_copy: Callable[[GoldenStore], GoldenStore]) -> Path:
    return golden_copy(golden_497).store


def orbitlog(*words: str, seconds: float = 60) -> subprocess.CompletedProcess[str]:
    """Run a command as a user would; it must end by itself."""
    program = "from orbitlog.cli.main import main; main()"
    return subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, text=True, timeout=seconds, check=False
    )


# Sizes


@pytest.mark.parametrize("words", [("doctor", "check"), ("doctor", "explain"), ("dump", "config")], ids=" ".join)
def test_sparse_table_of_a_terabyte_is_refused_by_its_length(store: Path, words: tuple[str, ...]) -> None:
    os.truncate(store / "config" / "topics.json", 1 << 40)
    done = orbitlog(*words, str(store))
    assert done.returncode == 1 and "topics.json has 1099511627776 bytes" in done.stderr
    assert "Traceback" not in done.stderr


def test_broker_refuses_a_sparse_table_by_its_length(store: Path) -> None:
    os.truncate(store / "config" / "topics.json", 1 << 40)
    with pytest.raises(StoreLayoutError, match=r"topics\.json has 1099511627776 bytes"):
        MessageStore.open(store, StoreConfig(), lambda: 0)


def test_layout_of_a_sparse_index_file_is_not_inferred(store: Path) -> None:
    (path, *_) = (store / "index").iterdir()
    os.truncate(path, 1 << 40)
    peak = peak_bytes_of(lambda: infer_index_layout(find_store_files(store).index_files, StoreSettings()))
    assert peak < 64 * 1024 * 1024


def test_candidates_for_the_layout_of_an_index_file_are_limited() -> None:
    header = INDEX_HEADER.struct.pack(1, 2, 1, 1, 1, 2)
    data = header + (1).to_bytes(8) * 200_000
    assert steps_of(lambda: infer_layout(data)) < 40 * index_layout._CANDIDATES_MAX


# Journals


def forged_journal(root: Path, victim: Path) -> None:
    """The journal of a stranger: overwrites a file of the user and puts a new one next to it, through a link."""
    (root / "notes").symlink_to(victim)
    place = root / tree.DOCTOR / "000001"
    (place / "new").mkdir(parents=True)
    (place / "kept").mkdir()
    (place / "new" / "0").write_bytes(b"chosen by the stranger")
    (place / "new" / "keys").write_bytes(b"ssh-ed25519 stranger")
    (place / "kept" / "0").write_bytes(SECRET)
    steps = [
        {"do": "write", "path": "notes/secret", "why": "x", "new": "new/0", "old": "kept/0"},
        {"do": "move", "path": f"{tree.DOCTOR}/000001/new/keys", "why": "x", "to": "notes/authorized_keys"},
    ]
    (place / "journal.json").write_text(json.dumps({"run": "000001", "title": "repair of store", "steps": steps}))


def test_foreign_journal_is_shown_in_the_plan_and_refused(store: Path, victim: Path) -> None:
    forged_journal(store, victim)
    planned = "\n".join(plan_repair(store).actions)
    assert "notes/secret" in planned and "--resume" in planned
    with pytest.raises(StoreLayoutError, match="--resume"):
        apply_repair(store)
    with pytest.raises(StoreLayoutError, match="--resume"):
        rebuild_in_place(store, RebuildWish(), StoreSettings())
    with pytest.raises(StoreLayoutError, match="--resume"):
        undo_last(store, force=True)
    assert unharmed(victim)


def test_foreign_journal_that_is_resumed_stays_inside_the_store(store: Path, victim: Path) -> None:
    forged_journal(store, victim)
    with pytest.raises(StoreLinkError, match="notes"):
        apply_repair(store, resume=True)
    assert unharmed(victim)


def test_foreign_journal_that_is_undone_stays_inside_the_store(store: Path, victim: Path) -> None:
    forged_journal(store, victim)
    place = store / tree.DOCTOR / "000001"
    (place / "applied").write_text("{}")
    (place / "progress").write_text("2")
    with pytest.raises(StoreLinkError):
        undo_last(store, force=True, resume=True)
    assert unharmed(victim)


def test_own_journal_is_finished_without_being_asked(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = RepairJournal.begin(store, "a test")
    journal.put_file(store / "config" / "new.json", b"{}", "new")

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("orbitlog.doctor.repair.repair_journal._apply", killed)
        with pytest.raises(KeyboardInterrupt):
            journal.carry_out()
    assert finish_interrupted(store) == ["a test"]
    assert (store / "config" / "new.json").read_bytes() == b"{}"


def test_journal_that_was_changed_after_it_was_written_is_foreign(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = RepairJournal.begin(store, "a test")
    journal.put_file(store / "config" / "new.json", b"{}", "new")
    monkeypatch.setattr("orbitlog.doctor.repair.repair_journal._apply", lambda *_: None)
    journal.carry_out()
    monkeypatch.undo()
    path = journal.place / "journal.json"
    content = json.loads(path.read_text())
    content["steps"][0]["to"] = "config/topics.json.bak"
    path.write_text(json.dumps(content))
    with pytest.raises(StoreLayoutError, match="--resume"):
        finish_interrupted(store)


@pytest.mark.parametrize(
    "step",
    [
        {"do": "run", "path": "a", "why": "x"},
        {"do": "move", "path": "a", "why": "x"},
        {"do": "move", "path": "/etc/passwd", "why": "x", "to": "a"},
        {"do": "move", "path": "a", "why": "x", "to": "../a"},
        {"do": "write", "path": "a", "why": "x", "new": 7, "old": "kept/0"},
        {"do": "write", "path": "a", "why": "x", "new": "new/0", "old": "kept/0", "position": -1},
        {"do": "resize", "path": "a", "why": "x", "size_bytes": 1 << 80},
        {"do": "resize", "path": ["a"], "why": "x"},
        {"do": "resize", "path": "a", "why": "x", "extra": 1},
    ],
)
def test_journal_with_an_impossible_step_is_unreadable(store: Path, step: dict[str, object]) -> None:
    place = store / tree.DOCTOR / "000001"
    place.mkdir(parents=True)
    (place / "journal.json").write_text(json.dumps({"run": "1", "title": "t", "steps": [step]}))
    with pytest.raises(StoreLayoutError, match="not a valid repair journal"):
        finish_interrupted(store, resume=True)


def test_repair_refuses_a_file_with_a_second_name(store: Path, victim: Path) -> None:
    segment = find_store_files(store).segments[0].path
    os.link(segment, victim.parent / "other name")
    journal = RepairJournal.begin(store, "a test")
    journal.write(segment, 0, b"x", "x")
    with pytest.raises(StoreLinkError, match="2 names"):
        journal.carry_out()


@pytest.mark.parametrize("name", ["../../home/new", "/tmp/orbitlog-attack", "config", "notes"])
def test_staged_rebuild_of_a_stranger_is_not_published(store: Path, victim: Path, name: str) -> None:
    """A commit file in the store names what is moved where; only names of derived files are ever used."""
    staging = store / STAGING
    (staging / "new").mkdir(parents=True)
    (staging / "new" / "keys").write_bytes(b"x")
    segments = [
        [s.path.name, s.path.stat().st_size, s.path.stat().st_mtime_ns] for s in find_store_files(store).segments
    ]
    (staging / "plan.json").write_bytes(orjson.dumps({"segments": segments}))
    (staging / "commit.json").write_bytes(orjson.dumps({"names": [name], "report": {}}))
    before = fingerprint(store / "config")
    made = rebuild_with(run_here, [store], out=None, settings=StoreSettings(), split_bytes=SPLIT_BYTES_DEFAULT)
    assert made[0].is_published
    assert fingerprint(store / "config") == before
    assert unharmed(victim)
    assert not Path("/tmp/orbitlog-attack").exists()


# Links, pipes and other entries in the place of files


def replaced_by_link(path: Path, target: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        path.rename(path.with_name(path.name + ".moved"))
    else:
        path.unlink(missing_ok=True)
    path.parent.mkdir(exist_ok=True)
    path.symlink_to(target)


LINKED = (
    "commitlog",
    "consumequeue",
    "index",
    "config",
    "checkpoint",
    "abort",
    "lock",
    "logs",
    "timerlog",
    "config/topics.json",
    "config/topics.json.bak",
    "config/consumerOffset.json",
    "config/kvConfig.json",
    "config/topics.json.orbitlog-new",
    "orbitlog.state",
    "orbitlog.confirmed",
    "logs/up.log",
    "notes",
)


def first_paths(store: Path) -> list[str]:
    """A segment, an index file, a topic, a queue and a queue file of the store, by their names below it."""
    files = find_store_files(store)
    (topic, queue_id), queue = next((key, found) for key, found in files.queues.items() if found)
    found = (files.segments[0].path, files.index_files[0].path, queue[0].path)
    names = [path.relative_to(store).as_posix() for path in found]
    return [*names, f"consumequeue/{topic}", f"consumequeue/{topic}/{queue_id}"]


@pytest.mark.parametrize("is_dangling", [False, True], ids=["existing", "dangling"])
@pytest.mark.parametrize("name", [*LINKED, 0, 1, 2, 3, 4])
def test_broker_refuses_a_link_in_its_store(store: Path, victim: Path, name: str | int, is_dangling: bool) -> None:
    name = first_paths(store)[name] if isinstance(name, int) else name
    target = victim / "missing" if is_dangling else victim if "." not in name else victim / "secret"
    replaced_by_link(store / name, target)
    with pytest.raises(StoreLinkError, match="is a link to"):
        MessageStore.open(store, StoreConfig(), lambda: 0)
    assert unharmed(victim)


@pytest.mark.parametrize("target", ["/proc/self/fd/0", "/proc/self/cwd", "/dev/zero", "commitlog"])
def test_broker_refuses_links_to_anything(store: Path, target: str) -> None:
    replaced_by_link(store / "config" / "topics.json", Path(target))
    with pytest.raises(StoreLinkError):
        MessageStore.open(store, StoreConfig(), lambda: 0)


def test_broker_serves_a_store_whose_named_directories_are_links(tmp_path: Path) -> None:
    """The operator names the root and storePathCommitLog; both may be links to other disks."""
    for name in ("disk", "data"):
        (tmp_path / name).mkdir()
    (tmp_path / "root").symlink_to(tmp_path / "data")
    (tmp_path / "data" / "commitlog").symlink_to(tmp_path / "disk")
    root = tmp_path / "root"
    paths = StorePaths.of(root, StoreSettings({"storePathCommitLog": str(root / "commitlog")}))
    MessageStore.open(root, StoreConfig(paths=paths), lambda: 0).close()
    with pytest.raises(StoreLinkError, match="storePathCommitLog="):
        MessageStore.open(root, StoreConfig(), lambda: 0)


def odd_entries(path: Path) -> list[Callable[[], object]]:
    """Ways to put something else in the place of a file."""

    def listen() -> None:
        with socket.socket(socket.AF_UNIX) as bound:
            os.chdir(path.parent)
            bound.bind(path.name)

    return [lambda: os.mkfifo(path), listen, path.mkdir]


@pytest.mark.parametrize("kind", range(3), ids=["pipe", "socket", "directory"])
@pytest.mark.parametrize(
    "name",
    ["lock", "checkpoint", "abort", "config/topics.json", "config/topics.json.bak", "config/timercheck", 0, 1, 2],
)
def test_commands_do_not_wait_for_a_pipe(
    store: Path, name: str | int, kind: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening a pipe without a writer would wait for ever; a broker and the doctor refuse or report it."""
    monkeypatch.chdir(store)
    path = store / (first_paths(store)[name] if isinstance(name, int) else name)
    path.unlink(missing_ok=True)
    odd_entries(path)[kind]()
    examine(store)
    for work in (
        lambda: MessageStore.open(store, find_config(store, StoreSettings(), RealDisk()), lambda: 0).close(),
        lambda: plan_repair(store),
        lambda: apply_repair(store),
    ):
        try:
            work()
        except OrbitlogError as error:
            assert str(error)


READERS = (
    ("doctor", "check"),
    ("doctor", "explain"),
    ("doctor", "repair"),
    ("dump", "config"),
    ("dump", "checkpoint"),
    ("dump", "commitlog"),
    ("dump", "consumequeue"),
    ("dump", "index"),
)


@pytest.mark.slow
@pytest.mark.parametrize("words", READERS, ids=" ".join)
def test_reading_commands_print_nothing_from_outside(store: Path, victim: Path, words: tuple[str, ...]) -> None:
    for name in ("config", "checkpoint", "commitlog", "index", "consumequeue", "lock", "orbitlog.confirmed"):
        replaced_by_link(
            store / name, victim if "." not in name and name not in ("checkpoint", "lock") else victim / "secret"
        )
    done = orbitlog(*words, str(store))
    assert "private to the user" not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert unharmed(victim)


def test_config_directory_that_is_a_link_is_not_read(store: Path, victim: Path) -> None:
    topics = (store / "config" / "topics.json").read_bytes()
    (victim / "topics.json").write_bytes(topics.replace(b"TBW102", b"LEAKED"))
    replaced_by_link(store / "config", victim)
    assert "LEAKED" not in str(examine(store).diagnoses)
    assert "LEAKED" not in orbitlog("dump", "config", str(store)).stdout


def test_table_beside_a_database_is_not_read_through_a_link(tmp_path: Path) -> None:
    """Java merges topics.json into the table of RocksDB if it is newer."""
    newer = json.dumps({"dataVersion": {"counter": 9}, "topicConfigTable": {"LEAKED": {}}})
    stored = {"dataVersion": {"counter": 1}, "topicConfigTable": {"T": {}}}
    (tmp_path / "outside.json").write_text(newer)
    path = tmp_path / "store" / "config" / "topics.json"
    path.parent.mkdir(parents=True)
    path.symlink_to(tmp_path / "outside.json")
    assert "LEAKED" not in str(_merged(path, stored))
    path.unlink()
    os.mkfifo(path)
    assert _merged(path, stored) == stored
    path.unlink()
    path.write_text(newer)
    assert "LEAKED" in str(_merged(path, stored)), "a file of the store is read"


# Files that Orbitlog creates


def test_store_files_are_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        MessageStore.open(tmp_path / "store", StoreConfig(), lambda: 0).close()
        ConfinedDisk(tmp_path / "store").make_directory(tmp_path / "store" / "a" / "b")
        RealDisk().replace_file(tmp_path / "store" / "table.json", b"{}")
    finally:
        os.umask(before)
    for path in (tmp_path / "store", *(tmp_path / "store").rglob("*")):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o750 if path.is_dir() else 0o640), f"{path}: {mode:o}"


def test_file_that_is_replaced_keeps_its_permissions(tmp_path: Path) -> None:
    """A table that a Java broker created keeps its file mode."""
    path = tmp_path / "topics.json"
    path.write_bytes(b"old")
    for mode, kept in ((0o644, 0o644), (0o600, 0o600), (0o666, 0o664)):
        path.chmod(mode)
        RealDisk().replace_file(path, b"new")
        assert stat.S_IMODE(path.stat().st_mode) == kept


def test_temporary_file_of_a_table_does_not_follow_a_link(tmp_path: Path, victim: Path) -> None:
    (tmp_path / "topics.json.orbitlog-new").symlink_to(victim / "secret")
    RealDisk().replace_file(tmp_path / "topics.json", b"new")
    assert unharmed(victim) and (tmp_path / "topics.json").read_bytes() == b"new"


@pytest.mark.parametrize("is_new", [True, False])
def test_lock_that_is_a_link_is_refused(tmp_path: Path, victim: Path, is_new: bool) -> None:
    (tmp_path / "lock").symlink_to(victim / ("new" if is_new else "secret"))
    with pytest.raises(StoreLinkError):
        RealDisk().lock_file(tmp_path / "lock", b"lock")
    assert unharmed(victim)


def test_confined_disk_refuses_links_in_every_component(tmp_path: Path, victim: Path) -> None:
    root = tmp_path / "root"
    (root / "real").mkdir(parents=True)
    (root / "real" / "file").write_bytes(b"x")
    (root / "link").symlink_to(victim)
    (root / "real" / "link").symlink_to(victim / "secret")
    disk = ConfinedDisk(root)
    for work in (
        lambda: disk.open_plain(root / "link" / "secret"),
        lambda: disk.open_plain(root / "real" / "link"),
        lambda: disk.create_plain(root / "link" / "new"),
        lambda: disk.make_directory(root / "link" / "new"),
        lambda: disk.make_directory(root / "link"),
        lambda: disk.move(root / "real" / "file", root / "link" / "new"),
        lambda: disk.move(root / "link" / "secret", root / "real" / "stolen"),
        lambda: disk.link_file(root / "real" / "file", root / "link" / "new"),
        lambda: disk.remove_file(root / "link" / "secret"),
        lambda: disk.remove_directory(root / "link" / "sub"),
        lambda: disk.remove_tree(root / "link" / "sub"),
        lambda: disk.read_file(root / "link" / "secret"),
        lambda: disk.sync_directory(root / "link"),
    ):
        with pytest.raises(StoreLinkError):
            work()
    for work in (
        lambda: disk.create_plain(tmp_path / "outside"),
        lambda: disk.create_plain(root / ".." / "outside"),
        lambda: disk.move(root / "real" / "file", victim / "new"),
    ):
        with pytest.raises(StoreLayoutError):
            work()
    disk.remove_tree(root / "link")  # a link is not a directory: it stays
    assert (root / "link").is_symlink() and unharmed(victim)


# Planning of queries: what the driver of Spark reads before it starts a task

PLANNED = ("commitlog", "consumequeue", "config", "checkpoint", "orbitlog.confirmed", 0, 2, "config/topics.json")


def plan_query(root: Path) -> str:
    """Do what a query does on the driver: topics, queues and their bounds, and partitions of the log."""
    with StoreSnapshot(BrokerStore("broker-a", str(root))) as snapshot:
        topics = snapshot.known_topics
        queues = snapshot.queue_keys(Subscription(pattern=".*"))
        bounds = [snapshot.bounds(queue.topic, queue.queue_id) for queue in queues]
        partitions = plan_whole_log(snapshot, SPLIT_BYTES_DEFAULT, fail_on_damage=False)
        times = [snapshot.offset_at(queue.topic, queue.queue_id, 1) for queue in queues]
        return str((sorted(topics), bounds, partitions, times))


@pytest.mark.parametrize("kind", ["link", "pipe", "sparse", "directory"])
@pytest.mark.parametrize("name", PLANNED)
def test_planning_of_a_query_reads_nothing_from_outside_and_ends(
    store: Path, victim: Path, name: str | int, kind: str
) -> None:
    (store / "abort").touch()
    path = store / (first_paths(store)[name] if isinstance(name, int) else name)
    was_directory = path.is_dir()
    if kind == "sparse" and not was_directory:
        path.touch()
        os.truncate(path, 1 << 40)
    else:
        if was_directory:
            path.rename(store.parent / "moved")
        path.unlink(missing_ok=True)
        if kind == "link":
            path.symlink_to(victim if was_directory else victim / "secret")
        elif kind == "pipe":
            os.mkfifo(path)
        else:
            path.mkdir()
    planned: list[str] = []

    def plan() -> None:
        try:
            planned.append(plan_query(store))
        except (OrbitlogError, IsADirectoryError) as error:
            planned.append(str(error))

    assert peak_bytes_of(plan) < 1024**3
    assert "private to the user" not in planned[0] and unharmed(victim)
