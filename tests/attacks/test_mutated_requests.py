"""Mutated requests of every code over live sockets: each is answered or ends its connection, and the broker serves on.

`ORBITLOG_ATTACK` multiplies the number of requests (`make attack`).
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator

from orbitlog.testing.running_broker import RunningBroker
from orbitlog.wire.codes import RequestCode
from tests.support.raw_peer import RawPeer, raw_frame

TIMES = int(os.environ.get("ORBITLOG_ATTACK", "1"))
MUTATIONS_PER_CODE = 12 * TIMES
SEED = 20260612
ALIVE = raw_frame(28, opaque=77_777)
VALUES = ("", "0", "-1", "1", "9" * 30, "x" * 300, "\x00", "%RETRY%g", "TBW102", "true", "1e9", "*", "a;b;c", "..", "/")
NAMES = (
    *("topic", "group", "consumerGroup", "queueId", "offset", "queueOffset", "commitOffset", "maxMsgNums", "sysFlag"),
    *(
        "timestamp",
        "key",
        "maxNum",
        "extraInfo",
        "a",
        "b",
        "e",
        "i",
        "topicList",
        "clientId",
        "brokerName",
        "namespace",
    ),
)
BODIES = (b"", b"{}", b"[]", b'{"clientID":"c"}', b"\0" * 64, b'{"a":{"$ref":"$"}}', b"x" * 5_000, b'{"topic":null}')


def mutated(chance: random.Random, code: int, opaque: int) -> bytes:
    fields = {name: chance.choice(VALUES) for name in chance.sample(NAMES, chance.randrange(len(NAMES)))}
    frame = bytearray(raw_frame(code, fields, chance.choice(BODIES), opaque=opaque))
    if chance.random() < 0.3:
        frame[chance.randrange(len(frame))] ^= 1 << chance.randrange(8)
    elif chance.random() < 0.1:
        del frame[chance.randrange(1, len(frame)) :]
    return bytes(frame)


def requests(chance: random.Random, count: int) -> Iterator[bytes]:
    for code in RequestCode:
        for number in range(count):
            yield mutated(chance, int(code), number + 1)


def attack(address: str, count: int) -> None:
    frames = requests(random.Random(SEED), count)
    for frame in frames:
        with RawPeer(address) as peer:
            try:
                peer.send(frame)
                peer.socket.shutdown(1)
            except OSError:
                continue
            assert peer.is_closed_by_server(), frame[:200]


def test_every_mutated_request_is_answered_or_ends_its_connection(start_target: Callable[..., RunningBroker]) -> None:
    target = start_target()
    for address in (target.broker_address, target.address):
        attack(address, MUTATIONS_PER_CODE // 2)
    with RawPeer(target.broker_address) as peer:
        assert peer.ask(28).code == 0
