"""A mixed hostile load beside an honest producer and consumer: no message is lost, and memory stays bounded.

`make attack` runs it for ten minutes, prints its figures, and compares the latency of honest sends with two others:
that of quiet seconds, and that beside the same attack on another broker. The second is what the machine allows, because
attackers, clients and both brokers share its processors. The rest is due to the broker that is attacked.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest

from orbitlog.formats.records.message import decode_message
from orbitlog.wire.codes import ResponseCode
from tests.support.certificates import server_files
from tests.support.free_ports import free_port
from tests.support.hostile_load import KINDS
from tests.support.raw_peer import RawPeer
from tests.support.raw_requests import SEND
from tests.support.serving_process import attacked

SECONDS = float(os.environ.get("ORBITLOG_ATTACK_SECONDS", "8"))
IS_LONG = SECONDS >= 60
QUIET_SECONDS = 10.0 if IS_LONG else 1.0
BESIDE_SECONDS = 30.0
PROCESSES = 2
MEMORY_KIB_MAX = 1024 * 1024
LATENCY_FACTOR_MAX = 5.0
LATENCY_FLOOR_SECONDS = 0.01
ROOT = Path(__file__).resolve().parents[2]
HONEST_SEND = {**SEND, "b": "Honest"}
PULL = {
    **{"consumerGroup": "honest", "topic": "Honest", "queueId": "0", "maxMsgNums": "32", "sysFlag": "6"},
    **{"commitOffset": "0", "suspendTimeoutMillis": "1000", "subscription": "*", "subVersion": "0"},
}


class Producer(threading.Thread):
    """Sends numbered messages one after another; `acknowledged` is the ledger."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self._address = address
        self.is_over = False
        self.acknowledged: list[bytes] = []
        self.latencies: list[float] = []
        self.failures: list[str] = []

    def run(self) -> None:
        number = 0
        with RawPeer(self._address) as peer:
            while not self.is_over:
                number += 1
                body = b"message %d" % number
                began = time.monotonic()
                try:
                    answer = peer.ask(310, HONEST_SEND, body)
                except OSError as error:
                    self.failures.append(f"message {number}: {error!r}")
                    return
                self.latencies.append(time.monotonic() - began)
                if answer.code == ResponseCode.SUCCESS:
                    self.acknowledged.append(body)
                else:
                    self.failures.append(f"message {number}: {answer.code} {answer.remark}")
                time.sleep(0.005)


