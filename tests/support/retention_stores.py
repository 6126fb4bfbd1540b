"""Stores with a settable clock, for retention."""

from __future__ import annotations

from orbitlog.formats.derived.index_layout import IndexLayout
from orbitlog.formats.records.message import decode_message, make_message
from orbitlog.settings.retention_policy import RetentionPolicy
from orbitlog.settings.store_settings import StoreGeometry
from orbitlog.store.appending.put_result import PutResult
from orbitlog.store.message_store import MessageStore
from orbitlog.store.reads.key_query import KeyQuery
from orbitlog.store.reads.queue_reader import GetStatus, ReadRequest
from orbitlog.storefiles.store_config import StoreConfig

ANY_HOUR = RetentionPolicy(delete_hours=tuple(range(24)))
GEOMETRY = StoreGeometry(segment_bytes=4096, queue_file_bytes=200, index_layout=IndexLayout(10, 30))
CONFIG = StoreConfig(GEOMETRY, retention=ANY_HOUR)
HOUR_MS = 3_600_000
RARE = ("Rare", 0)
Sent = dict[tuple[str, int], list[PutResult]]


class Clock:
    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000

    def __call__(self) -> int:
        self.now_ms += 7
        return self.now_ms


def fill(store: MessageStore, count: int = 150) -> Sent:
    """Send to three queues, one of which gets messages at the beginning only."""
    sent: Sent = {}
    for number in range(count):
        queue = RARE if number < 25 and number % 5 == 0 else ("Orders", number % 2)
        properties = {"KEYS": f"k{number}", "UNIQ_KEY": f"U{number:04d}"}
        message = make_message(queue[0], b"x" * 150, queue_id=queue[1], properties=properties)
        sent.setdefault(queue, []).append(store.append(message))
        store.dispatch_once()
    store.flush_derived()
    return sent


def check(store: MessageStore, sent: Sent) -> None:
    """Everything from the log's start on is there, by queue, time and key; nothing before it."""
    start = store.min_physical_offset
    for (topic, queue_id), results in sent.items():
        alive = [result for result in results if result.physical_offset >= start]
        queue = store.queue(topic, queue_id)
        assert queue is not None
        first = alive[0].queue_offset if alive else len(results)
        assert (queue.min_offset, queue.max_offset) == (first, len(results))
        assert read_all(store, topic, queue_id, first) == [result.physical_offset for result in alive]
        for result in results:
            check_one(store, topic, queue_id, result, is_alive=result in alive, first=first)


def check_one(store: MessageStore, topic: str, queue_id: int, result: PutResult, *, is_alive: bool, first: int) -> None:
    found = store.read_at(result.physical_offset)
    assert (found is not None) == is_alive
    if not is_alive:
        answer = store.get(topic, queue_id, ReadRequest(result.queue_offset, 8))
        assert (answer.status, answer.next_offset) == (GetStatus.OFFSET_TOO_SMALL, first)
    by_time = store.offset_by_time(topic, queue_id, result.store_timestamp_ms)
    assert by_time == (result.queue_offset if is_alive else first)
    if found is not None:
        queried = store.query(KeyQuery(topic, found.properties["KEYS"]))
        assert [message.physical_offset for message in queried.messages] == [result.physical_offset]


def read_all(store: MessageStore, topic: str, queue_id: int, queue_offset: int) -> list[int]:
    places: list[int] = []
    while True:
        result = store.get(topic, queue_id, ReadRequest(queue_offset, 32))
        if result.status is not GetStatus.FOUND:
            return places
        places += [decode_message(record).physical_offset for record in result.records]
        queue_offset = result.next_offset
