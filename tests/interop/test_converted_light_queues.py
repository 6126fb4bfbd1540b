"""A DLedger store with light queues and with its data files outside the root: checked, converted, then served in turn.

The convert command finds the data files by `storePathDLedgerCommitLog`, as the broker that wrote them did.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop.handover import LINES, SMALL
from tests.interop.harness.clients import Client
from tests.interop.harness.cluster import Ports
from tests.interop.harness.drivers import Driver
from tests.interop.harness.packages import ApachePackages
from tests.interop.harness.systems import ApacheSystem, OrbitlogSystem, System
from tests.interop.light_queue_turns import LMQ, LightQueueTurns

pytestmark = pytest.mark.interop

PROGRAM = Path(sys.executable).with_name("orbitlog")
SECONDS_MAX = 300
# Java 5.5.0 gives messages no offset in light queues in DLedger mode, so it serves none.
HAS_LIGHT_QUEUES = {"4.9.7": True, "5.5.0": False}


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(PROGRAM), *map(str, words)], capture_output=True, text=True, timeout=SECONDS_MAX)


@pytest.mark.parametrize("version", LINES)
def test_light_queues_of_a_dledger_store_are_kept_by_a_conversion(
    version: str, tmp_path: Path, packages_of: Callable[[str], ApachePackages], driver_of: Callable[[str], Driver]
) -> None:
    packages, driver = packages_of(version), driver_of(f"java-{version}")
    source, data, out = tmp_path / "source", tmp_path / "data", tmp_path / "converted"
    settings = {**SMALL, **LMQ}
    peers = f"n0-127.0.0.1:{Ports.find().broker}"
    dledger = {"enableDLegerCommitLog": "true", "dLegerGroup": "R0", "dLegerSelfId": "n0", "dLegerPeers": peers}
    place = {"storePathDLedgerCommitLog": data}
    ours = {**settings, "compat": LINES[version]}
    hands = LightQueueTurns()

    def turn(system: System, mark: str, *, is_source: bool = False) -> None:
        client = None
        try:
            system.start()
            client = Client(driver, system)
            hands.turn(client, mark)
            if is_source:
                assert bool(hands.light_bodies(client)) == HAS_LIGHT_QUEUES[version]
                if not HAS_LIGHT_QUEUES[version]:
                    hands.light, hands.other = [], []
        finally:
            if client is not None:
                client.close()
            system.stop()
            system.kill()

    turn(ApacheSystem(packages, tmp_path / "java0", source, {**settings, **dledger, **place}), "source", is_source=True)
    assert any(data.iterdir())
    assert not (source / "dledger-n0" / "data").exists() or not any((source / "dledger-n0" / "data").iterdir())
    refused = run("doctor", "check", source, "--json")
    assert refused.returncode == 1 and "storePathDLedgerCommitLog" in refused.stderr, refused.stdout
    texts = (f"storePathDLedgerCommitLog={data}", "enableMultiDispatch=true", "enableLmq=true")
    given = [word for text in texts for word in ("--set", text)]
    checked = run("doctor", "check", source, "--json", *given)
    assert checked.returncode == 0, checked.stdout
    converted = run("doctor", "convert", source, "--out", out, "--json", *given)
    assert converted.returncode == 0, converted.stderr
    assert json.loads(converted.stdout)["messages"] == json.loads(checked.stdout.splitlines()[-1])["messages"]
    turn(OrbitlogSystem(tmp_path / "orbitlog1", out, ours), "converted")
    turn(ApacheSystem(packages, tmp_path / "java2", out, settings), "back")
    turn(OrbitlogSystem(tmp_path / "orbitlog3", out, ours), "again")
