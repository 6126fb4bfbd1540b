"""Load generator of `orbitlog bench`: clients in threads, each with its own event loop, connections and share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from orbitlog.cli.cluster_connection import run_with_admin, run_with_client
from orbitlog.cli.contexts import Cluster
from orbitlog.client.admin.administration import Administration
from orbitlog.client.connection.namespaces import wrapped
from orbitlog.client.rocketmq import RocketMQ
from orbitlog.errors import ConnectFailed, NoRoute, OrbitlogError

_ROUTE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class SendLoad:
    topic: str
    size: int
    count: int
    in_flight: int
    threads: int
    batch: int
    queues: int


@dataclass(frozen=True, slots=True)
class ConsumeLoad:
    topic: str
    count: int
    threads: int
    seconds: float


@dataclass(slots=True)
class Measured:
    """Measurements of one client, or the sum of all clients."""

    messages: int = 0
    size_bytes: int = 0
    failures: int = 0
    waits_s: list[float] = field(default_factory=list)
    seconds: float = 0.0
    cpu_s: float = 0.0

    def add(self, other: Measured) -> None:
        self.messages += other.messages
        self.size_bytes += other.size_bytes
        self.failures += other.failures
        self.waits_s += other.waits_s

    def row(self) -> dict[str, Any]:
        waits = sorted(self.waits_s)
        seconds = max(self.seconds, 1e-9)
        return {
            "messages": self.messages,
            "bytes": self.size_bytes,
            "seconds": round(self.seconds, 3),
            "messagesPerSecond": round(self.messages / seconds),
            "mebibytesPerSecond": round(self.size_bytes / seconds / (1 << 20), 1),
            "p50Ms": percentile_ms(waits, 0.50),
            "p99Ms": percentile_ms(waits, 0.99),
            "maxMs": percentile_ms(waits, 1.0),
            "cpuSeconds": round(self.cpu_s, 2),
            "cpuMicrosecondsPerMessage": round(self.cpu_s * 1e6 / self.messages, 1) if self.messages else None,
            "failures": self.failures,
        }


def percentile_ms(ordered_s: list[float], share: float) -> float | None:
    """Return the percentile of sorted latencies in milliseconds, None without any."""
    if not ordered_s:
        return None
    rank = max(-(-len(ordered_s) * share // 1), 1)
    return round(ordered_s[int(rank) - 1] * 1000, 3)


def shares(count: int, parts: int) -> list[int]:
    """Divide a number into `parts` parts that differ by at most 1."""
    return [count // parts + (number < count % parts) for number in range(parts)]


def run_send(cluster: Cluster, load: SendLoad) -> Measured:
    run_with_admin(cluster, lambda admin: _create_topic(admin, wrapped(cluster.namespace, load.topic), load.queues))

    def client(share: int) -> Callable[[RocketMQ], Coroutine[Any, Any, Measured]]:
        return lambda mq: _send_share(mq, load, share)

    return _in_threads(cluster, [client(share) for share in shares(load.count, load.threads) if share])


async def _create_topic(admin: Administration, topic: str, queues: int) -> None:
    try:
        await admin.routes.refresh(topic)
    except NoRoute:
        await admin.create_topic(topic, queues)
        async with asyncio.timeout(_ROUTE_SECONDS):
            while True:
                try:
                    await admin.routes.refresh(topic)
                    return
                except NoRoute:
                    await asyncio.sleep(0.1)


async def _send_share(mq: RocketMQ, load: SendLoad, share: int) -> Measured:
    done = Measured()
    body = (b"orbitlog bench " * (load.size // 15 + 1))[: load.size]
    left = share

    async def worker() -> None:
        nonlocal left
        while left > 0:
            count = min(load.batch, left)
            left -= count
            started = time.perf_counter()
            try:
                await (mq.send(load.topic, body) if count == 1 else mq.send_batch(load.topic, [body] * count))
            except ConnectFailed:
                raise  # no broker is reachable: an error helps more than a count of failures
            except OrbitlogError:
                done.failures += count
                continue
            done.waits_s.append(time.perf_counter() - started)
            done.messages += count
            done.size_bytes += count * load.size

    async with asyncio.TaskGroup() as workers:
        for _ in range(min(load.in_flight, share)):
            workers.create_task(worker())
    return done


def run_consume(cluster: Cluster, load: ConsumeLoad) -> Measured:
    def client(number: int, share: int) -> Callable[[RocketMQ], Coroutine[Any, Any, Measured]]:
        topic = wrapped(cluster.namespace, load.topic)
        return lambda mq: _read_share(mq, load, topic, number, share)

    parts = enumerate(shares(load.count, load.threads))
    return _in_threads(cluster, [client(number, share) for number, share in parts if share])


async def _read_share(mq: RocketMQ, load: ConsumeLoad, whole_topic: str, number: int, share: int) -> Measured:
    done = Measured()
    queues = (await mq.admin.routes.of(whole_topic)).read_queues[number :: load.threads]
    if not queues:
        return done
    async with await mq.read(load.topic, queues=queues, start="first") as reader:
        while done.messages < share:
            started = time.perf_counter()
            message = await reader.next(load.seconds)
            if message is None:
                break
            done.waits_s.append(time.perf_counter() - started)
            done.messages += 1
            done.size_bytes += len(message.body)
    return done


def _in_threads(cluster: Cluster, clients: list[Callable[[RocketMQ], Coroutine[Any, Any, Measured]]]) -> Measured:
    """Run every client in its own thread; the measured time includes connecting."""
    total = Measured()
    cpu_s, started = time.process_time(), time.perf_counter()
    with ThreadPoolExecutor(len(clients)) as threads:
        for measured in threads.map(lambda work: run_with_client(cluster, work), clients):
            total.add(measured)
    total.seconds = time.perf_counter() - started
    total.cpu_s = time.process_time() - cpu_s
    return total
