"""A broker connection over a fake transport: request frames go in, and its responses are kept.

All time measured is the broker's own: no sockets, no client and no event loop are involved. The same requests take the
same steps, so operations can be counted as well as timed.
"""

from __future__ import annotations

import asyncio
import re
import struct
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import orjson

from orbitlog.access.credentials import Credentials
from orbitlog.access.request_signature import ACCESS_KEY, SIGNATURE, signature_of
from orbitlog.broker.runtime.broker_node import Broker
from orbitlog.broker.runtime.broker_settings import BrokerSettings
from orbitlog.formats.records.batch import BATCH_MEMBER
from orbitlog.remoting.connection import Connection
from orbitlog.wire.codes import RequestCode
from orbitlog.wire.command import FLAG_ONEWAY

TOPIC = "Compare"
QUEUES = 8
PEER = ("127.0.0.1", 50_000)
_PLACE = re.compile(rb'"msgId":"[0-9A-F]{16}([0-9A-F]{16})","queueId":"[0-9]+","queueOffset":"([0-9]+)"')


class FakeTransport:
    """Transport of a connection: counts writes, and keeps the last bytes or all of them."""

    def __init__(self, *, keeps: bool = False, peer: tuple[str, int] = PEER) -> None:
        self.peer = peer
        self.calls = 0
        self.last = b""
        self.kept: list[bytes] | None = [] if keeps else None
        self.is_closed = False
        self.connection: Connection | None = None

    def write(self, data: bytes) -> None:
        self.calls += 1
        self.last = data
        if self.kept is not None:
            self.kept.append(bytes(data))

    def writelines(self, parts: Iterable[bytes]) -> None:
        self.write(b"".join(parts))

    def get_extra_info(self, name: str, default: object = None) -> object:
        return {"peername": self.peer, "sockname": ("127.0.0.1", 10_911)}.get(name, default)

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        if not self.is_closed and self.connection is not None:
            asyncio.get_running_loop().call_soon(self.connection.connection_lost, None)
        self.is_closed = True

    def abort(self) -> None:
        self.close()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


class HotPath:
    """One broker, and a connection to it over a fake transport."""

    def __init__(self, broker: Broker, *, keeps: bool = False) -> None:
        self.broker = broker
        self.transport = FakeTransport(keeps=keeps)
        self.connection = self.transport.connection = cast(Connection, broker._listeners.main._accept())
        self.connection.connection_made(cast(asyncio.Transport, self.transport))

    def feed(self, data: bytes) -> None:
        self.connection.data_received(data)

    def feed_commits(self, data: bytes) -> None:
        """Feed what arrives in one turn of the event loop, and run the broker's work at its end."""
        self.feed(data)
        self.broker._sends.fast_path._transactions._ends.write()

    def dispatch(self) -> None:
        """Dispatch at once, without the delay of the broker."""
        scheduler, store = self.broker._scheduler, self.broker.state.store
        if scheduler.delayed_step is not None:
            scheduler.delayed_step.cancel()
        while store.dispatched_to < store.confirmed_to:
            scheduler.run_step()

    def close(self) -> None:
        self.transport.close()


@asynccontextmanager
async def hot_path_at(root: Path, *, kernels: bool = True, **settings: str) -> AsyncIterator[HotPath]:
    """Start a broker with a topic of eight queues, and yield a connection to it."""
    broker = Broker(BrokerSettings({"listenPort": "0", "vipChannelEnable": "false", **settings}), root)
    await broker.start()
    try:
        broker.state.topics.find_or_create(TOPIC, QUEUES)
        if kernels:
            broker.state.store.load_kernels()
        broker._scheduler.kernels_requested = True
        path = HotPath(broker)
        # The first message of each queue creates files, which is not measured.
        path.feed(b"".join(sends(QUEUES)))
        path.dispatch()
        await asyncio.sleep(0)
        try:
            yield path
        finally:
            path.close()
    finally:
        await broker.stop()


def frame(code: int, opaque: int, ext_fields: dict[str, str], body: bytes = b"", flag: int = 0) -> bytes:
    """Encode a request as the Java client does: JSON with sorted fields."""
    header = orjson.dumps(
        {
            "code": int(code),
            "extFields": ext_fields,
            "flag": flag,
            "language": "JAVA",
            "opaque": opaque,
            "serializeTypeCurrentRPC": "JSON",
            "version": 479,
        }
    )
    return struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body


def _properties(number: int) -> str:
    return f"KEYS\x01key{number}\x02UNIQ_KEY\x017F000001{number:024X}\x02WAIT\x01true\x02TAGS\x01tag\x02"


