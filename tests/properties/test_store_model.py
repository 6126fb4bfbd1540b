"""The store against a model of it: a list of messages a queue, and a dictionary of keys.

Random operations, with reopening and deletion; every answer of the store must equal the model's.
"""

from __future__ import annotations

import os
import random
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from orbitlog.formats.derived.index_layout import IndexLayout
from orbitlog.formats.records.message import decode_message, make_message
from orbitlog.settings.store_settings import StoreGeometry
from orbitlog.store.message_store import MessageStore
from orbitlog.store.reads.key_query import KeyQuery
from orbitlog.store.reads.queue_reader import GetStatus, ReadRequest
from orbitlog.storefiles.store_config import StoreConfig

CONFIG = StoreConfig(StoreGeometry(4096, 160, index_layout=IndexLayout(7, 25)))
HOUR_MS = 3_600_000
Queue = tuple[str, int]


@dataclass
class Model:
    """What was appended, and how much of it readers may see."""

    queues: dict[Queue, list[tuple[int, bytes]]] = field(default_factory=lambda: defaultdict(list))
    keys: dict[tuple[str, str], list[int]] = field(default_factory=lambda: defaultdict(list))
    visible: dict[Queue, int] = field(default_factory=lambda: defaultdict(int))

    def append(self, queue: Queue, key: str, physical_offset: int, body: bytes) -> int:
        self.queues[queue].append((physical_offset, body))
        self.keys[queue[0], key].append(physical_offset)
        return len(self.queues[queue]) - 1

    def dispatch(self) -> None:
        for queue, messages in self.queues.items():
            self.visible[queue] = len(messages)


class Run:
    def __init__(self, root: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.root, self.model, self.now_ms = root, Model(), 1_800_000_000_000
        self.store = self.open()

    def open(self) -> MessageStore:
        return MessageStore.open(self.root, CONFIG, lambda: self.now_ms)

    def step(self) -> None:
        self.now_ms += self.rng.randrange(5_000)
        choices = [self.append] * 12 + [self.append_batch] * 3 + [self.dispatch] * 4 + [self.look] * 4
        self.rng.choice([*choices, self.flush, self.reopen, self.expire])()

    def _message(self) -> tuple[Queue, str, bytes]:
        queue = f"T{self.rng.randrange(3)}", self.rng.randrange(2)
        return queue, f"k{self.rng.randrange(20)}", self.rng.randbytes(self.rng.randrange(400))

    def append(self) -> None:
        queue, key, body = self._message()
        result = self.store.append(make_message(queue[0], body, properties={"KEYS": key}, queue_id=queue[1]))
        assert result.queue_offset == self.model.append(queue, key, result.physical_offset, body)

    def append_batch(self) -> None:
        drawn = [self._message() for _ in range(self.rng.randrange(1, 5))]
        batch = [
            make_message(queue[0], body, properties={"KEYS": key}, queue_id=queue[1]) for queue, key, body in drawn
        ]
        results = self.store.append_batch(batch)
        assert len({result.physical_offset // 4096 for result in results}) == 1
        for (queue, key, body), result in zip(drawn, results, strict=True):
            assert result.queue_offset == self.model.append(queue, key, result.physical_offset, body)

    def dispatch(self) -> None:
        while self.store.dispatched_to < self.store.confirmed_to:
            self.store.dispatch_once(max_bytes=self.rng.randrange(200, 5_000))
        self.model.dispatch()

    def flush(self) -> None:
        self.rng.choice([self.store.flush_log, self.store.flush_derived, self.store.prepare_once])()

    def reopen(self) -> None:
        self.store.close()
        self.model.dispatch()
        self.store = self.open()

    def expire(self) -> None:
        """Let the oldest segments be old enough to go."""
        self.dispatch()
        self.store.flush_derived()
        for path in sorted((self.root / "commitlog").iterdir())[: self.rng.randrange(3)]:
            os.utime(path, ((self.now_ms - 100 * HOUR_MS) / 1000,) * 2)
        # Old files go in the hour that the setting names; any day has one.
        for _ in range(24):
            self.store.retain_once()
            self.now_ms += HOUR_MS

    def look(self) -> None:
        queue = self.rng.choice(list(self.model.queues) or [("T0", 0)])
        self.check_queue(queue)
        self.check_key(queue[0], f"k{self.rng.randrange(20)}")

    def check_queue(self, queue: Queue) -> None:
        start = self.store.min_physical_offset
        expected = [
            (number, body)
            for number, (place, body) in enumerate(self.model.queues[queue][: self.model.visible[queue]])
            if place >= start
        ]
        found, queue_offset = [], expected[0][0] if expected else 0
        while True:
            result = self.store.get(*queue, ReadRequest(queue_offset, 7))
            if result.status is not GetStatus.FOUND:
                break
            for record in result.records:
                message = decode_message(record)
                found.append((message.queue_offset, message.body))
            queue_offset = result.next_offset
        assert found == expected

    def check_key(self, topic: str, key: str) -> None:
        if self.store.dispatched_to < self.store.written_to:
            return
        start = self.store.min_physical_offset
        expected = [place for place in self.model.keys[topic, key] if place >= start]
        result = self.store.query(KeyQuery(topic, key, limit=10_000))
        assert result.complete
        assert [message.physical_offset for message in result.messages] == expected[::-1]


@pytest.mark.parametrize("seed", range(12))
def test_random_operations(tmp_path: Path, seed: int) -> None:
    run = Run(tmp_path, seed)
    try:
        for _ in range(250):
            run.step()
        run.dispatch()
        for queue in list(run.model.queues):
            run.check_queue(queue)
    finally:
        run.store.close()
