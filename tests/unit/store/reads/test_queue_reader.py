"""Reading a queue: the fast path for what this process has just written equals the slow path."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from orbitlog.formats.java import LONG_MAX, string_hash
from orbitlog.formats.records.message import make_message
from orbitlog.settings.store_settings import StoreGeometry
from orbitlog.store.message_store import MessageStore
from orbitlog.store.reads.queue_reader import GetStatus, ReadLimits, ReadRequest
from orbitlog.storefiles.store_config import StoreConfig

CONFIG = StoreConfig(StoreGeometry(segment_bytes=4096, queue_file_bytes=1200))
COUNT = 100


@pytest.fixture
def store(tmp_path: Path) -> MessageStore:
    opened = MessageStore.open(tmp_path / "store", CONFIG, lambda: 1_700_000_000_000)
    for number in range(COUNT):
        body = bytes(number * 7 % 300)
        opened.append(make_message("T", body, properties={"TAGS": "ab"[number % 2]}, queue_id=number % 3))
    opened.dispatch_once()
    return opened


def any_request(chance: Random, young_bytes: int) -> ReadRequest:
    limits = ReadLimits(
        count_in_memory=chance.choice([1, 5, 32]),
        bytes_in_memory=chance.choice([1, 500, 1 << 20]),
        count_on_disk=chance.choice([1, 3]),
        bytes_on_disk=chance.choice([1, 700]),
        memory_bytes=chance.choice([0, young_bytes // 2, young_bytes, 1 << 40]),
    )
    wanted = chance.choice([None, None, string_hash("a"), string_hash("z")])
    tags_filter = None if wanted is None else lambda code: code == wanted
    return ReadRequest(chance.randrange(40), chance.choice([1, 2, 32, 100]), tags_filter, None, limits)


def test_both_ways_read_the_same(store: MessageStore) -> None:
    log = store._log
    own_from = log.own_from
    assert own_from == 0
    for seed in range(300):
        request = any_request(Random(seed), log.written_to)
        answers = []
        for begins in (own_from, log.written_to // 3, LONG_MAX):
            log.own_from = begins
            answers.append(store.get("T", seed % 3, request))
        assert answers[0] == answers[1] == answers[2]
    store.close()


@pytest.mark.parametrize("position", [3, 6, 30])
def test_a_unit_that_points_to_no_record_is_passed_over(store: MessageStore, position: int) -> None:
    """The size, magic and physical offset that a record states are checked, whatever process wrote it."""
    queue = store.queue("T", 0)
    entry = queue.entry(4) if queue is not None else None
    assert entry is not None
    segments = store._log.segments
    base = segments.base_of(entry.physical_offset)
    at = entry.physical_offset - base + position
    segments.file(base).write(at, bytes([segments.file(base).read(at, 1)[0] ^ 1]))
    result = store.get("T", 0, ReadRequest(3, 3))
    assert result.status is GetStatus.FOUND and len(result.records) == 3 and result.next_offset == 7
    assert result.damaged == [(entry.physical_offset, entry.size_bytes)]
    store.close()
