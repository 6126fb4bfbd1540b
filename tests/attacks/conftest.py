"""For the attacks: a broker and a name server that a test attacks over sockets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orbitlog.testing.running_broker import RunningBroker


@pytest.fixture
def start_target(tmp_path: Path) -> Iterator[Callable[..., RunningBroker]]:
    """A function that starts a name server and a broker with the given settings."""
    started: list[RunningBroker] = []

    def start(**settings: str) -> RunningBroker:
        broker = RunningBroker(tmp_path / f"target{len(started)}", settings).start()
        started.append(broker)
        return broker

    yield start
    for broker in started:
        broker.stop()
