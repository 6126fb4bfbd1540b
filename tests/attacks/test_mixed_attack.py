"""A mixed hostile load beside an honest producer and consumer: no message is lost, and memory stays bounded.

`make attack` runs it for ten minutes and also compares the latency of honest sends with that of quiet seconds.
"""

from __future__ import annotations

import os
import random
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest

from orbitlog.formats.records.message import decode_message
from orbitlog.wire.codes import ResponseCode
from tests.support.raw_peer import RawPeer, framed, raw_frame
from tests.support.raw_requests import SEND, TOPIC
from tests.support.serving_process import serving

SECONDS = float(os.environ.get("ORBITLOG_ATTACK_SECONDS", "20"))
IS_LONG = SECONDS >= 60
QUIET_SECONDS = 5.0 if IS_LONG else 1.0
MEMORY_KIB_MAX = 1024 * 1024
LATENCY_FACTOR_MAX = 5.0
PULL = {
    **{"consumerGroup": "honest", "topic": TOPIC, "queueId": "0", "maxMsgNums": "32", "sysFlag": "4"},
    **{"commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0"},
}
HELD = raw_frame(11, {**PULL, "queueId": "1", "queueOffset": "0", "sysFlag": "6", "suspendTimeoutMillis": "60000"})
REFERENCES = orjson.dumps({"clientID": "c", "x": {str(n): n for n in range(5_000)}, "y": [{"$ref": "$.x"}] * 500})

LOCKS = orjson.dumps({"consumerGroup": "g", "clientId": "c", "mqSet": [{"queueId": n} for n in range(5_000)]})
QUERY = {"topic": TOPIC, "key": "BB", "maxNum": "64", "beginTimestamp": "0", "endTimestamp": "9" * 15}


def hostile_frames(chance: random.Random) -> list[Callable[[], bytes]]:
    """Return one generator of bytes for each kind of attack."""
    return [
        lambda: HELD * 500,
        lambda: raw_frame(11, {}, bytes(3_000_000)),
        lambda: raw_frame(34, {}, REFERENCES),
        lambda: raw_frame(34, {}, b"{clientID:'c',x:[" + b"1," * 100_000 + b"1]}"),
        lambda: raw_frame(34, {}, b"[" * 100_000),
        lambda: raw_frame(
            41, {}, orjson.dumps({"consumerGroup": "g", "mqSet": [{"queueId": n} for n in range(5_000)]})
        ),
        lambda: raw_frame(208, {"consumerGroup": "g", "topicList": "BenchmarkTest;" * 4_000}),
        lambda: framed(struct.pack(">hbhiii", 28, 0, 0, 1, 0, 0) + bytes(60_000), serialization=1),
        lambda: (8 * 1024 * 1024).to_bytes(4) + (100).to_bytes(4) + bytes(50_000),
        lambda: chance.randbytes(200),
        lambda: raw_frame(15, {"consumerGroup": "g", "topic": TOPIC, "queueId": "99999", "commitOffset": "1"}) * 200,
        lambda: raw_frame(
            12, {"topic": TOPIC, "key": "BB", "maxNum": "64", "beginTimestamp": "0", "endTimestamp": "9" * 15}
        ),
    ]


class Attacker(threading.Thread):
    """Sends attacks of all kinds until it is stopped, and reads few of the responses."""

    def __init__(self, address: str, seed: int, ended: threading.Event) -> None:
        super().__init__(daemon=True)
        self._address = address
        self._chance = random.Random(seed)
        self._ended = ended

    def run(self) -> None:
        kinds = hostile_frames(self._chance)
        while not self._ended.is_set():
            try:
                with RawPeer(self._address) as peer:
                    peer.socket.settimeout(0.2)
                    for _ in range(self._chance.randrange(1, 5)):
                        peer.send(self._chance.choice(kinds)())
                    if self._chance.random() < 0.5:
                        peer.socket.recv(65536)
            except OSError:
                continue


class Producer(threading.Thread):
    """Sends numbered messages one after another; `acknowledged` is the ledger."""

    def __init__(self, address: str, ended: threading.Event) -> None:
        super().__init__(daemon=True)
        self._address = address
        self._ended = ended
        self.acknowledged: list[bytes] = []
        self.latencies: list[float] = []

    def run(self) -> None:
        with RawPeer(self._address) as peer:
            number = 0
            while not self._ended.is_set():
                number += 1
                body = b"message %d" % number
                began = time.monotonic()
                if peer.ask(310, SEND, body).code == ResponseCode.SUCCESS:
                    self.acknowledged.append(body)
                self.latencies.append(time.monotonic() - began)
                time.sleep(0.005)


def received(address: str) -> Iterator[bytes]:
    """Yield the bodies of all messages of the queue, in order."""
    queue_offset = 0
    with RawPeer(address) as peer:
        while True:
            answer = peer.ask(11, {**PULL, "queueOffset": str(queue_offset)})
            if answer.code != ResponseCode.SUCCESS:
                return
            position = 0
            while position < len(answer.body):
                message = decode_message(answer.body, position)
                position += message.size_bytes
                queue_offset = message.queue_offset + 1
                yield message.body


@contextmanager
def under_attack(addresses: list[str]) -> Iterator[None]:
    ended = threading.Event()
    attackers = [Attacker(address, seed, ended) for seed, address in enumerate(addresses * 3)]
    for attacker in attackers:
        attacker.start()
    try:
        yield
    finally:
        ended.set()
        for attacker in attackers:
            attacker.join(30)


def high_water_kib(process_id: int) -> int:
    status = Path(f"/proc/{process_id}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


def p99(latencies: list[float]) -> float:
    return sorted(latencies)[int(len(latencies) * 0.99)]


@pytest.mark.slow
def test_honest_clients_lose_nothing_under_a_mixed_attack(tmp_path: Path) -> None:
    options = ("up", "--store", str(tmp_path), "--name-server-port", "0", "--broker-port", "0")
    with serving(*options) as (process, ready):
        addresses = [ready["broker"], ready["name-server"]]
        stopped = threading.Event()
        producer = Producer(addresses[0], stopped)
        producer.start()
        time.sleep(QUIET_SECONDS)
        quiet = p99(producer.latencies)
        producer.latencies.clear()
        with under_attack(addresses):
            time.sleep(SECONDS)
            attacked = p99(producer.latencies)
        time.sleep(1.0)
        producer.latencies.clear()
        time.sleep(QUIET_SECONDS)
        afterwards = p99(producer.latencies)
        stopped.set()
        producer.join(30)
        assert not producer.is_alive() and len(producer.acknowledged) > 10
        assert set(producer.acknowledged) <= set(received(addresses[0]))
        assert high_water_kib(process.pid) < MEMORY_KIB_MAX
        if IS_LONG:
            assert attacked <= LATENCY_FACTOR_MAX * max(quiet, 0.01)
            assert afterwards <= LATENCY_FACTOR_MAX * max(quiet, 0.01), "normal a second after the attack"
