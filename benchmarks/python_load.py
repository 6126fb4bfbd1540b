"""Load for a broker by the Python client; the jobs and responses of `BrokerLoad.java`, so that both can be compared.

python -m benchmarks.python_load NAME_SERVER BROKER [asyncio|uvloop]

Each response also has the longest time that the event loop was busy. One more job sends and consumes at once, mainly
batches, but also single and large messages, while a second member joins and leaves; it reports the memory of the
process after each tenth:

    soak TOPIC MESSAGES
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import resource
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import uvloop

from orbitlog.client.connection.connect import connect
from orbitlog.client.rocketmq import RocketMQ

_LOOK_SECONDS = 0.005
_IDLE_SECONDS = 30
_SOAK_BATCH = 64
_SOAK_BODY_BYTES = 100
_SOAK_TENTHS = 10
_SOAK_LARGE = (b"a large body that is worth compressing " * 110_000)[: 4 << 20]
_SOAK_LARGE_EVERY = 500  # requests
_SOAK_GUEST_SECONDS = 2.0
_SOAK_WIDE_QUEUES = 512
LATE_MS = 20.0


class LoopMonitor:
    """Wakes up often and records how late it was, counting only CPU time of the event loop thread."""

    def __init__(self) -> None:
        self.latest_ms = 0.0
        self.late_count = 0
        self._task = asyncio.create_task(self._look())

    async def _look(self) -> None:
        while True:
            due, worked = time.perf_counter() + _LOOK_SECONDS, time.thread_time()
            await asyncio.sleep(_LOOK_SECONDS)
            late = min(time.perf_counter() - due, time.thread_time() - worked)
            self.latest_ms = max(self.latest_ms, late * 1000)
            self.late_count += late * 1000 > LATE_MS

    def stop(self) -> float:
        self._task.cancel()
        return self.latest_ms


async def _shared(count: int, workers: int, send: Callable[[], Awaitable[object]]) -> tuple[int, int]:
    """Share `count` sends among `workers` tasks; return the numbers of completed and failed ones."""
    left, failed = count, 0

    async def work() -> None:
        nonlocal left, failed
        while left > 0:
            left -= 1
            try:
                await send()
            except Exception as error:  # noqa: BLE001 - counted, and reported by the caller
                print(error, file=sys.stderr)
                failed += 1

    await asyncio.gather(*(work() for _ in range(workers)))
    return count, failed


async def _consume(mq: RocketMQ, topic: str, count: int) -> tuple[int, int]:
    async with mq.consume(topic, group=f"load{time.time_ns()}", start_from="first") as consumer:
        seen = 0
        while seen < count:
            message = await consumer.next(_IDLE_SECONDS)
            if message is None:
                return seen, count - seen
            seen += 1
            await message.ack()
        return seen, 0


def _resident_mb() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() >> 20


async def _soak(mq: RocketMQ, topic: str, count: int) -> str:
    """Send and consume; memory is looked at after each tenth of the way."""
    monitor = LoopMonitor()
    started, seen, tenths = time.perf_counter(), 0, list[int]()
    group = f"soak{time.time_ns()}"
    sending = asyncio.create_task(_shared(-(-count // _SOAK_BATCH), 4, _soak_requests(mq, topic)))
    guests = asyncio.create_task(_soak_guests(mq, topic, group))
    async with mq.consume(topic, group=group, start_from="first") as consumer:
        while seen < count:
            message = await consumer.next(_IDLE_SECONDS)
            if message is None:
                break
            seen += len(message.body) > 0
            await message.ack()
            if seen * _SOAK_TENTHS >= count * (len(tenths) + 1):
                tenths.append(_resident_mb())
        guests.cancel()
        _, failed = await sending
    memory = " ".join(f"mb{number}={each}" for number, each in enumerate(tenths, 1))
    seconds = time.perf_counter() - started
    late = f"blockedMs={monitor.stop():.1f} late={monitor.late_count}"
    return f"messages={seen} seconds={seconds:.3f} failed={failed + count - seen} {memory} {late}"


def _soak_requests(mq: RocketMQ, topic: str) -> Callable[[], Awaitable[object]]:
    """Return what makes the next request: a batch for the most part."""
    numbers = itertools.count(1)
    bodies = [bytes(_SOAK_BODY_BYTES)] * _SOAK_BATCH

    async def singles() -> None:
        sends = [mq.send(topic, bodies[0], tags="single", keys=[f"key{number}"]) for number in range(_SOAK_BATCH)]
        await asyncio.gather(*sends)

    def send() -> Awaitable[object]:
        number = next(numbers)
        if number % _SOAK_LARGE_EVERY == 0:
            return asyncio.gather(mq.send("SoakLarge", _SOAK_LARGE), mq.send_batch(topic, bodies))
        return singles() if number % 8 == 0 else mq.send_batch(topic, bodies)

    return send


async def _soak_guests(mq: RocketMQ, topic: str, group: str) -> None:
    """Have a member of another group join and leave, as in program restarts; also for a wide topic."""
    await mq.admin.create_topic("SoakWide", _SOAK_WIDE_QUEUES)
    for number in itertools.count():
        async with mq.consume("SoakWide" if number % 2 else topic, group=f"{group}-guest{number % 4}") as guest:
            await guest.next(_SOAK_GUEST_SECONDS)
        await asyncio.sleep(_SOAK_GUEST_SECONDS)


async def run(mq: RocketMQ, words: list[str]) -> str:
    verb, topic, *rest = words
    numbers = list(map(int, rest))
    if verb == "soak":
        return await _soak(mq, topic, numbers[0])
    started = time.perf_counter()
    monitor = LoopMonitor()
    if verb == "topics":
        for number in range(numbers[0]):
            await mq.admin.create_topic(topic if numbers[0] == 1 else f"{topic}{number}", numbers[1])
        done = (numbers[0], 0)
    elif verb == "consume":
        done = await _consume(mq, topic, numbers[0])
    elif verb == "batch":
        bodies = [bytes(numbers[1])] * numbers[3]
        batches, failed = await _shared(numbers[2] // numbers[3], numbers[0], lambda: mq.send_batch(topic, bodies))
        done = (batches * numbers[3], failed)
    else:
        body = bytes(numbers[1])
        send = mq.send_oneway if verb == "oneway" else mq.send
        done = await _shared(numbers[2], numbers[0], lambda: send(topic, body))
    seconds = time.perf_counter() - started
    return f"messages={done[0]} seconds={seconds:.6f} failed={done[1]} blockedMs={monitor.stop():.1f}"


async def main(name_server: str) -> None:
    loop = asyncio.get_running_loop()
    async with connect(name_server) as mq:
        # As a program does that minds its pauses: what was imported is not looked through by the collector any more.
        gc.collect()
        gc.freeze()
        print("ready", flush=True)
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            try:
                print("ok", await run(mq, line.split()), flush=True)
            except Exception as error:  # noqa: BLE001 - the answer to the job
                print("failed", str(error).replace("\n", " "), flush=True)


if __name__ == "__main__":
    plain = sys.argv[3:] == ["asyncio"]
    with asyncio.Runner(loop_factory=asyncio.new_event_loop if plain else uvloop.new_event_loop) as runner:
        runner.run(main(sys.argv[1]))
