"""Stores in DLedger mode or with RocksDB tables, converted, and then served by Apache's broker and Orbitlog in turn.

The states of the migration suite (`migration_states.py`) travel: at every step consumed plus remaining equals
acknowledged. A group of three DLedger brokers loses its leader under load; the stores of all members convert to equal
ones.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.interop import test_migration as migration
from tests.interop.harness.cluster import Ports
from tests.interop.harness.drivers import Driver
from tests.interop.harness.packages import ApachePackages
from tests.interop.harness.systems import ApacheSystem, OrbitlogSystem, System
from tests.interop.migration_states import (
    DeadLetters,
    Delays,
    EmptyTopic,
    Fifo,
    LargeMessages,
    Plain,
    Retries,
    State,
    Timers,
    Transactions,
    Untouched,
)

pytestmark = pytest.mark.interop

PROGRAM = Path(sys.executable).with_name("orbitlog")
STATES: tuple[type[State], ...] = (
    Plain,
    Untouched,
    EmptyTopic,
    Delays,
    Retries,
    DeadLetters,
    Transactions,
    Fifo,
    LargeMessages,
    Timers,
)
DLEDGER = {"enableDLegerCommitLog": "true", "dLegerGroup": "R0", "dLegerSelfId": "n0"}


@dataclass(frozen=True)
class Source:
    """The brokers that make a store before it is converted."""

    stops: list[migration.Stop]
    kinds: list[str]
    later: str = "5.5.0"
    settings: Mapping[str, object] = field(default_factory=dict)

    @property
    def states(self) -> list[type[State]]:
        """The states that brokers of this version have."""
        return [state for state in STATES if self.later == "5.5.0" or not state.since_5]


SOURCES = {
    "DLedger 4.9.7": Source([migration.Stop("4.9.7", settings=DLEDGER)], ["DLedger log"], "4.9.7"),
    "DLedger 5.5.0": Source([migration.Stop("5.5.0", settings=DLEDGER)], ["DLedger log"]),
    "switched to DLedger 4.9.7": Source(
        [migration.Stop("4.9.7"), migration.Stop("4.9.7", settings=DLEDGER)], ["DLedger log"], "4.9.7"
    ),
    "switched to DLedger 5.5.0": Source(
        [migration.Stop("5.5.0"), migration.Stop("5.5.0", settings=DLEDGER)], ["DLedger log"]
    ),
    "RocksDB 5.5.0": Source(
        [migration.Stop("5.5.0", settings={"storeType": "defaultRocksDB"})], ["RocksDB queues", "RocksDB tables"]
    ),
    "RocksDB tables 5.5.0": Source(
        [migration.Stop("5.5.0", settings={"configManagerVersion": "v2"})], ["RocksDB tables"]
    ),
}


class ConvertedJourney(migration.Journey):
    """A journey whose store is converted after the brokers of the source."""

    def __init__(
        self,
        name: str,
        directory: Path,
        packages_of: Callable[[str], ApachePackages],
        driver_of: Callable[[str], Driver],
    ) -> None:
        source = SOURCES[name]
        self._source = source
        self._stops = [
            *source.stops,
            migration.Stop(source.later, True),
            migration.Stop(source.later),
            migration.Stop(source.later, True),
        ]
        self._directory = directory
        self._store = directory / "store"
        self._packages_of, self._driver_of = packages_of, driver_of
        self._states = {made.__name__: made() for made in source.states}
        self.failures: dict[str, str] = {}

    def run(self) -> None:
        for number, stop in enumerate(self._stops):
            if number == len(self._source.stops):
                self._convert()
            system = self._system(number, stop)
            try:
                system.start()
                self._serve(system, self._driver_of(f"java-{stop.version}"), number, number == len(self._stops) - 1)
                system.stop()
            finally:
                system.kill()

    def _system(self, number: int, stop: migration.Stop) -> System:
        settings = {**migration.SETTINGS, **stop.settings}
        if "dLegerGroup" in settings:
            settings["dLegerPeers"] = f"n0-127.0.0.1:{Ports.find().broker}"
        directory = self._directory / f"turn{number}"
        if stop.is_ours:
            return OrbitlogSystem(directory, self._store, {**settings, "compat": stop.version[:3]})
        return ApacheSystem(self._packages_of(stop.version), directory, self._store, settings)

    def _convert(self) -> None:
        out = self._directory / "converted"
        converted = convert(self._store, out)
        assert converted["kinds"] == self._source.kinds
        assert converted["uncommitted"] == 0
        levels = f"messageDelayLevel={migration.SETTINGS['messageDelayLevel']}"
        command = [str(PROGRAM), "doctor", "check", str(out), "--json", "--set", levels]
        done = subprocess.run(command, capture_output=True, text=True)
        # Java 5.5.0 does not save the topics of dead letters in its joint database.
        *findings, verdict = map(json.loads, done.stdout.splitlines())
        assert {finding["kind"] for finding in findings} <= {"topic"}, done.stdout
        assert verdict["messages"] == converted["messages"]
        self._store = out


def convert(store: Path, out: Path) -> dict[str, object]:
    # A store with its queues in RocksDB does not show the size that queue files will have.
    sizes = [
        f"{key}={migration.SETTINGS[key]}" for key in ("mappedFileSizeConsumeQueue", "maxHashSlotNum", "maxIndexNum")
    ]
    command = [str(PROGRAM), "doctor", "convert", str(store), "--out", str(out), "--json"]
    command += [word for size in sizes for word in ("--set", size)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.fixture(scope="module")
def journey_of(
    packages_of: Callable[[str], ApachePackages],
    driver_of: Callable[[str], Driver],
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[str], ConvertedJourney]:
    """Run a journey when its first state is asked for."""
    made: dict[str, ConvertedJourney] = {}
    ended: set[str] = set()

    def get(name: str) -> ConvertedJourney:
        if name not in made:
            made[name] = ConvertedJourney(name, tmp_path_factory.mktemp("converted"), packages_of, driver_of)
            made[name].run()
            ended.add(name)
        assert name in ended, f"the journey of {name} did not reach its end"
        return made[name]

    return get


@pytest.mark.parametrize(
    ("source", "state"), [(name, state.__name__) for name, source in SOURCES.items() for state in source.states]
)
def test_state_is_kept_when_a_store_is_converted(
    source: str, state: str, journey_of: Callable[[str], ConvertedJourney]
) -> None:
    failure = journey_of(source).failures.get(state)
    if failure is not None:
        pytest.fail(failure, pytrace=False)
