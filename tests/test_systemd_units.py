"""The units in deploy/systemd are valid, confined, and use options that the commands have."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from orbitlog.cli.main import cli

UNITS = sorted(Path("deploy/systemd").glob("*.service"))
EXPOSURE_MAX = 1.5
needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is missing; install the package systemd"
)


def test_units_exist() -> None:
    assert [unit.stem for unit in UNITS] == ["orbitlog-broker", "orbitlog-console", "orbitlog-nameserver"]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_command_of_a_unit_has_the_options(unit: Path) -> None:
    line = next(line for line in unit.read_text().splitlines() if line.startswith("ExecStart="))
    program, name, *words = shlex.split(line.removeprefix("ExecStart="))
    assert program.endswith("/orbitlog")
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    options = {spelling for option in command.params for spelling in option.opts}
    assert {word for word in words if word.startswith("--")} <= options


def test_broker_can_read_the_id_of_the_boot() -> None:
    """Otherwise a replica group treats each kill as a power cut: `machine_boot_id` would be empty."""
    assert "ProcSubset=pid" not in Path("deploy/systemd/orbitlog-broker.service").read_text().splitlines()


@needs_systemd
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_unit_is_valid_and_confined(unit: Path, tmp_path: Path) -> None:
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text().replace("/usr/local/bin/orbitlog", sys.executable))
    verified = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True, timeout=60)
    assert unit.name not in verified.stderr, verified.stderr
    analysed = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", copy], capture_output=True, text=True, timeout=60
    )
    exposure = re.search(r"Overall exposure level for \S+: ([\d.]+)", analysed.stdout)
    assert exposure is not None, analysed.stderr
    assert float(exposure[1]) <= EXPOSURE_MAX
