"""Stores that real brokers wrote in DLedger mode are read like any other: sound, complete, and derived byte for byte.

A store is pure or was switched from an ordinary one, has several small segments, and is looked at as its broker left it
when it was closed, and as `kill -9` would have left it (a snapshot while the process is stopped). All segments of a
store have one size: a Java broker does not load ordinary segments of another size than `mappedFileSizeCommitLog`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner

from orbitlog.cli.main import cli
from orbitlog.doctor.examination import examine
from orbitlog.storefiles.store_files import find_store_files
from orbitlog.storefiles.store_log import committed_end
from tests.interop.harness.broker_bench import BenchClient, BrokerBench
from tests.interop.harness.cluster import Ports
from tests.interop.harness.packages import ApachePackages
from tests.interop.store_features import (
    SMALL,
    batches,
    delays,
    keys_and_tags,
    retries_and_dead_letters,
    transactions,
)

pytestmark = pytest.mark.interop

CLOSED, KILLED = "closed", "killed"
DLEDGER = {"enableDLegerCommitLog": "true", "dLegerGroup": "R0", "dLegerSelfId": "n0"}
NAMES = [f"{kind} {version}" for version in ("4.9.7", "5.5.0") for kind in ("pure", "switched")]
CHECKPOINT_SECONDS = 4


def use_every_kind(client: BenchClient, acknowledged: set[str]) -> None:
    """Send messages of every kind; those of the last seconds may be newer than the checkpoint of DLedger."""
    for use in (keys_and_tags, batches, delays, transactions("COMMIT"), transactions("UNKNOW")):
        use(client)
    retries_and_dead_letters(client)
    producer, topic = client.producer(), client.topic("Many", queues=2)
    for count in (400, 200):
        sent = client.send(producer, topic, count=count, bytesMax=900, keys="k{}", tags="A,B")
        acknowledged |= {str(one["msgId"]) for one in sent}
        time.sleep(CHECKPOINT_SECONDS if count == 400 else 0.2)  # dispatch follows within milliseconds


class DLedgerStores:
    """Makes the stores of a version when the first one is asked for."""

    def __init__(self, packages_of: Callable[[str], ApachePackages], directory: Path) -> None:
        self._packages_of, self._directory = packages_of, directory
        self._made: dict[str, set[str]] = {}

    def made(self, name: str, ending: str) -> tuple[Path, set[str]]:
        if name not in self._made:
            self._make(name)
        return self._directory / name / ending, self._made[name]

    def _make(self, name: str) -> None:
        kind, version = name.split()
        place = self._directory / f"bench {name}"
        place.mkdir(parents=True, exist_ok=True)
        bench = BrokerBench(self._packages_of(version), place)
        store, acknowledged = self._directory / name / CLOSED, set[str]()
        try:
            if kind == "switched":
                self._serve(bench, store, {}, lambda client: use_every_kind(client, acknowledged))
            peers = f"n0-127.0.0.1:{Ports.find().broker}"
            settings = {**DLEDGER, "dLegerPeers": peers}
            snapshot = store.with_name(KILLED)
            self._serve(bench, store, settings, lambda client: use_every_kind(client, acknowledged), snapshot)
        finally:
            bench.end()
        self._made[name] = acknowledged

    @staticmethod
    def _serve(
        bench: BrokerBench,
        store: Path,
        settings: Mapping[str, object],
        use: Callable[[BenchClient], None],
        snapshot: Path | None = None,
    ) -> None:
        broker = bench.open("ledger", store, {**SMALL, **settings})
        client = bench.client(broker)
        try:
            use(client)
        finally:
            client.close()
        if snapshot is not None:
            broker.snapshot(snapshot)
        bench.close_all()


@pytest.fixture(scope="module")
def stores(
    packages_of: Callable[[str], ApachePackages], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DLedgerStores]:
    return DLedgerStores(packages_of, tmp_path_factory.mktemp("dledger"))


def rows_of(*words: str) -> list[dict[str, object]]:
    ran = CliRunner().invoke(cli, [*words, "--json"])
    assert ran.exit_code == 0, ran.output
    return [json.loads(line) for line in ran.stdout.splitlines()]


def derived_files(root: Path) -> dict[str, bytes]:
    """Return queue files that have a unit, by path, and index files in their order."""
    queues = {str(path.relative_to(root)): path.read_bytes() for path in root.glob("consumequeue/*/*/*")}
    indexes = enumerate(sorted((root / "index").iterdir()))
    return {name: data for name, data in queues.items() if any(data)} | {
        f"index {number}": path.read_bytes() for number, path in indexes
    }


@pytest.mark.parametrize("ending", [CLOSED, KILLED])
@pytest.mark.parametrize("name", NAMES)
def test_dledger_store_is_sound_and_complete(name: str, ending: str, stores: DLedgerStores) -> None:
    root, acknowledged = stores.made(name, ending)
    found = examine(root)
    assert [str(one) for one in found.problems] == []
    store = find_store_files(root)
    assert len(store.dledger_segments["dledger-n0"]) > 3
    assert bool(store.plain_segments) == name.startswith("switched")
    assert committed_end(store) == found.check.log_end
    shown = rows_of("dump", "commitlog", str(root))
    assert acknowledged <= {str(row["msgId"]) for row in shown}
    assert len(shown) == found.check.messages
    explained = rows_of("doctor", "explain", str(root))[0]
    counts = [int(str(topic["messages"])) for topic in explained["topics"]]  # type: ignore[attr-defined]
    assert sum(counts) + int(str(explained["notInQueues"])) == len(shown)
    topic = next(str(row["topic"]) for row in shown if str(row["topic"]).startswith("Many"))
    assert rows_of("dump", "index", str(root), "--topic", topic)


@pytest.mark.parametrize("name", NAMES)
def test_derived_files_of_a_closed_dledger_store_are_rebuilt(name: str, stores: DLedgerStores, tmp_path: Path) -> None:
    root, _ = stores.made(name, CLOSED)
    ran = CliRunner().invoke(cli, ["doctor", "rebuild", str(root), "--out", str(tmp_path / "out")])
    assert ran.exit_code == 0, ran.output
    assert derived_files(tmp_path / "out") == derived_files(root)


@pytest.mark.parametrize("name", NAMES)
def test_converted_dledger_store_is_sound_and_has_every_message(
    name: str, stores: DLedgerStores, tmp_path: Path
) -> None:
    root, acknowledged = stores.made(name, CLOSED)
    ran = CliRunner().invoke(cli, ["doctor", "convert", str(root), "--out", str(tmp_path / "out")])
    assert ran.exit_code == 0, ran.output
    assert [str(one) for one in examine(tmp_path / "out").problems] == []
    queues = [(row["topic"], row["queueId"], row["queueOffset"]) for row in rows_of("dump", "commitlog", str(root))]
    converted = rows_of("dump", "commitlog", str(tmp_path / "out"))
    assert [(row["topic"], row["queueId"], row["queueOffset"]) for row in converted] == queues
    assert acknowledged <= {str(row["msgId"]) for row in converted}
