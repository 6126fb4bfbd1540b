"""`orbitlog up --brokers N`: one cluster of several processes, which come and go together."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from orbitlog.cli.serve.broker_processes import plan_brokers
from orbitlog.cli.serve.cmd_up import BROKERS_MAX
from orbitlog.remoting.client import RemotingClient
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command

PROGRAM = (sys.executable, "-c", "from orbitlog.cli.main import main; main()")
SECONDS_MAX = 60


def test_names_directories_and_ports() -> None:
    places = plan_brokers(3, "broker-a", Path("stores"), 10911)
    assert [(place.name, str(place.root), place.port) for place in places] == [
        ("broker-a", "stores/broker-a", 10911),
        ("broker-b", "stores/broker-b", 10921),
        ("broker-c", "stores/broker-c", 10931),
    ]
    assert [place.name for place in plan_brokers(2, "east", Path("s"), 0)] == ["east-a", "east-b"]
    assert {place.port for place in plan_brokers(BROKERS_MAX, "broker-a", Path("s"), 0)} == {0}


def words(root: Path, *more: str) -> list[str]:
    ports = ("--name-server-port", "0", "--broker-port", "0")
    return [*PROGRAM, "up", "--brokers", "2", "--store", str(root), *ports, "--json", *more]


@contextmanager
def cluster_at(root: Path) -> Iterator[tuple[subprocess.Popen[str], list[dict[str, Any]]]]:
    process = subprocess.Popen(words(root), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process, [json.loads(process.stdout.readline()) for _ in range(2)]
    finally:
        process.kill()
        process.communicate(timeout=SECONDS_MAX)


def pid_of(ready: dict[str, Any]) -> int:
    """The process that serves this store."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if ready["store"].encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                    return int(entry.name)
            except OSError:
                continue
    raise AssertionError(f"nobody serves {ready['store']}")


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


async def broker_names(name_server: str) -> dict[str, str]:
    client = RemotingClient()
    try:
        answer = await client.invoke(name_server, Command(RequestCode.GET_BROKER_CLUSTER_INFO), SECONDS_MAX)
        assert answer.code == ResponseCode.SUCCESS
        table = json.loads(answer.body)["brokerAddrTable"]
        return {name: data["brokerAddrs"]["0"] for name, data in table.items()}
    finally:
        await client.close()


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes where Linux shows them")
def test_brokers_serve_together_and_all_stop_when_one_dies(tmp_path: Path) -> None:
    with cluster_at(tmp_path) as (process, ready):
        names = asyncio.run(broker_names(ready[0]["name-server"]))
        assert names == {"broker-a": ready[0]["broker"], "broker-b": ready[1]["broker"]}
        assert ready[0]["store"] == str(tmp_path / "broker-a") and ready[1]["store"] == str(tmp_path / "broker-b")
        os.kill(pid_of(ready[1]), signal.SIGKILL)
        log = tmp_path / "logs" / "up.log"
        until(lambda: "broker-b was killed by signal 9" in log.read_text())
        assert asyncio.run(broker_names(ready[0]["name-server"]))["broker-a"] == ready[0]["broker"]
        process.terminate()
        _, errors = process.communicate(timeout=SECONDS_MAX)
        assert process.returncode == 0
        assert "1 of 2 brokers are running" in errors
    assert not (tmp_path / "broker-a" / "abort").exists(), "closed cleanly"


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes where Linux shows them")
def test_brokers_end_with_their_parent_and_the_last_ends_all(tmp_path: Path) -> None:
    with cluster_at(tmp_path / "first") as (process, ready):
        process.kill()
        until(lambda: not any((Path(each["store"]) / "abort").exists() for each in ready))
    with cluster_at(tmp_path / "second") as (process, ready):
        for each in ready:
            os.kill(pid_of(each), signal.SIGKILL)
        _, errors = process.communicate(timeout=SECONDS_MAX)
        assert process.returncode == 1
        assert errors.splitlines()[-1] == "orbitlog: all brokers have ended unexpectedly; see their logs"


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (("--dispatch", "spark"), "--brokers needs inline dispatch"),
        (("--broker-port", "65530"), "would have port 65540"),
        ((), "is the store of one broker"),
    ],
)
def test_invalid_values_are_reported(tmp_path: Path, more: tuple[str, ...], sentence: str) -> None:
    if not more:
        (tmp_path / "commitlog").mkdir()
    told = subprocess.run(words(tmp_path, *more), capture_output=True, text=True, timeout=SECONDS_MAX)
    assert told.returncode == 2
    assert sentence in told.stderr


def test_replicas_need_inline_dispatch(tmp_path: Path) -> None:
    command = [*PROGRAM, "up", "--store", str(tmp_path), "--replicas", "2", "--coordinator", "etcd"]
    done = subprocess.run([*command, "--dispatch", "spark"], capture_output=True, text=True, timeout=SECONDS_MAX)
    assert done.returncode == 2
    assert "--replicas needs inline dispatch" in done.stderr