def _send_fields(queue_id: int, properties: str, *, is_batch: bool = False) -> dict[str, str]:
    return {
        "a": "load_producers",
        "b": TOPIC,
        "c": "TBW102",
        "d": "4",
        "e": str(queue_id),
        "f": "0",
        "g": "1731700000000",
        "h": "0",
        "i": properties,
        "j": "0",
        "k": "false",
        "m": "true" if is_batch else "false",
        "n": "broker-a",
    }


def sends(count: int, body_bytes: int = 128, first: int = 1) -> list[bytes]:
    """Return frames of SEND_MESSAGE_V2 as the Java client sends them, over all queues in turn."""
    body = b"x" * body_bytes
    return [
        frame(RequestCode.SEND_MESSAGE_V2, number, _send_fields(number % QUEUES, _properties(number)), body)
        for number in range(first, first + count)
    ]


def signed_sends(count: int, credentials: Credentials, body_bytes: int = 128, first: int = 1) -> list[bytes]:
    """Return the same frames with the credentials and the signature of an account."""
    body, frames = b"x" * body_bytes, []
    for number in range(first, first + count):
        fields = {ACCESS_KEY: credentials.access_key, **_send_fields(number % QUEUES, _properties(number))}
        fields = {SIGNATURE: signature_of(credentials.secret_key, fields, body), **fields}
        frames.append(frame(RequestCode.SEND_MESSAGE_V2, number, fields, body))
    return frames


def sends_to_many(count: int, topics: Sequence[str], queue_count: int, body_bytes: int = 128) -> list[bytes]:
    """Return frames of sends over all topics in turn, and over all queues of each."""
    frames = []
    for number in range(count):
        fields = _send_fields(number // len(topics) % queue_count, _properties(number))
        fields["b"] = topics[number % len(topics)]
        frames.append(frame(RequestCode.SEND_MESSAGE_V2, number + 1, fields, b"x" * body_bytes))
    return frames


def batches(count: int, members: int = 32, body_bytes: int = 128, first: int = 1) -> list[bytes]:
    """Return frames of SEND_BATCH_MESSAGE."""
    frames = []
    for number in range(first, first + count):
        body = b"".join(_member(b"x" * body_bytes, number * members + each) for each in range(members))
        fields = _send_fields(number % QUEUES, f"UNIQ_KEY\x017F000001{number:024X}\x02WAIT\x01true\x02", is_batch=True)
        frames.append(frame(RequestCode.SEND_BATCH_MESSAGE, number, fields, body))
    return frames


def halves(count: int, body_bytes: int = 128, first: int = 1) -> list[bytes]:
    """Return frames of half messages as the Java client sends them."""
    return [
        frame(RequestCode.SEND_MESSAGE_V2, number, _half_fields(number), b"x" * body_bytes)
        for number in range(first, first + count)
    ]


def _half_fields(number: int) -> dict[str, str]:
    properties = f"{_properties(number)}TRAN_MSG\x01true\x02PGROUP\x01load_producers\x02"
    return _send_fields(number % QUEUES, properties) | {"f": "4"}


def commits(answers: bytes) -> list[bytes]:
    """Return one-way frames of END_TRANSACTION that commit the half messages in these responses."""
    return [
        frame(
            RequestCode.END_TRANSACTION,
            number,
            {
                "commitLogOffset": str(int(place, 16)),
                "commitOrRollback": "8",
                "fromTransactionCheck": "false",
                "producerGroup": "load_producers",
                "tranStateTableOffset": queue_offset.decode(),
            },
            flag=FLAG_ONEWAY,
        )
        for number, (place, queue_offset) in enumerate(_PLACE.findall(answers), 1)
    ]


def _member(body: bytes, number: int) -> bytes:
    properties = _properties(number).encode()
    total = BATCH_MEMBER.size_bytes + len(body) + 2 + len(properties)
    head = BATCH_MEMBER.struct.pack(total, 0, 0, 0, len(body))
    return head + body + struct.pack(">h", len(properties)) + properties


def pulls(queue_offsets: Sequence[int], queue_id: int = 0, count_max: int = 32, **more: Any) -> list[bytes]:
    """Return frames of PULL_MESSAGE as the Java client sends them, with a subscription to all messages."""
    return [
        frame(
            RequestCode.PULL_MESSAGE,
            number + 1,
            {
                "commitOffset": "0",
                "consumerGroup": "load_consumers",
                "expressionType": "TAG",
                "maxMsgBytes": "2147483647",
                "maxMsgNums": str(count_max),
                "queueId": str(queue_id),
                "queueOffset": str(queue_offset),
                "subVersion": "1731700000000",
                "subscription": "*",
                "suspendTimeoutMillis": "15000",
                "sysFlag": "6",
                "topic": TOPIC,
                **more,
            },
        )
        for number, queue_offset in enumerate(queue_offsets)
    ]
