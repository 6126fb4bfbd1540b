"""How long the fault tests look, and how much they looked at.

`ORBITLOG_FAULTS=20 make faults` looks twenty times as long as the suite does. Every test counts what it checked; the
sums stand at the end of the run.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from orbitlog.store.dispatch import dispatcher
from orbitlog.store.log import log_end
from orbitlog.store.recovery import queue_survey

_PROPERTY = "checked"


@pytest.fixture(scope="session")
def scale() -> int:
    """How many times as many runs as in the suite."""
    return int(os.environ.get("ORBITLOG_FAULTS", "1"))


@pytest.fixture
def use_kernels(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Let small stores take the ways that only long logs take, a few records at a time; or let them not."""
    limits = [
        (dispatcher, "_BULK_BYTES_MIN", 0),
        (dispatcher, "_BULK_STEP_BYTES", 3000),
        (dispatcher, "_LIVE_BYTES_MIN", 0),
        (log_end, "_KERNEL_BYTES_MIN", 0),
        (queue_survey, "KERNEL_BYTES_MIN", 0),
    ]
    ordinary = [(module, name, getattr(module, name)) for module, name, _ in limits]

    def use(is_wanted: bool) -> None:
        for module, name, value in limits if is_wanted else ordinary:
            monkeypatch.setattr(module, name, value)

    return use


@pytest.fixture
def checked(request: pytest.FixtureRequest) -> Iterator[Counter[str]]:
    """Count what was checked, by a word for it."""
    counts: Counter[str] = Counter()
    yield counts
    request.node.user_properties.append((_PROPERTY, dict(counts)))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    total: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", "") != "teardown":
                continue
            for name, counts in getattr(report, "user_properties", []):
                if name == _PROPERTY:
                    total.update(counts)
    if total:
        terminalreporter.section("faults")
        for word, count in sorted(total.items()):
            terminalreporter.write_line(f"{count:>9,} {word} checked")


@pytest.fixture
def repeatable() -> Iterator[None]:
    """Restore the random state: a broker chooses between a topic and its retry topic at random."""
    before = random.getstate()
    yield
    random.setstate(before)
