"""Migration suite: one store, served in turn by Apache's broker and Orbitlog, in every state that a broker leaves.

A journey is a list of brokers that serve the same store one after the other. All states (`migration_states.py`) travel
together, because a broker takes long to start and stop; each state is a test of its own. At every step consumed plus
remaining equals acknowledged, nothing deleted is delivered, and nothing written to the log or a queue changes.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.interop.harness.clients import Client
from tests.interop.harness.drivers import Driver
from tests.interop.harness.packages import ApachePackages
from tests.interop.harness.store_prefix import StorePrefix
from tests.interop.harness.systems import ApacheSystem, OrbitlogSystem, System
from tests.interop.migration_settings import SETTINGS
from tests.interop.migration_states import ALL_STATES, DeletedTopic, State, Turn, Untouched

pytestmark = pytest.mark.interop

TRANSIENT_POOL = {"transientStorePoolEnable": "true", "transientStorePoolSize": 10}
SYNC_FLUSH = {"flushDiskType": "SYNC_FLUSH"}
SETTLE_SECONDS = 3
STATES_AT_A_TIME = 6
FILES = "files"


@dataclass(frozen=True)
class Stop:
    """A broker that serves the store for one turn: a version of Apache's, or Orbitlog in the mode of that version."""

    version: str
    is_ours: bool = False
    settings: Mapping[str, object] = field(default_factory=dict)


JOURNEYS: dict[str, list[Stop]] = {
    "5.5.0": [Stop("5.5.0"), Stop("5.5.0", True), Stop("5.5.0"), Stop("5.5.0", True)],
    "4.9.7 upgraded": [
        Stop("4.9.7"),
        Stop("4.9.7", True),
        Stop("4.9.7"),
        Stop("5.5.0"),
        Stop("5.5.0", True),
        Stop("5.5.0"),
    ],
    "5.5.0 flushing": [
        Stop("5.5.0", settings=TRANSIENT_POOL),
        Stop("5.5.0", True, SYNC_FLUSH),
        Stop("5.5.0", settings=SYNC_FLUSH),
    ],
}


def _state_names(journey: str) -> list[str]:
    is_5x = all(stop.version == "5.5.0" for stop in JOURNEYS[journey])
    return [state.__name__ for state in ALL_STATES if is_5x or not state.since_5]


class Journey:
    """One store on its way; failures are kept by state."""

    def __init__(
        self,
        name: str,
        directory: Path,
        packages_of: Callable[[str], ApachePackages],
        driver_of: Callable[[str], Driver],
    ) -> None:
        self._stops = JOURNEYS[name]
        self._directory = directory
        self._store = directory / "store"
        self._packages_of, self._driver_of = packages_of, driver_of
        self._states = {made.__name__: made() for made in ALL_STATES if made.__name__ in _state_names(name)}
        self.failures: dict[str, str] = {}

    def run(self) -> None:
        before: StorePrefix | None = None
        for number, stop in enumerate(self._stops):
            system = self._system(number, stop)
            is_last = number == len(self._stops) - 1
            try:
                system.start()
                self._serve(system, self._driver_of(f"java-{stop.version}"), number, is_last)
                system.stop()
            finally:
                system.kill()
            if before is not None:
                self._check_files(before, f"turn {number}, {system.kind}", is_last)
            before = StorePrefix.of(self._store)

    def _system(self, number: int, stop: Stop) -> System:
        directory, settings = self._directory / f"turn{number}", {**SETTINGS, **stop.settings}
        if stop.is_ours:
            return OrbitlogSystem(directory, self._store, {**settings, "compat": stop.version[:3]})
        return ApacheSystem(self._packages_of(stop.version), directory, self._store, settings)

    def _serve(self, system: System, driver: Driver, number: int, is_last: bool) -> None:
        steps = ("take",) if is_last else ("take", "leave")
        for step in steps:
            with ThreadPoolExecutor(STATES_AT_A_TIME) as pool:
                done = {
                    name: pool.submit(_run_step, state, step, Turn(Client(driver, system), number, is_last))
                    for name, state in self._states.items()
                    if name not in self.failures
                }
            for name, future in done.items():
                if (failure := future.exception()) is not None:
                    lines = "".join(traceback.format_exception(failure))
                    self.failures[name] = f"{step} in turn {number} at {system.kind}: {lines}"
                    print(name, self.failures[name], flush=True)
        time.sleep(SETTLE_SECONDS)

    def _check_files(self, before: StorePrefix, when: str, is_last: bool) -> None:
        try:
            gone = self._states.get(DeletedTopic.__name__)
            before.check_kept(self._store, deleted_topics=frozenset([gone.topic] if gone else []))
            before.check_untouched(self._store, self._states[Untouched.__name__].topic)
        except AssertionError:
            self.failures.setdefault(FILES, f"{when}: {traceback.format_exc()}")


def _run_step(state: State, step: str, turn: Turn) -> None:
    try:
        getattr(state, step)(turn)
    finally:
        turn.client.close()


@pytest.fixture(scope="module")
def journey_of(
    packages_of: Callable[[str], ApachePackages],
    driver_of: Callable[[str], Driver],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[[str], Journey]]:
    """Run a journey when its first state is asked for."""
    made: dict[str, Journey] = {}

    def get(name: str) -> Journey:
        if name not in made:
            made[name] = Journey(name, tmp_path_factory.mktemp("journey"), packages_of, driver_of)
            made[name].run()
        return made[name]

    yield get


@pytest.mark.parametrize(
    ("journey", "state"), [(journey, state) for journey in JOURNEYS for state in [*_state_names(journey), FILES]]
)
def test_state_is_kept_while_the_store_changes_hands(
    journey: str, state: str, journey_of: Callable[[str], Journey]
) -> None:
    failure = journey_of(journey).failures.get(state)
    if failure is not None:
        pytest.fail(failure, pytrace=False)
