"""The harness: nothing outlives the tests, and tests are skipped if a package is not available."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop.harness import packages as packages_module
from tests.interop.harness.cluster import Ports, broker_table, running_cluster
from tests.interop.harness.packages import ApachePackages, NotAvailable, apache_packages

pytestmark = pytest.mark.interop

ROOT = Path(__file__).resolve().parents[2]
ENDS_WITHIN_SECONDS = 20
DIES_AT_ONCE = """
import os, signal, sys
from pathlib import Path
from tests.interop.harness.cluster import Ports, running_cluster
from tests.interop.harness.packages import apache_packages

version, directory, name_server, broker = sys.argv[1:]
ports = Ports(int(name_server), int(broker))
with running_cluster(apache_packages(version), Path(directory), Path(directory, "store"), {}, ports=ports):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_servers_end_with_a_session_that_was_killed(
    packages_of: Callable[[str], ApachePackages], tmp_path: Path
) -> None:
    version = packages_of("4.9.7").version
    ports = Ports.find()
    arguments = [version, str(tmp_path), str(ports.name_server), str(ports.broker)]
    done = subprocess.run([sys.executable, "-c", DIES_AT_ONCE, *arguments], cwd=ROOT, timeout=200)
    assert done.returncode == -9, "it did not come as far as to kill itself beside running servers"
    deadline = time.monotonic() + ENDS_WITHIN_SECONDS
    while broker_table(ports.name_server) is not None:
        assert time.monotonic() < deadline, "the name server still answers"
        time.sleep(0.2)


def test_a_failed_block_leaves_nothing_running(packages_of: Callable[[str], ApachePackages], tmp_path: Path) -> None:
    started = []
    with (
        pytest.raises(ZeroDivisionError),
        running_cluster(packages_of("4.9.7"), tmp_path, tmp_path / "s", {}) as cluster,
    ):
        started += [cluster.broker, cluster.name_server]
        raise ZeroDivisionError
    assert [server.is_running for server in started] == [False, False]


@pytest.mark.parametrize("missing", ["java", "mvn"])
def test_what_is_missing_is_named(missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(packages_module.shutil, "which", lambda name: None if name == missing else f"bin/{name}")
    with pytest.raises(NotAvailable, match=f"{missing} was not found"):
        apache_packages.__wrapped__("4.9.7")
