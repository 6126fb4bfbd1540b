"""consumerFilter.json while the store goes to Apache's broker and back: both keep what the other wrote, bits too."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orbitlog.formats.tables.group_config import decode_filters
from tests.interop.handover import SMALL
from tests.interop.harness.clients import Client
from tests.interop.harness.drivers import Driver
from tests.interop.harness.packages import ApachePackages
from tests.interop.harness.systems import ApacheSystem, OrbitlogSystem, System

pytestmark = pytest.mark.interop

SETTINGS = {**SMALL, "enablePropertyFilter": "true"}
SECONDS_MAX = 60


def filters_in(store: Path) -> dict[str, dict[str, Any]]:
    """Return the entry of each group in the file."""
    path = store / "config" / "consumerFilter.json"
    table = decode_filters(path.read_text()) if path.exists() else decode_filters("{}")
    return {
        group: {"bits": data.bloom.bit_positions if data.bloom else None, "expression": data.expression, "data": data}
        for topic in table.topics.values()
        for group, data in topic.filters.items()
    }


def test_both_keep_what_the_other_wrote(
    tmp_path: Path, packages_of: Callable[[str], ApachePackages], driver_of: Callable[[str], Driver]
) -> None:
    packages, driver = packages_of("5.5.0"), driver_of("java-5.5.0")
    store = tmp_path / "store"
    ours = OrbitlogSystem(tmp_path / "ours", store, {**SETTINGS, "compat": "5.5"})
    theirs = ApacheSystem(packages, tmp_path / "theirs", store, SETTINGS)

    def turn(system: System, expression: str) -> str:
        """Let a consumer subscribe at a broker, until the broker has written it down and was stopped."""
        system.start()
        client = Client(driver, system)
        try:
            topic, group = client.topic("FilterHands", queues=1), client.group("filterhands")
            push = client.push(topic, group, sql=expression)
            client.send(client.producer(), topic, count=4, body="n", **{"property.n": "{}"})
            push.wait_for(2)
            deadline = time.monotonic() + SECONDS_MAX
            while group not in filters_in(store) and time.monotonic() < deadline:
                time.sleep(0.2)
            push.close()
        finally:
            client.close()
            system.stop()
        return group

    try:
        first = turn(theirs, "n > 1")
        by_them = filters_in(store)
        second = turn(ours, "n < 2")
        by_us = filters_in(store)
        assert by_us[first]["expression"] == "n > 1" and by_us[first]["bits"] == by_them[first]["bits"]
        assert by_us[first]["data"].is_dead, "its consumer has gone"
        third = turn(theirs, "n in ('1', '2')")
        in_the_end = filters_in(store)
        assert {group: one["expression"] for group, one in in_the_end.items()} == {
            first: "n > 1",
            second: "n < 2",
            third: "n in ('1', '2')",
        }
        assert in_the_end[second]["bits"] == by_us[second]["bits"]
        assert len(in_the_end[second]["bits"]) == len(in_the_end[first]["bits"])
    finally:
        ours.kill()
        theirs.kill()
