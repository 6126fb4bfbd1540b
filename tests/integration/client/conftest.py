"""A real broker for the tests of the client: `orbitlog up` in a process of its own, one for all of them."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

STOP_SECONDS = 20


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a cluster."""
    directory = tmp_path_factory.mktemp("cluster")
    program = Path(sys.executable).with_name("orbitlog")
    command = [str(program), "up", "--store", str(directory / "store"), "--name-server-port", "0", "--broker-port", "0"]
    with (
        (directory / "stderr.log").open("wb") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors) as process,
    ):
        assert process.stdout is not None
        line = process.stdout.readline().decode()
        assert line.startswith("ready "), (directory / "stderr.log").read_text()
        yield "rocketmq://" + dict(word.split("=", 1) for word in line.split()[1:])["name-server"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(STOP_SECONDS) == 0
