"""A busy broker and a console for it, shared by the tests of this directory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitlog.console.console_options import ClusterChoice, ConsoleOptions
from orbitlog.formats.tables.group_config import GroupConfig
from orbitlog.testing.running_broker import RunningBroker
from tests.support.console_site import ConsoleSite

ORDERS, CONSUMED, QUEUES = 30, 8, 4
EVIL = "<script>alert(1)</script>"


@pytest.fixture(scope="session")
def busy_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A broker with the topic Orders, of which group billing has consumed two messages a queue."""
    with RunningBroker(tmp_path_factory.mktemp("console") / "store") as broker:
        add_orders(broker)
        yield broker


def add_orders(broker: RunningBroker) -> None:
    client = broker.client
    client.admin.create_topic("Orders", QUEUES)
    for number in range(ORDERS):
        client.send("Orders", f"{EVIL} {number}", keys=[f"k{number}"], tags="new", properties={"note": f'"{EVIL}'})
    client.admin.create_group(GroupConfig("billing"))
    client.admin.reset_offsets("billing", "Orders", CONSUMED // QUEUES)


def options_of(broker: RunningBroker, directory: Path, **changes: object) -> ConsoleOptions:
    values = {
        "data_directory": directory,
        "port": 0,
        "clusters": (ClusterChoice("shop", broker.address),),
        "requests_per_second": 1e6,
        "request_burst": 1_000_000,
        **changes,
    }
    return ConsoleOptions(**values)  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def site(busy_broker: RunningBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleSite]:
    """A read-only console without users."""
    with ConsoleSite(options_of(busy_broker, tmp_path_factory.mktemp("data"))) as running:
        yield running
