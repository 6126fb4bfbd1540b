"""`doctor move` over stores that real brokers left behind: free with the right settings, and its refusals hold."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from orbitlog.cli.main import cli
from tests.interop.harness.clients import Client
from tests.interop.harness.drivers import Driver
from tests.interop.harness.packages import ApachePackages
from tests.interop.harness.systems import ApacheSystem, OrbitlogSystem, System

pytestmark = pytest.mark.interop

LINES = {"4.9.7": "4.9", "5.5.0": "5.5"}
SMALL = {
    "mappedFileSizeCommitLog": 4 * 1024 * 1024,
    "mappedFileSizeConsumeQueue": 20 * 1000,
    "maxHashSlotNum": 1000,
    "maxIndexNum": 4000,
}
COMMON = {"brokerName": "broker-a", "brokerIP1": "127.0.0.1"}


def report(store: Path, target: str, settings: Mapping[str, object]) -> tuple[int, list[dict[str, Any]]]:
    texts = {**COMMON, "storePathRootDir": store, **settings}
    words = [word for key, value in texts.items() for word in ("--set", f"{key}={value}")]
    result = CliRunner().invoke(cli, ["doctor", "move", str(store), "--to", target, "--json", *words])
    return result.exit_code, [json.loads(line) for line in result.stdout.splitlines()]


def use(system: System, driver: Driver) -> None:
    """Send, consume a part, leave delayed messages, and stop cleanly."""
    system.start()
    client = Client(driver, system)
    try:
        topic, group = client.topic("Move"), client.group("move")
        producer = client.producer()
        client.send(producer, topic, count=5, body="plain", keys="k{}")
        push = client.push(topic, group)
        push.wait_for(5)
        push.close()
        client.send(producer, topic, count=2, body="delayed", delayLevel=18)
    finally:
        client.close()
        system.stop()


@pytest.mark.parametrize("version", LINES)
def test_report_is_free_for_stores_of_both_brokers_and_its_refusal_holds(
    version: str, tmp_path: Path, packages_of: Callable[[str], ApachePackages], driver_of: Callable[[str], Driver]
) -> None:
    packages, driver, store = packages_of(version), driver_of(f"java-{version}"), tmp_path / "store"
    systems: list[System] = [
        ApacheSystem(packages, tmp_path / "theirs", store, SMALL),
        OrbitlogSystem(tmp_path / "ours", store, {**SMALL, "compat": LINES[version]}),
        ApacheSystem(packages, tmp_path / "default sizes", store, {}),
    ]
    try:
        for system, target in ((systems[0], "orbitlog"), (systems[1], "java")):
            use(system, driver)
            code, rows = report(store, target, SMALL)
            assert code == 0, rows
            assert "delayed messages" in {row.get("kind") for row in rows}
        code, rows = report(store, "java", {})
        assert code == 1
        refused = {row["setting"]: row["next"] for row in rows if row.get("severity") == "refused"}
        assert refused == {key: f"add {key}={SMALL[key]} to broker.conf" for key in list(SMALL)[:2]}
        with pytest.raises(Exception, match=r"(?i)ended|exit|start|ready"):
            systems[2].start()
    finally:
        for system in systems:
            system.kill()
