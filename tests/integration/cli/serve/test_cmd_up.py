"""`orbitlog up` and `orbitlog broker` as processes: the ready line, addresses, signals, mistakes of the user."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

import orbitlog
from orbitlog.remoting.client import RemotingClient
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command
from tests.support.serving_process import PROGRAM, SECONDS_MAX, serving, start

MODULES_MAX = 196
NOT_TO_SERVE = {
    *("numpy", "numba", "llvmlite", "pyarrow", "pyspark", "pandas", "rich", "lz4", "backports", "cryptography"),
    *("decimal", "difflib", "email", "http", "multiprocessing", "secrets", "unittest", "xml"),
}


def up(root: Path, *words: str) -> tuple[str, ...]:
    return ("up", "--store", str(root), "--name-server-port", "0", "--broker-port", "0", *words)


async def route_address(name_server: str, topic: str = "TBW102") -> str:
    client = RemotingClient()
    try:
        request = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields={"topic": topic})
        answer = await client.invoke(name_server, request, SECONDS_MAX)
        assert answer.code == ResponseCode.SUCCESS
        address: str = json.loads(answer.body)["brokerDatas"][0]["brokerAddrs"]["0"]
        runtime = await client.invoke(address, Command(RequestCode.GET_BROKER_RUNTIME_INFO), SECONDS_MAX)
        assert runtime.code == ResponseCode.SUCCESS
        return address
    finally:
        await client.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_up_serves_until_it_is_stopped(tmp_path: Path, number: signal.Signals) -> None:
    with serving(*up(tmp_path)) as (process, ready):
        assert ready["ready"] is True and ready["seconds"] > 0
        assert asyncio.run(route_address(ready["name-server"])) == ready["broker"]
        process.send_signal(number)
        assert process.wait(SECONDS_MAX) == 0
    assert not (tmp_path / "abort").exists(), "closed cleanly"
    assert "stopped" in Path(ready["log"]).read_text()


def test_the_ready_line_can_be_read_by_people_and_scripts(tmp_path: Path) -> None:
    process = start(*up(tmp_path))
    try:
        assert process.stdout is not None
        words = process.stdout.readline().split()
        assert words[0] == "ready"
        facts = dict(word.split("=", 1) for word in words[1:])
        assert set(facts) == {"name-server", "broker", "store", "log", "seconds"}
    finally:
        process.kill()
        process.communicate(timeout=SECONDS_MAX)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has all of 127.0.0.0/8 without being asked")
def test_clients_get_the_address_that_they_dialled(tmp_path: Path) -> None:
    with serving(*up(tmp_path, "--host", "0.0.0.0", "--set", "allowAnonymous=true")) as (_, ready):
        for host in ("127.0.0.1", "127.0.0.7"):
            port = ready["name-server"].rpartition(":")[2]
            address = asyncio.run(route_address(f"{host}:{port}"))
            assert address == f"{host}:{ready['broker'].rpartition(':')[2]}"


def test_an_operator_can_say_the_address(tmp_path: Path) -> None:
    words = up(tmp_path, "--host", "0.0.0.0", "--set", "brokerIP1=127.0.0.1", "--set", "allowAnonymous=true")
    with serving(*words) as (_, ready):
        assert asyncio.run(route_address(ready["name-server"])) == ready["broker"]


def test_a_broker_registers_elsewhere(tmp_path: Path) -> None:
    with serving(*up(tmp_path / "first")) as (_, first):
        conf = tmp_path / "broker.conf"
        conf.write_text(f"brokerName=broker-b\nlistenPort=0\nnamesrvAddr={first['name-server']}\n")
        with serving("broker", "-c", str(conf), "--store", str(tmp_path / "second")) as (process, second):
            assert asyncio.run(route_address(first["name-server"], "broker-b")) == second["broker"]
            process.terminate()
            assert process.wait(SECONDS_MAX) == 0


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *words], capture_output=True, text=True, timeout=SECONDS_MAX, env={**os.environ, **environment}
    )


def test_settings_can_be_printed(tmp_path: Path) -> None:
    done = run("up", "--set", "maxMessageSize=2048", "--print-settings", ORBITLOG_SET_brokerName="mine")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert "maxMessageSize=2048" in lines and "brokerName=mine" in lines and "bindAddress=127.0.0.1" in lines


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (("--set", "listenPort=x"), 2, "listenPort=x from the command line"),
        (("--set", "nonsense"), 2, "is not key=value"),
        (("--dispatch", "magic"), 2, "magic"),
    ],
)
def test_a_mistake_ends_in_one_sentence(tmp_path: Path, words: tuple[str, ...], code: int, sentence: str) -> None:
    done = run(*up(tmp_path, *words))
    assert done.returncode == code and sentence in done.stderr and "Traceback" not in done.stderr


def test_port_that_is_taken_is_reported_in_one_sentence(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = run("up", "--store", str(tmp_path), "--name-server-port", port, "--broker-port", "0")
        assert done.returncode == 1 and "choose another port" in done.stderr and "Traceback" not in done.stderr
        done = run("up", "--store", str(tmp_path), "--name-server-port", "0", "--broker-port", port)
        assert done.returncode == 1 and "choose another port" in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "abort").exists()


def test_store_in_use_is_reported_in_one_sentence(tmp_path: Path) -> None:
    with serving(*up(tmp_path)):
        done = run(*up(tmp_path))
        assert done.returncode == 1 and "in use by another broker" in done.stderr and "Traceback" not in done.stderr


def is_package(name: str) -> bool:
    return (Path(orbitlog.__file__).parent.parent / name.replace(".", "/")).is_dir()


def test_no_more_is_imported_to_serve_than_that_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Imports take nearly all of a start: a module more before the ready line is a decision."""
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")
    process = start(*up(tmp_path, "--json"))
    try:
        assert process.stdout is not None and process.stdout.readline().startswith('{"ready":true')
        process.terminate()
        told = process.communicate(timeout=SECONDS_MAX)[1]
    finally:
        process.kill()
        process.communicate(timeout=SECONDS_MAX)
    loaded = {line.rpartition("|")[2].strip() for line in told.splitlines() if line.startswith("import time:")}
    ours = sorted(name for name in loaded if name.startswith("orbitlog.") and not is_package(name))
    assert "orbitlog.broker.sending.handle_send" in ours and len(ours) <= MODULES_MAX, ours
    assert not {name for name in loaded if name.partition(".")[0] in NOT_TO_SERVE}


