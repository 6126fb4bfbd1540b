"""Fixtures and reports of the tests that need real Apache RocketMQ."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator

import pytest

from tests.interop.harness.packages import ApachePackages, NotAvailable, apache_packages
from tests.interop.harness.processes import STARTED, kill_everything


@pytest.fixture(scope="session", autouse=True)
def _nothing_outlives_the_session() -> Iterator[None]:
    yield
    kill_everything()


@pytest.fixture(scope="session")
def packages_of() -> Callable[[str], ApachePackages]:
    """The packages of a version; skips the test where they cannot be had."""

    def get(version: str) -> ApachePackages:
        try:
            return apache_packages(version)
        except NotAvailable as reason:
            pytest.skip(str(reason))

    return get


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
