"""Helm chart: every golden render is valid by the schemas of several Kubernetes versions; `make chart` runs it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.interop

ROOT = Path(__file__).resolve().parent.parent.parent
GOLDEN = sorted((ROOT / "deploy" / "helm" / "tests" / "golden").glob("*.yaml"))
VERSIONS = ("1.28", "1.31", "1.34", "1.36")


@pytest.fixture(scope="module")
def validate() -> str:
    directory = os.environ.get("ORBITLOG_DEPLOY_TOOLS")
    if not directory:
        pytest.skip("kubernetes-validate is installed by `make chart`")
    return f"{directory}/kubernetes-validate"


def validated(program: str, version: str, *files: Path) -> subprocess.CompletedProcess[str]:
    command = [program, "--strict", "--kubernetes-version", version, *files]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("version", VERSIONS)
def test_renders_are_valid(validate: str, version: str) -> None:
    done = validated(validate, version, *GOLDEN)
    printed = done.stdout + done.stderr
    # Custom resources have no schema in Kubernetes; tests/deploy/test_chart.py checks theirs.
    problems = [
        line for line in printed.splitlines() if line.startswith(("ERROR", "WARN")) and "ServiceMonitor" not in line
    ]
    assert problems == []
    assert printed.count("INFO") >= len(GOLDEN) - 1, printed


def test_invalid_object_is_reported(validate: str, tmp_path: Path) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text(GOLDEN[0].read_text().replace("maxUnavailable:", "maxUnavailabel:"))
    done = validated(validate, VERSIONS[-1], broken)
    assert done.returncode != 0
    assert "maxUnavailabel" in done.stdout + done.stderr
