"""Load for a broker, by our Python client; the jobs and answers of `BrokerLoad.java`, so that the two can be compared.

python -m benchmarks.python_load NAME_SERVER BROKER

Each answer also says for how long the event loop was kept busy at a time, at most. One more job sends and consumes at
once, and says what memory it took a tenth of the way and at the end:

    soak TOPIC MESSAGES
"""

from __future__ import annotations

import asyncio
import resource
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import uvloop

from orbitlog.client.connecting import connect
from orbitlog.client.rocketmq import RocketMQ

_LOOK_SECONDS = 0.005
_IDLE_SECONDS = 30
_SOAK_BATCH = 64
_SOAK_BODY_BYTES = 100


class LoopMonitor:
    """Wakes up often, and notes by how much it was late: as far as this process worked meanwhile, not others."""

    def __init__(self) -> None:
        self.latest_ms = 0.0
        self._task = asyncio.create_task(self._look())

    async def _look(self) -> None:
        while True:
            due, worked = time.perf_counter() + _LOOK_SECONDS, time.process_time()
            await asyncio.sleep(_LOOK_SECONDS)
            late = min(time.perf_counter() - due, time.process_time() - worked)
            self.latest_ms = max(self.latest_ms, late * 1000)

    def stop(self) -> float:
        self._task.cancel()
        return self.latest_ms


async def _shared(count: int, workers: int, send: Callable[[], Awaitable[object]]) -> tuple[int, int]:
    """Let so many tasks share so many sends; return how many were done, and how many failed."""
    left, failed = count, 0

    async def work() -> None:
        nonlocal left, failed
        while left > 0:
            left -= 1
            try:
                await send()
            except Exception as error:  # noqa: BLE001 - counted, and told by whoever asked
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
    """Send batches and consume them; memory is looked at when everything has warmed up, and at the end."""
    monitor = LoopMonitor()
    started, first_mb, seen = time.perf_counter(), 0, 0
    bodies = [bytes(_SOAK_BODY_BYTES)] * _SOAK_BATCH
    sending = asyncio.create_task(_shared(-(-count // _SOAK_BATCH), 4, lambda: mq.send_batch(topic, bodies)))
    async with mq.consume(topic, group=f"soak{time.time_ns()}", start_from="first") as consumer:
        async for message in consumer:
            seen += len(message.body) == _SOAK_BODY_BYTES
            if seen == count // 10:
                first_mb = _resident_mb()
            if seen >= count:
                break
    _, failed = await sending
    memory = f"firstMb={first_mb} lastMb={_resident_mb()}"
    seconds = time.perf_counter() - started
    return f"messages={seen} seconds={seconds:.3f} failed={failed} {memory} blockedMs={monitor.stop():.1f}"


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
        print("ready", flush=True)
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            try:
                print("ok", await run(mq, line.split()), flush=True)
            except Exception as error:  # noqa: BLE001 - the answer to the job
                print("failed", str(error).replace("\n", " "), flush=True)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(sys.argv[1]))
