"""`orbitlog mirror`: the copy that it serves, its events, its take-over, and what it refuses."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli_run import Run
from tests.support.serving_process import SECONDS_MAX, serving, start

SMALL = ("--set", "mappedFileSizeCommitLog=1048576", "--set", "mappedFileSizeConsumeQueue=20000")
PORTS = ("--name-server-port", "0", "--broker-port", "0", "--set", "slaveTimeout=50")


def events(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    """Yield what a command prints with --json after its ready line."""
    assert process.stdout is not None
    for line in process.stdout:
        yield json.loads(line)


def until(process: subprocess.Popen[str], event: str) -> dict[str, Any]:
    return next(found for found in events(process) if found.get("event") == event)


def test_mirror_serves_a_copy_that_is_checked_and_queried_while_it_follows(tmp_path: Path, run: Run) -> None:
    copy = tmp_path / "copy"
    with serving("up", "--store", str(tmp_path / "master"), *PORTS, *SMALL) as (_, master):
        server = str(master["name-server"])
        assert run("send", "Orders", "first", "--key", "42", "-n", server).exit_code == 0
        with serving("mirror", server, "broker-a", "--store", str(copy), "--port", "0") as (process, ready):
            assert (ready["role"], ready["master"], ready["store"]) == ("mirror", master["broker"], str(copy))
            assert until(process, "caught-up")["masterEnd"] > 0
            assert run("send", "Orders", "second", "-n", server).exit_code == 0
            for _ in range(100):
                rows = run("dump", "commitlog", str(copy), "--json").rows
                if len(rows) == 2:
                    break
            assert [row["topic"] for row in rows] == ["Orders", "Orders"]
            assert run("doctor", "check", str(copy)).exit_code == 0
            process.send_signal(signal.SIGTERM)
            assert process.wait(SECONDS_MAX) == 0


def test_take_over_prints_each_step_and_ends_as_the_master(tmp_path: Path, run: Run) -> None:
    with serving("nameserver", "--port", "0") as (_, names):
        server = str(names["name-server"])
        broker = ("broker", "-n", server, "--port", "0", "--store", str(tmp_path / "master"), *SMALL)
        mirror = ("mirror", server, "broker-a", "--store", str(tmp_path / "copy"), "--port", "0", "--take-over")
        with serving(*broker, "--set", "slaveTimeout=50") as (master, _):
            assert run("send", "Orders", "first", "-n", server).exit_code == 0
            with serving(*mirror) as (process, _):
                until(process, "stop-master")
                master.send_signal(signal.SIGTERM)
                until(process, "took-over")
                ready = next(events(process))
                assert (ready["ready"], ready["role"]) == (True, "master")
                assert run("send", "Orders", "second", "-n", server).exit_code == 0
                found = run("tail", "Orders", "--from", "earliest", "--no-follow", "--json", "-n", server).rows
                assert len(found) == 2


def test_new_mirror_of_an_unknown_broker_is_one_sentence(tmp_path: Path) -> None:
    with serving("up", "--store", str(tmp_path / "master"), *PORTS) as (_, master):
        words = ("mirror", master["name-server"], "broker-b", "--store", str(tmp_path / "copy"), "--port", "0")
        process = start(*words)
        _, problem = process.communicate(timeout=SECONDS_MAX)
        assert process.returncode == 1
        assert problem == "orbitlog: no master of broker-b is registered; registered names: broker-a\n"
        assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("127.0.0.1", "broker-a"), "NAMESRV contains '127.0.0.1', which is not host:port"),
        ((";", "broker-a"), "NAMESRV is empty"),
        (("127.0.0.1:1", "broker-a", "--master-lost"), "--master-lost needs --take-over"),
        (("127.0.0.1:1", "no/name"), "brokerName"),
    ],
)
def test_wrong_use_is_one_sentence_and_exit_2(run: Run, tmp_path: Path, words: tuple[str, ...], problem: str) -> None:
    ran = run("mirror", *words, "--store", tmp_path / "copy")
    assert ran.exit_code == 2
    assert problem in ran.stderr
    assert not (tmp_path / "copy").exists()