def test_where_spark_ends_the_broker_dispatches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here it cannot even start; `tests/spark` kills one that dispatches."""
    pytest.importorskip("pyspark")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "no-java"))
    with serving(*up(tmp_path / "store", "--dispatch", "spark")) as (process, ready):
        with orbitlog.connect(f"rocketmq://{ready['name-server']}") as mq:
            mq.send("Orders", "hello")
            (found,) = itertools.islice(mq.consume("Orders", group="g", start_from="first"), 1)
            assert found.text == "hello"
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS_MAX) == 0
    told = Path(ready["log"]).read_text()
    assert "Spark dispatch has ended (exit status 1)" in told
    assert "the broker has taken dispatch back" in told
    assert "failed to run" in Path(ready["log"]).with_name("dispatch.log").read_text()


@pytest.mark.parametrize("is_secured", [False, True])
def test_console_of_up_is_open_without_access_control_only(
    is_secured: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = {"username": "ann", "password": "ann-secret"}
    secured = ("authenticationEnabled=true", f"initAuthenticationUser={json.dumps(user)}")
    words = [word for setting in secured for word in ("--set", setting)]
    if is_secured:
        monkeypatch.setenv("ORBITLOG_ACCESS_KEY", user["username"])
        monkeypatch.setenv("ORBITLOG_SECRET_KEY", user["password"])
    with serving(*up(tmp_path, "--console-port", "0", *(words if is_secured else ()))) as (_, ready):
        assert ("sign-in" in ready) == is_secured
        with pytest.raises(urllib.error.HTTPError, match="401") if is_secured else contextlib.nullcontext():
            with urllib.request.urlopen(f"{ready['console']}api/v1/clusters", timeout=SECONDS_MAX) as answer:
                assert answer.status == 200
        if is_secured:
            visitor = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
            with visitor.open(ready["sign-in"], timeout=SECONDS_MAX) as page:
                assert b"local admin" in page.read()