class Consumer(threading.Thread):
    """Pulls the same queue with long polling; `received` has the bodies in order."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self._address = address
        self.is_over = False
        self.received: list[bytes] = []

    def run(self) -> None:
        queue_offset = 0
        with RawPeer(self._address) as peer:
            while not self.is_over:
                answer = peer.ask(11, {**PULL, "queueOffset": str(queue_offset)})
                position = 0
                while answer.code == ResponseCode.SUCCESS and position < len(answer.body):
                    message = decode_message(answer.body, position)
                    assert message.queue_offset == queue_offset, "in order, and none is left out"
                    position += message.size_bytes
                    queue_offset += 1
                    self.received.append(message.body)


@contextmanager
def under_attack(targets: dict[str, str], counts: Counter[str]) -> Iterator[None]:
    words = [sys.executable, "-m", "tests.support.hostile_load"]
    attackers = [
        subprocess.Popen(
            [*words, str(number), orjson.dumps(targets).decode()],
            **{"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "cwd": ROOT},  # type: ignore[call-overload]
        )
        for number in range(PROCESSES)
    ]
    try:
        yield
    finally:
        for attacker in attackers:
            attacker.stdin.close()
        for attacker in attackers:
            try:
                counts.update(orjson.loads(attacker.stdout.read() or b"{}"))
                attacker.wait(30)
            finally:
                attacker.kill()
                attacker.stdout.close()


def high_water_kib(process_id: int) -> int:
    status = Path(f"/proc/{process_id}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


def p99(latencies: list[float]) -> float:
    return sorted(latencies)[int(len(latencies) * 0.99)]


def shown(latencies: list[float]) -> str:
    median, top = sorted(latencies)[len(latencies) // 2], max(latencies)
    return (
        f"p50 {median * 1000:.1f} ms, p99 {p99(latencies) * 1000:.1f} ms, max {top * 1000:.0f} ms of {len(latencies)}"
    )


def options_of(store: Path, ha_port: int) -> list[str]:
    files = server_files()
    settings = {
        "tls.server.mode": "permissive",
        "tls.server.certPath": files.certificate,
        "tls.server.keyPath": files.key,
        "enablePropertyFilter": "true",
        "haListenPort": str(ha_port),
    }
    sets = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    ports = ("--name-server-port", "0", "--broker-port", "0", "--metrics-port", "0")
    return ["up", "--store", str(store), *ports, *sets]


@contextmanager
def attackable(store: Path) -> Iterator[tuple[subprocess.Popen[str], dict[str, str]]]:
    """Start a broker; yield its process and the addresses to attack."""
    ha_port = free_port()
    with attacked(*options_of(store, ha_port)) as (process, ready):
        metrics = str(ready["metrics"]).removeprefix("http://").partition("/")[0]
        targets = {"broker": ready["broker"], "name_server": ready["name-server"]}
        yield process, targets | {"metrics": metrics, "ha": f"127.0.0.1:{ha_port}"}


def beside_an_attack_on_another(store: Path, producer: Producer) -> list[float]:
    """Return latencies of honest sends to an idle broker while another one is attacked."""
    with attackable(store) as (_, targets), under_attack(targets, Counter()):
        taken(producer)
        time.sleep(BESIDE_SECONDS)
        return taken(producer)


def taken(producer: Producer) -> list[float]:
    """Return the latencies since the last call."""
    latencies, producer.latencies = producer.latencies, []
    return latencies


@pytest.mark.slow
def test_honest_clients_lose_nothing_under_a_mixed_attack(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    counts: Counter[str] = Counter()
    with attackable(tmp_path / "attacked") as (process, targets):
        producer, consumer = Producer(targets["broker"]), Consumer(targets["broker"])
        producer.start()
        consumer.start()
        time.sleep(QUIET_SECONDS)
        quiet = taken(producer)
        beside = beside_an_attack_on_another(tmp_path / "another", producer) if IS_LONG else quiet
        with under_attack(targets, counts):
            time.sleep(SECONDS)
            during = taken(producer)
        time.sleep(1.0)
        taken(producer)
        time.sleep(QUIET_SECONDS)
        afterwards = taken(producer)
        producer.is_over = True
        producer.join(60)
        deadline = time.monotonic() + 30
        while len(consumer.received) < len(producer.acknowledged) and time.monotonic() < deadline:
            time.sleep(0.05)
        consumer.is_over = True
        consumer.join(30)
        memory_kib = high_water_kib(process.pid)
        assert process.poll() is None
    with capsys.disabled():
        sys.stdout.write(
            f"\nmixed attack of {SECONDS:g} s, honest sends beside it\n"
            f"  quiet      {shown(quiet)}\n"
            f"  beside an attack on another broker  {shown(beside)}\n"
            f"  attacked   {shown(during)} ({p99(during) / p99(quiet):.1f} times the quiet p99,"
            f" {p99(during) / p99(beside):.1f} times that beside)\n"
            f"  from 1 s after the end  {shown(afterwards)}\n"
            f"  {len(producer.acknowledged)} acknowledged, {len(consumer.received)} received,"
            f" {len(producer.failures)} failures, high water of memory {memory_kib // 1024} MiB\n"
            f"  {sum(counts.values())} attacks: {dict(counts.most_common())}\n"
        )
    assert not producer.failures and not producer.is_alive()
    assert len(producer.acknowledged) > 10
    assert consumer.received == producer.acknowledged
    assert memory_kib < MEMORY_KIB_MAX
    if IS_LONG:
        kinds = {kind for kinds in KINDS.values() for kind in kinds}
        assert not kinds - set(counts), "every attack was made"
        limit = LATENCY_FACTOR_MAX * max(p99(quiet), LATENCY_FLOOR_SECONDS)
        assert p99(during) <= limit
        assert p99(afterwards) <= limit, "normal a second after the attack"
        of_machine = max(p99(quiet), p99(beside))
        assert p99(during) <= LATENCY_FACTOR_MAX * of_machine, "the broker's own part"
        assert p99(afterwards) <= LATENCY_FACTOR_MAX * of_machine
