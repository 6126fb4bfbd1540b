"""A hostile load: attacks of all kinds that a peer on the network can make, in a process of its own.

    python -m tests.support.hostile_load SEED TARGETS

TARGETS is a JSON object with the addresses of a broker, a name server, its metrics and its HA port. The process attacks
until its standard input ends, and then prints how often it made each attack.
"""

from __future__ import annotations

import os
import random
import select
import socket
import struct
import sys
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

import orjson

from tests.support.mutations import Mutations
from tests.support.raw_peer import RawPeer, framed, raw_frame
from tests.support.raw_requests import HELD_PULL, SEND

THREADS = 4
PAUSE_SECONDS = 0.01
SECONDS_MAX = 3_600.0
HOSTILE = "Hostile"
SEND_HOSTILE = {**SEND, "b": HOSTILE}
QUERY = {"topic": HOSTILE, "key": "BB", "maxNum": "64", "beginTimestamp": "0", "endTimestamp": "9" * 15}
POP = {"topic": "BenchmarkTest", "queueId": "-1", "maxMsgNums": "32", "invisibleTime": "10000", "bornTime": "0"}
CODES = (10, 11, 12, 14, 15, 17, 26, 28, 30, 34, 35, 36, 38, 41, 42, 43, 46, 105, 202, 203, 206, 208, 310, 317, 320)
HELLO = bytes.fromhex(  # a ClientHello of TLS 1.2, with one cipher suite
    "16030100340100003003030000000000000000000000000000000000000000000000000000000000000000000002c02f01000005ff01000100"
)

Frames = Callable[[random.Random], bytes]


def properties(**values: str) -> str:
    return "".join(f"{name}\x01{value}\x02" for name, value in values.items())


def send(chance: random.Random, **values: str) -> bytes:
    return raw_frame(310, {**SEND_HOSTILE, "i": properties(UNIQ_KEY=f"{chance.random()}", **values)}, b"body")


def heartbeat(data: object) -> bytes:
    return raw_frame(34, {}, orjson.dumps(data))


def groups(chance: random.Random) -> bytes:
    names = [
        f"g{chance.randrange(30_000)}\n\x1b[31m" if chance.random() < 0.1 else f"g{number}" for number in range(50)
    ]
    consumers = [{"groupName": name, "subscriptionDataSet": [{"topic": HOSTILE, "subString": "*"}]} for name in names]
    return heartbeat({"clientID": f"evil\nforged line \x1b]52;{chance.random()}", "consumerDataSet": consumers})


def registration(chance: random.Random) -> bytes:
    fields = {
        **{"brokerName": "broker-a", "brokerAddr": "6.6.6.6:1", "clusterName": "DefaultCluster", "brokerId": "0"},
        **{"haServerAddr": "6.6.6.6:2", "compressed": "true", "bodyCrc32": "0", "heartbeatTimeoutMillis": "9" * 12},
    }
    if chance.random() < 0.5:
        fields["brokerName"] = f"b{chance.randrange(1_000)}"
    topics = {f"T{number}": {"topicName": f"T{number}"} for number in range(chance.randrange(2_000))}
    body = {"topicConfigSerializeWrapper": {"topicConfigTable": topics, "dataVersion": {"counter": 99}}}
    return raw_frame(103, fields, zlib.compress(orjson.dumps(body)))


def mutated(chance: random.Random) -> bytes:
    mutations = Mutations(chance.choice(CODES), chance.randrange(1 << 30))
    return b"".join(mutations.frames(20)) + mutations.damaged(21)


