"""Load by other Python clients of RocketMQ: the jobs and responses of `python_load` that the client supports.

python other_python_load.py cpp|grpc ENDPOINT

`cpp` is the wheel `rocketmq`, the C++ client over ctypes; `grpc` is `rocketmq-python-client`, at a proxy. Runs with
nothing but the client on its path, so that it imports no module of Orbitlog.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

_IDLE_SECONDS = 30


class CppClient:
    """Sends wait in threads: the client has no other way to keep several under way."""

    def __init__(self, endpoint: str) -> None:
        from rocketmq import client  # type: ignore[import-not-found]

        self._client = client
        self._endpoint = endpoint
        self._producer = client.Producer("load_producers", timeout=10_000, max_message_size=4 << 20)
        self._producer.set_namesrv_addr(endpoint)
        self._producer.start()

    def _message(self, topic: str, body: bytes) -> Any:
        made = self._client.Message(topic)
        made.set_keys("key")
        made.set_tags("tag")
        made.set_body(body)
        return made

    def send(self, topic: str, body: bytes) -> None:
        self._producer.send_sync(self._message(topic, body))

    def send_many(self, topic: str, body: bytes, count: int, in_flight: int) -> None:
        with ThreadPoolExecutor(in_flight) as threads:
            for done in threads.map(lambda _: self.send(topic, body), range(count)):
                assert done is None

    def consume(self, topic: str, count: int) -> int:
        consumer = self._client.PushConsumer(f"load{time.time_ns()}")
        consumer.set_namesrv_addr(self._endpoint)
        seen, over = [0], threading.Event()

        def arrived(_: Any) -> None:
            seen[0] += 1
            if seen[0] >= count:
                over.set()

        consumer.subscribe(topic, arrived)
        consumer.start()
        before = -1
        while not over.wait(_IDLE_SECONDS) and seen[0] > before:
            before = seen[0]
        consumer.shutdown()
        return min(seen[0], count)


class GrpcClient:
    """A new group begins at the end of its queues at Apache's proxy, so that a backlog cannot be consumed with it."""

    def __init__(self, endpoint: str) -> None:
        from rocketmq import ClientConfiguration, Credentials, Message, Producer  # type: ignore[import-not-found]

        self._make = Message
        self._producer = Producer(ClientConfiguration(endpoint, Credentials()), ("Clients",))
        self._producer.startup()

    def _message(self, topic: str, body: bytes) -> Any:
        made = self._make()
        made.topic, made.body, made.keys, made.tag = topic, body, "key", "tag"
        return made

    def send(self, topic: str, body: bytes) -> None:
        self._producer.send(self._message(topic, body))

    def send_many(self, topic: str, body: bytes, count: int, in_flight: int) -> None:
        room = threading.Semaphore(in_flight)
        sent: list[Future[Any]] = []
        for _ in range(count):
            room.acquire()
            future = self._producer.send_async(self._message(topic, body))
            future.add_done_callback(lambda _: room.release())
            sent.append(future)
        for each in sent:
            each.result(60)


def run(client: Any, words: list[str]) -> str:
    verb, topic, *numbers = words
    started, done = time.perf_counter(), 0
    if verb == "sync" and numbers[0] == "1":
        done = int(numbers[2])
        for _ in range(done):
            client.send(topic, b"x" * int(numbers[1]))
    elif verb == "async":
        done = int(numbers[2])
        client.send_many(topic, b"x" * int(numbers[1]), done, int(numbers[0]))
    elif verb == "consume" and hasattr(client, "consume"):
        done = client.consume(topic, int(numbers[0]))
    else:
        return "messages=0 seconds=1 failed=0"
    return f"messages={done} seconds={time.perf_counter() - started:.6f} failed=0"


def main(kind: str, endpoint: str) -> None:
    makers: dict[str, Callable[[str], Any]] = {"cpp": CppClient, "grpc": GrpcClient}
    client = makers[kind](endpoint)
    print("ready", flush=True)
    for line in sys.stdin:
        try:
            print("ok", run(client, line.split()), flush=True)
        except Exception as error:  # noqa: BLE001 - the answer to the job
            print("failed", str(error).replace("\n", " "), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
