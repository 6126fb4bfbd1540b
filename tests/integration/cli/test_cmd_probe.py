"""`orbitlog probe` against a broker's metrics port, and against nothing."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from orbitlog.cli.main import cli
from orbitlog.testing.running_broker import RunningBroker


def test_probe_follows_health(tmp_path: Path) -> None:
    settings = {"metricsExporterType": "PROM", "metricsPromExporterPort": "0"}
    with RunningBroker(tmp_path / "store", settings) as running:
        assert running._broker is not None and running._broker.meters is not None
        port = str(running._broker.meters.address[1])
        running.wait_for(lambda: not CliRunner().invoke(cli, ["probe", "ready", "--port", port]).exit_code)
        alive = CliRunner().invoke(cli, ["probe", "live", "--port", port, "--timeout", "20"])
        assert (alive.exit_code, alive.stdout) == (0, "alive\n")
        running._broker.state.store.availability.note_full_disk("too full")
        refused = CliRunner().invoke(cli, ["probe", "ready", "--port", port, "--timeout", "20"])
        assert refused.exit_code == 1
        assert "is not ready: the disk is too full for messages" in refused.stderr
        as_json = CliRunner().invoke(cli, ["probe", "ready", "--port", port, "--timeout", "20", "--json"])
        assert as_json.exit_code == 1 and "the disk is too full" in json.loads(as_json.stdout)["problems"][0]
    gone = CliRunner().invoke(cli, ["probe", "live", "--port", port])
    assert gone.exit_code == 1 and "does not respond" in gone.stderr
