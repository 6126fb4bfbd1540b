"""A Spark query dispatches a live store: killed with kill -9, stopped, recalled; the bytes are those of one engine.

`ORBITLOG_DISPATCH_KILLS=100` lets so many drivers die instead of one; `test_kills` kills them among other jobs. The
seed is printed; times of kills are random.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

import orbitlog as mq
from orbitlog.jobs.check.store_check import check_with
from orbitlog.jobs.local_runner import run_here
from orbitlog.jobs.log_splits import SPLIT_BYTES_DEFAULT
from orbitlog.settings.store_settings import StoreSettings
from tests.spark.live_store import check_store, live_writer, messages_of

HAS_JAVA = bool(os.environ.get("JAVA_HOME") or shutil.which("java"))
KILLS = int(os.environ.get("ORBITLOG_DISPATCH_KILLS", "1"))

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif(not HAS_JAVA, reason="Spark needs Java 17 or newer; `make setup` says how to get it"),
]


@contextmanager
def dispatching(root: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    orbitlog = Path(sys.executable).with_name("orbitlog")
    command = [str(orbitlog), "pipeline", "dispatch", str(root), "--master", "local[2]", "--json", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def events(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    assert process.stdout is not None
    for line in process.stdout:
        yield json.loads(line)


def wait_until_taken(process: subprocess.Popen[str]) -> None:
    event = next(events(process), None)
    if event is None:
        assert process.stderr is not None
        raise AssertionError(f"it ended with {process.wait()}: {process.stderr.read()}")
    assert event["event"] == "taken"


@pytest.mark.xdist_group("spark-dispatch")
def test_drivers_die_and_the_bytes_are_those_of_one_engine(tmp_path: Path) -> None:
    seed = KILLS
    print(f"seed {seed}, {KILLS} kills")
    root, chance = tmp_path / "store", Random(seed)
    with live_writer(root, seed, rate=1500) as writer:
        for kill in range(KILLS):
            with dispatching(root) as driver:
                wait_until_taken(driver)
                before = writer.ask("status")["dispatched_to"]
                if chance.random() < 0.8:
                    writer.wait_until(lambda now, at=before: now["dispatched_to"] > at, "a batch")
                time.sleep(chance.random())
                driver.kill()
            if kill % 2 == 0:
                assert writer.ask("back")["is_inline"]
                assert writer.ask("over")["engine"] == "inline"
        with dispatching(root) as driver:
            wait_until_taken(driver)
            writer.ask("pause")
            found = writer.wait_until(lambda now: now["dispatched_to"] == now["written_to"], "all dispatched")
            assert found["engine"] == "spark"
            driver.send_signal(signal.SIGTERM)
            done = list(events(driver))[-1]
            assert driver.wait() == 0
            assert done["event"] == "done"
        lease = json.loads((root / "orbitlog.lease").read_text())
        assert (lease["engine"], lease["isReleased"]) == ("spark", True)
        ended = writer.ask("close")
    messages = check_store(root)
    assert messages == ended["sent"] > 0
    units = sum(one.transaction_type.enters_queue for one in messages_of(root))
    assert ended["arrived"] == units, "every message arrives once"


@pytest.mark.xdist_group("spark-dispatch")
def test_once_and_a_broker_that_wants_it_back(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with live_writer(root, 7, rate=4000) as writer:
        writer.wait_until(lambda now: now["sent"] > 4000, "messages")
        writer.ask("pause")
        with dispatching(root, "--once") as driver:
            said = list(events(driver))
            assert driver.wait() == 0
        assert (said[0]["event"], said[-1]["event"]) == ("taken", "done")
        found = writer.wait_until(lambda now: now["dispatched_to"] == now["written_to"], "followed")
        assert said[-1]["messages"] == found["sent"]
        with dispatching(root) as driver:
            told = events(driver)
            assert next(told)["event"] == "taken"
            assert writer.ask("back")["is_inline"], "a running driver gives it back when asked"
            waiting = next(one for one in told if one["event"] == "waiting")
            assert "dispatches itself" in waiting["waitsFor"]
            writer.ask("over")
            assert next(one for one in told if one["event"] == "taken")["epoch"] > said[0]["epoch"]
            writer.ask("close")
            assert [one["event"] for one in told][-1] == "done", "it ends when the broker is gone"
            assert driver.wait() == 0
    check_store(root)


@pytest.mark.xdist_group("spark-dispatch")
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the child is found below /proc")
def test_a_broker_whose_spark_is_killed_dispatches_itself_until_it_is_back(tmp_path: Path) -> None:
    root = tmp_path / "store"
    command = [str(Path(sys.executable).with_name("orbitlog")), "up", "--store", str(root), "--dispatch", "spark"]
    command += ["--name-server-port", "0", "--broker-port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as broker:
        try:
            assert broker.stdout is not None
            ready = json.loads(broker.stdout.readline())
            with mq.connect(f"rocketmq://{ready['name-server']}") as client:
                sent = [f"m{number}" for number in range(30)]
                for body in sent[:10]:
                    client.send("Orders", body)
                found: list[str] = []
                for message in client.consume("Orders", group="g", start_from="first"):
                    found.append(message.text)
                    if len(found) == 10:
                        epoch = wait_for_spark(root, 0)
                        os.kill(child_of(broker.pid, b"dispatch"), signal.SIGKILL)
                    if len(found) == 20:
                        # It is restarted beside a broker that dispatches, and asks for its work.
                        wait_for_spark(root, epoch)
                    if len(found) == len(sent):
                        break
                    if len(found) in {10, 20}:
                        for body in sent[len(found) : len(found) + 10]:
                            client.send("Orders", body)
                assert sorted(found) == sorted(sent), "each arrives once"
            broker.terminate()
            assert broker.wait() == 0
        finally:
            broker.kill()
    told = Path(ready["log"]).read_text()
    assert "Spark dispatch has ended (killed by signal 9)" in told
    assert "the broker has taken dispatch back" in told and "handing dispatch over" in told
    (checked,) = check_with(run_here, [root], settings=StoreSettings(), split_bytes=SPLIT_BYTES_DEFAULT)
    assert not checked.finding_count and checked.messages == len(sent), checked.findings


def wait_for_spark(root: Path, epoch: int) -> int:
    """Wait until Spark holds the lease under a later epoch, and return that."""
    until_s = time.monotonic() + 240
    while time.monotonic() < until_s:
        lease = json.loads((root / "orbitlog.lease").read_text())
        if lease["engine"] == "spark" and lease["epoch"] > epoch:
            return int(lease["epoch"])
        time.sleep(0.1)
    raise AssertionError(f"Spark has not taken dispatch: {lease}")


def child_of(pid: int, word: bytes) -> int:
    """Find the child of a process by a word of its command."""
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            try:
                parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
                if parent == pid and word in (process / "cmdline").read_bytes().split(b"\0"):
                    return int(process.name)
            except (FileNotFoundError, ProcessLookupError):
                continue
    raise AssertionError(f"process {pid} has no child with {word!r}")
