"""Fixtures and reports of the tests that need real Apache RocketMQ."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator

import pytest

from tests.interop.harness.clients import Client
from tests.interop.harness.drivers import Driver
from tests.interop.harness.matrix import Pair, start_driver
from tests.interop.harness.packages import ApachePackages, NotAvailable, apache_packages
from tests.interop.harness.processes import STARTED, kill_everything
from tests.interop.harness.systems import ORBITLOG, System, make_system

# What a scenario needs beyond the defaults of a broker.
SHARED_SETTINGS = {
    "enablePropertyFilter": "true",
    "traceTopicEnable": "true",
    "recallMessageEnable": "true",
    "transactionCheckInterval": "2000",
    "transactionTimeOut": "2000",
}


@pytest.fixture(scope="session", autouse=True)
def _nothing_outlives_the_session() -> Iterator[None]:
    yield
    kill_everything()


@pytest.fixture(scope="session")
def packages_of() -> Callable[[str], ApachePackages]:
    """The packages of a version; skips the test if they are not available."""

    def get(version: str) -> ApachePackages:
        try:
            return apache_packages(version)
        except NotAvailable as reason:
            pytest.skip(str(reason))

    return get


@pytest.fixture(scope="session")
def system_of(
    packages_of: Callable[[str], ApachePackages], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], System]]:
    """The system of a kind that all tests share; it runs whenever a test gets it."""
    made: dict[str, System] = {}

    def get(kind: str) -> System:
        if kind not in made:
            made[kind] = make_system(kind, tmp_path_factory.mktemp(kind), packages_of, SHARED_SETTINGS)
        made[kind].start()
        return made[kind]

    yield get
    for kind, system in made.items():
        # Apache's take half a minute to end cleanly, and their stores are not looked at any more.
        system.stop() if kind == ORBITLOG else system.kill()


@pytest.fixture(scope="session")
def driver_of(
    packages_of: Callable[[str], ApachePackages], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Driver]]:
    """The process of a client that all tests share."""
    made: dict[str, Driver] = {}

    def get(name: str) -> Driver:
        if name in made and not made[name].is_alive:
            made.pop(name).close()
        if name not in made:
            made[name] = start_driver(name, tmp_path_factory.mktemp(name), packages_of)
        return made[name]

    yield get
    for driver in made.values():
        driver.close()


@pytest.fixture
def client(
    request: pytest.FixtureRequest, driver_of: Callable[[str], Driver], system_of: Callable[[str], System]
) -> Iterator[Client]:
    """A client at a system, by the mark of the test; what it started ends with the test."""
    pair: Pair = request.param
    made = Client(driver_of(pair[0]), system_of(pair[1]))
    yield made
    made.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test shows the end of the logs of the servers that ran last."""
    report = yield
    if report.failed:
        for server in STARTED[-2:]:
            if server.log.exists():
                report.sections.append((f"log of the {server.name}, whole in {server.log}", server.log_tail()))
    return report
