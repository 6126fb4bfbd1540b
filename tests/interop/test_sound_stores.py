"""Stores as real brokers leave them are sound: `doctor check` and `pipeline check` report nothing to repair.

Each feature of `store_features` is used at brokers of both versions, over a store of its own. A store is looked at as
its broker left it when it was closed, and as `kill -9` would have left it (a snapshot while the process is stopped).
After a kill, and in the few rows of `EXPECTED`, only what the next broker would find as well may be reported.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import nullcontext
from pathlib import Path

import pytest
from click.testing import CliRunner

from orbitlog.cli.main import cli
from orbitlog.doctor.examination import Examination, examine
from orbitlog.doctor.finding_kinds import Severity
from orbitlog.jobs.local_runner import run_here
from tests.interop.harness.broker_bench import BenchClient, BrokerBench, copy_store
from tests.interop.harness.clients import Client
from tests.interop.harness.drivers import Refused
from tests.interop.harness.packages import ApachePackages
from tests.interop.harness.systems import OrbitlogSystem
from tests.interop.store_features import BOTH, FEATURES, SMALL, Feature, nothing, several_files, timers

pytestmark = pytest.mark.interop

CLOSED, KILLED = "closed", "killed"
BATCH = 8
# Kinds that a check rightly reports, by feature and version; nothing else may come with them.
EXPECTED: dict[tuple[str, str], set[str]] = {
    # No file distinguishes this store from one whose queue directory was deleted.
    **{("created-again-empty", version): {"queue file"} for version in BOTH},
    # Messages are in queues that routes hide from clients.
    **{("fewer-queues-later", version): {"queue count"} for version in BOTH},
    # Without its broker.conf a store with messageIndexEnable=false looks like one whose index was deleted.
    **{("no-index", version): {"index"} for version in BOTH},
    # 4.9.7 deletes the queue of half messages together with any topic: the pending ones are in no queue.
    ("pending-and-a-topic-deleted", "4.9.7"): {"queue file"},
}
ROWS = [(feature, version) for version in BOTH for feature in FEATURES if version in feature.versions]


class Stores:
    """Makes the stores of a version, some features at once, when the first of them is asked for."""

    def __init__(self, packages_of: Callable[[str], ApachePackages], directory: Path) -> None:
        self._packages_of = packages_of
        self._directory = directory
        self._benches: dict[str, BrokerBench] = {}
        self._failures: dict[tuple[str, str], Exception] = {}

    def bench(self, version: str) -> BrokerBench:
        if version not in self._benches:
            place = self._directory / f"bench-{version}"
            place.mkdir(parents=True)
            self._benches[version] = BrokerBench(self._packages_of(version), place)
        return self._benches[version]

    def made(self, feature: Feature, version: str) -> Path:
        """Return the directory with the stores `closed` and `killed` of a feature."""
        rows = [one for one, of_version in ROWS if of_version == version]
        place = rows.index(feature) // BATCH * BATCH
        if not self._store(feature, version, CLOSED).exists():
            self._make(rows[place : place + BATCH], version)
        if failure := self._failures.get((feature.name, version)):
            raise failure
        return self._store(feature, version, CLOSED).parent

    def _make(self, features: list[Feature], version: str) -> None:
        bench = self.bench(version)
        for feature in features:
            store = self._store(feature, version, CLOSED)
            try:
                snapshot = store.with_name(KILLED)
                used(bench, feature.name, store, feature.use, settings=feature.settings, snapshot=snapshot)
            except (AssertionError, Refused) as failure:  # the rows of this feature report it, the others go on
                self._failures[feature.name, version] = failure
        bench.close_all()

    def _store(self, feature: Feature, version: str, ending: str) -> Path:
        return self._directory / version / feature.name / ending

    def end(self) -> None:
        for bench in self._benches.values():
            bench.end()


def used(
    bench: BrokerBench,
    name: str,
    store: Path,
    use: Callable[[BenchClient], None],
    *,
    settings: Mapping[str, object] | None = None,
    snapshot: Path | None = None,
) -> None:
    """Start a broker of the bench over a store, and use it; it is open afterwards."""
    broker = bench.open(name, store, {**SMALL, **(settings or {})})
    client = bench.client(broker)
    try:
        use(client)
    finally:
        client.close()
    if snapshot is not None:
        broker.snapshot(snapshot)


@pytest.fixture(scope="module")
def stores(packages_of: Callable[[str], ApachePackages], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    made = Stores(packages_of, tmp_path_factory.mktemp("sound"))
    yield made
    made.end()


@pytest.fixture(autouse=True)
def _tasks_run_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """`pipeline check` without Spark: only its session is left out."""
    monkeypatch.setattr("orbitlog.cli.pipeline.pipeline_check.spark_session", lambda *_, **__: nullcontext())
    monkeypatch.setattr("orbitlog.pipeline.check.runner", lambda _: run_here)


def assert_sound(store: Path, expected: Set[str] = frozenset()) -> Examination:
    """Examine a store, and compare the verdicts of both commands."""
    found = examine(store)
    assert {one.finding.kind for one in found.problems} == expected, [str(one) for one in found.problems]
    assert [str(one) for one in found.problems if one.severity is Severity.ERROR] == []
    for room in ("doctor", "pipeline"):
        ran = CliRunner().invoke(cli, [room, "check", str(store)])
        assert ran.exit_code == (1 if expected else 0), (room, ran.output)
    return found


@pytest.mark.parametrize("ending", [CLOSED, KILLED])
@pytest.mark.parametrize("feature,version", ROWS, ids=[f"{feature.name}-{version}" for feature, version in ROWS])
def test_store_of_a_broker_is_sound(feature: Feature, version: str, ending: str, stores: Stores) -> None:
    store = stores.made(feature, version) / ending
    found = assert_sound(store, EXPECTED.get((feature.name, version), set()))
    assert ("abort" in {one.kind for one in found.findings}) == (ending == KILLED)


def _feature(name: str) -> Feature:
    return next(feature for feature in FEATURES if feature.name == name)


def removed(name: str) -> Callable[[Path], None]:
    """Remove an entry, and its backup."""

    def change(store: Path) -> None:
        for path in (store / name, store / f"{name}.bak"):
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)

    return change


def emptied(name: str) -> Callable[[Path], None]:
    def change(store: Path) -> None:
        removed(name)(store)
        (store / name).mkdir(parents=True)

    return change


def left_over(name: str) -> Callable[[Path], None]:
    """A file of an earlier broker, or of an editor."""

    def change(store: Path) -> None:
        (store / name).parent.mkdir(parents=True, exist_ok=True)
        (store / name).write_bytes(b"")

    return change


CHANGES = {
    **{f"without {name}": removed(name) for name in ("timerwheel", "compaction", "rocksdbstore", "abort.bak", "lock")},
    **{f"without {name}": removed(f"config/{name}") for name in ("timercheck", "timermetrics", "delayOffset.json")},
    **{
        f"empty {name}": emptied(name)
        for name in ("timerlog", "compaction", "rocksdbstore", "transaction", "consumequeue_ext", "batchconsumequeue")
    },
    "empty tieredstore": emptied("tieredstore"),
    "abort.bak left over": left_over("abort.bak"),
    "checkpoint.bak left over": left_over("checkpoint.bak"),
    "transaction state left over": left_over("transaction/redolog/00000000000000000000"),
    "config.tmp left over": left_over("config/topics.json.tmp"),
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("version", BOTH)
def test_optional_entries_may_be_absent_empty_or_left_over(
    name: str, version: str, stores: Stores, tmp_path: Path
) -> None:
    """Of a store without timer messages."""
    store = copy_store(stores.made(_feature("several-files"), version) / CLOSED, tmp_path / "store")
    CHANGES[name](store)
    assert_sound(store)


@pytest.mark.parametrize("version", BOTH)
def test_derived_files_may_be_absent_or_empty_if_the_log_has_no_message(
    version: str, stores: Stores, tmp_path: Path
) -> None:
    store = copy_store(stores.made(_feature("nothing"), version) / CLOSED, tmp_path / "store")
    for change in (emptied("index"), removed("index"), removed("consumequeue"), removed("checkpoint")):
        change(store)
        assert_sound(store)


@pytest.mark.parametrize("first", ["several-files", "delays", "pending", "retries-and-dead-letters"])
def test_store_upgraded_and_restarted_is_sound(first: str, stores: Stores, tmp_path: Path) -> None:
    """4.9.7 wrote it, 5.5.0 takes it over; closed, killed and stopped right after its start in turn."""
    store = copy_store(stores.made(_feature(first), "4.9.7") / CLOSED, tmp_path / "store")
    bench = stores.bench("5.5.0")
    for number, use in enumerate((nothing, several_files, timers, nothing)):
        killed = tmp_path / f"killed-{number}"
        used(bench, "upgraded", store, use, snapshot=killed)
        bench.close_all()
        assert_sound(store)
        assert_sound(killed)


@pytest.mark.parametrize("version", BOTH)
def test_store_killed_amid_sends_is_sound(version: str, stores: Stores, tmp_path: Path) -> None:
    """Snapshots while files roll, and each of them served again by a broker, and closed."""
    bench = stores.bench(version)
    broker = bench.open("amid", tmp_path / "store", SMALL)
    client = bench.client(broker)
    snapshots = []
    try:
        topic, producer = client.topic("Amid", queues=3), client.producer()
        for number in range(6):
            words = {"producer": producer, "topic": topic, "count": 150, "bytesMax": 2000, "keys": f"{number}-{{}}"}
            is_sent = client.driver.begin("send", nameServer=broker.name_server_address, **words)
            for moment in range(4):
                time.sleep(0.02 * (1 + number))
                snapshots.append(broker.snapshot(tmp_path / f"killed-{number}-{moment}"))
            is_sent(60)
    finally:
        client.close()
        bench.close_all()
    assert_sound(tmp_path / "store")
    for snapshot in snapshots:
        # Brokers of 4.9 do not start if they were killed while they created one of these, which is told.
        files = [path for name in ("commitlog", "consumequeue") for path in (snapshot / name).rglob("0*")]
        is_refused = version == "4.9.7" and any(path.is_file() and not path.stat().st_size for path in files)
        if not is_refused:
            assert_sound(snapshot)
    recovered = [snapshot for snapshot in snapshots[::8] if examine(snapshot).is_sound]
    for snapshot in recovered:
        bench.open("recovered", snapshot, SMALL)
    bench.close_all()
    for snapshot in recovered:
        assert_sound(snapshot)


@pytest.mark.parametrize("version", BOTH)
def test_store_with_default_file_sizes_is_sound(version: str, stores: Stores, tmp_path: Path) -> None:
    bench = stores.bench(version)
    broker = bench.open("default-sizes", tmp_path / "store", {})
    client = bench.client(broker)
    try:
        several_files(client)
    finally:
        client.close()
    broker.snapshot(tmp_path / KILLED)
    bench.close_all()
    assert (tmp_path / "store" / "commitlog" / f"{0:020d}").stat().st_size == 1 << 30
    assert_sound(tmp_path / "store")
    assert_sound(tmp_path / KILLED)


HANDED_OVER = ["nothing", "topics-without-messages", "plain", "several-files", "delays", "committed", "pending"]
HANDED_OVER += ["retries-and-dead-letters", "batches", "ordered", "compressed", "sql-filter", "many-queues"]
HANDED = [(_feature(name), version) for name in HANDED_OVER for version in BOTH]
HANDED += [(_feature(name), "5.5.0") for name in ("timers", "many-timers", "no-wheel")]


@pytest.mark.parametrize("feature,version", HANDED, ids=[f"{feature.name}-{version}" for feature, version in HANDED])
def test_store_that_orbitlog_served_is_sound(feature: Feature, version: str, stores: Stores, tmp_path: Path) -> None:
    """Closed after its first turn, killed after the second, closed after the third."""
    store = copy_store(stores.made(feature, version) / CLOSED, tmp_path / "store")
    ours = OrbitlogSystem(tmp_path / "ours", store, dict(feature.settings))
    try:
        for end in (ours.stop, ours.kill, ours.stop):
            ours.start()
            client = Client(stores.bench(version).driver, ours)
            try:
                client.send(client.producer(), client.topic("Ours"), count=20, body="ours", keys="o{}", tags="A")
            finally:
                client.close()
            end()
            assert_sound(store)
    finally:
        ours.kill()