BROKER: dict[str, Frames] = {
    "system topics": lambda _: raw_frame(310, {**SEND, "b": "rmq_sys_wheel_timer", "i": properties(REAL_TOPIC="a/b")}),
    "poisoned timers": lambda chance: send(chance, TIMER_DELAY_SEC="1", REAL_QID="9" * 6_000),
    "many topics": lambda chance: raw_frame(
        18, {}, orjson.dumps({"topicConfigList": [{"topicName": f"t{chance.randrange(5_000)}"} for _ in range(20)]})
    ),
    "held pulls": lambda chance: raw_frame(11, {**HELD_PULL, "topic": HOSTILE, "queueOffset": "99999999"}) * 500,
    "bodies of pulls": lambda _: raw_frame(11, HELD_PULL, bytes(3_000_000)),
    "references": lambda _: heartbeat({"x": {str(n): n for n in range(5_000)}, "y": [{"$ref": "$.x"}] * 500}),
    "statistics": lambda _: raw_frame(208, {"consumerGroup": "g", "topicList": "BenchmarkTest;" * 4_000}),
    "loose JSON": lambda _: raw_frame(34, {}, b"{clientID:'c',x:[" + b"1," * 100_000 + b"1]}"),
    "nested JSON": lambda _: raw_frame(34, {}, b"[" * 100_000),
    "long digits": lambda chance: send(chance, a="1" * 20_000 + "x"),
    "SQL filters": lambda _: raw_frame(
        11, {**HELD_PULL, "topic": HOSTILE, "expressionType": "SQL92", "subscription": "a > 1.5", "sysFlag": "4"}
    ),
    "pops with new groups": lambda chance: raw_frame(
        200050, {**POP, "consumerGroup": f"pop{chance.randrange(1_000)}", "pollTime": "5000", "initMode": "0"}
    ),
    "tags that do not match": lambda chance: (
        raw_frame(11, {**HELD_PULL, "topic": HOSTILE, "subscription": "other", "queueId": "1"}) * 200 + send(chance)
    ),
    "many groups": groups,
    "many locks": lambda _: raw_frame(
        41, {}, orjson.dumps({"consumerGroup": "g", "mqSet": [{"queueId": n} for n in range(5_000)]})
    ),
    "long SQL": lambda _: heartbeat(
        {"consumerDataSet": [{"groupName": "g", "subscriptionDataSet": [{"subString": "a = 1 OR " * 2_000}] * 10}]}
    ),
    "bits of acknowledgements": lambda _: raw_frame(
        200151, {}, orjson.dumps({"acks": [{"c": "g", "t": HOSTILE, "b": "/" * 40_000} for _ in range(20)]})
    ),
    "offsets of no queue": lambda _: (
        raw_frame(15, {"consumerGroup": "g", "topic": HOSTILE, "queueId": "99999", "commitOffset": "1"}) * 200
    ),
    "many keys": lambda chance: send(chance, KEYS=" ".join(f"{n:x}" for n in range(3_000))),
    "settings": lambda _: raw_frame(
        25, {}, b"maxTransferBytesOnMessageInMemory=2147483647\nflushIntervalCommitLog=2147483647\n"
    ),
    "colliding keys": lambda chance: send(chance, KEYS="Aa") * 20 + raw_frame(12, QUERY),
    "pulls without reading": lambda _: raw_frame(11, {**HELD_PULL, "sysFlag": "4", "maxMsgNums": "32"}) * 500,
    "binary headers": lambda _: framed(struct.pack(">hbhiii", 28, 0, 0, 1, 0, 0) + bytes(60_000), serialization=1),
    "whole tables": lambda _: raw_frame(21) + raw_frame(43) + raw_frame(201) + raw_frame(317, {"isOrder": "false"}),
    "unfinished frames": lambda _: (3 * 1024 * 1024).to_bytes(4) + (100).to_bytes(4) + bytes(50_000),
    "noise": lambda chance: chance.randbytes(200),
    "mutations": mutated,
    "handshakes": lambda _: HELLO,
    "unfinished handshakes": lambda _: b"\x16\x03\x01\x40\x00\x01\x01\x00\x00" + bytes(16_000),
}
NAME_SERVER: dict[str, Frames] = {
    "takeovers": registration,
    "unregistrations": lambda _: raw_frame(
        104, {"brokerName": "broker-a", "brokerAddr": "6.6.6.6:1", "clusterName": "DefaultCluster", "brokerId": "0"}
    ),
    "inflation": lambda _: raw_frame(
        103,
        {"brokerName": "bomb", "brokerAddr": "6.6.6.6:1", "clusterName": "c", "brokerId": "0", "compressed": "true"},
        zlib.compress(bytes(40_000_000), 9),
    ),
    "routes": lambda chance: raw_frame(105, {"topic": f"t{chance.randrange(10_000)}"}) * 200 + raw_frame(206),
    "name server mutations": mutated,
    "name server handshakes": lambda _: HELLO,
}
METRICS: dict[str, Frames] = {
    "scrapes without reading": lambda _: b"GET /metrics HTTP/1.1\r\n\r\n",
    "slow HTTP requests": lambda _: b"GET /metr",
    "long HTTP headers": lambda _: b"GET / HTTP/1.1\r\nX: " + b"x" * 100_000,
}
HA: dict[str, Frames] = {
    "silent slaves": lambda _: b"\0\0\0",
    "slaves that do not read": lambda _: bytes(8),
    "false reports": lambda chance: bytes(8) + chance.randbytes(8) * 1_000,
}
KINDS = {"broker": BROKER, "name_server": NAME_SERVER, "metrics": METRICS, "ha": HA}


class Attacker(threading.Thread):
    """Makes attacks from one address until it is stopped, and reads few of the responses."""

    def __init__(self, targets: dict[str, str], seed: int, ended: threading.Event) -> None:
        super().__init__(daemon=True)
        self._targets = targets
        self._chance = random.Random(seed)
        self._source = f"127.0.0.{2 + seed % 200}"
        self._ended = ended
        self._open: list[RawPeer] = []  # connections that stay open for a while
        self.counts: Counter[str] = Counter()

    def run(self) -> None:
        while not self._ended.is_set():
            try:
                self._attack()
            except OSError:
                self.counts["closed or refused by the server"] += 1
            time.sleep(PAUSE_SECONDS)
        for peer in self._open:
            peer.close()

    def _attack(self) -> None:
        chance = self._chance
        target = chance.choices(list(self._targets), (12, 4, 1, 1))[0]
        peer = RawPeer(self._targets[target], receive_bytes=4_096, source=self._source)
        self._open.append(peer)
        peer.socket.settimeout(0.2)
        if len(self._open) > 40:
            self._open.pop(chance.randrange(len(self._open))).close()
        for _ in range(chance.randrange(1, 4)):
            kind, make = chance.choice(list(KINDS[target].items()))
            self.counts[kind] += 1
            peer.send(make(chance))
            if target in ("metrics", "ha"):
                break
        if chance.random() < 0.5:
            with suppress(TimeoutError):
                peer.socket.recv(65_536)
        if chance.random() < 0.1:
            peer.socket.shutdown(socket.SHUT_WR)


def main(seed: int, targets: dict[str, str]) -> None:
    os.nice(19)  # attackers stand for other machines: they must not take the processor of the server
    ended = threading.Event()
    attackers = [Attacker(targets, seed * THREADS + number, ended) for number in range(THREADS)]
    for attacker in attackers:
        attacker.start()
    select.select([sys.stdin], [], [], SECONDS_MAX)
    ended.set()
    total: Counter[str] = Counter()
    for attacker in attackers:
        attacker.join(10)
        total.update(attacker.counts)
    sys.stdout.write(orjson.dumps(total).decode() + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), orjson.loads(sys.argv[2]))
