"""POP receipts: identify a popped message in acknowledgements. Mirrors Java `ExtraInfoUtil`.

A receipt is `startOffset popTime invisibleTime reviveQueue retryFlag brokerName queueId queueOffset`. For messages
that are not ordered, clients build it from the fields for each queue in the header of the pop response.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from orbitlog.errors import BadField
from orbitlog.formats.names import RETRY_PREFIX, is_pop_retry_v2, pop_retry_topic

POP_RECEIPT = "POP_CK"
FIRST_POP_TIME = "1ST_POP_TIME"
ORIGIN_GROUP = "ORIGIN_GROUP"
ORDERED_REVIVE_QUEUE = 999
ORDINARY, RETRIED, RETRIED_V2 = "0", "1", "2"

_PARTS_MIN = 5
_CHARACTERS_MAX = 1_024
_DIGITS_MAX = 18
# A queue has at most 20,000 messages in flight (`popped_queues`), which 2,500 bytes describe.
_BITS_BYTES_MAX = 4 * 1024


@dataclass(frozen=True, slots=True)
class PopReceipt:
    """The receipt of a popped message: a consumer sends it to acknowledge, or to change the invisibility timeout."""

    start_queue_offset: int
    pop_timestamp_ms: int
    invisible_ms: int
    revive_queue_id: int
    retry: str
    broker_name: str
    queue_id: int
    queue_offset: int

    def __str__(self) -> str:
        times = f"{self.start_queue_offset} {self.pop_timestamp_ms} {self.invisible_ms} {self.revive_queue_id}"
        return f"{times} {self.retry} {self.broker_name} {self.queue_id} {self.queue_offset}"

    @property
    def is_ordered(self) -> bool:
        return self.revive_queue_id == ORDERED_REVIVE_QUEUE


def parse_receipt(text: str) -> PopReceipt:
    """Parse a receipt; the last three parts may be missing, since requests contain them as well."""
    parts = text.split(" ")
    if len(text) > _CHARACTERS_MAX or len(parts) < _PARTS_MIN:
        raise BadField(f"{text[:80]!r} is not a valid receipt", field="extraInfo")
    start, pop_ms, invisible_ms, revive_queue_id = (_number(part, text) for part in parts[:4])
    broker_name = parts[5] if len(parts) > 5 else ""
    queue_id, queue_offset = (_number(parts[at], text) if len(parts) > at else -1 for at in (6, 7))
    return PopReceipt(start, pop_ms, invisible_ms, revive_queue_id, parts[4], broker_name, queue_id, queue_offset)


def _number(part: str, text: str) -> int:
    if not (part.isascii() and part.isdigit() and len(part) <= _DIGITS_MAX):
        raise BadField(f"{text[:80]!r} is not a valid receipt", field="extraInfo")
    return int(part)


def retry_flag(topic: str) -> str:
    """Return the part of a receipt for the kind of topic that a message was popped from."""
    if is_pop_retry_v2(topic):
        return RETRIED_V2
    return RETRIED if topic.startswith(RETRY_PREFIX) else ORDINARY


def real_topic(topic: str, group: str, retry: str) -> str:
    """Return the topic that contains a message, given the topic that its consumer subscribed to."""
    if retry not in (RETRIED, RETRIED_V2):
        return topic
    return pop_retry_topic(group, topic, is_v2=retry == RETRIED_V2)


def start_offset_info(topic: str, queue_id: int, start_queue_offset: int) -> str:
    """Return the response field for the first popped offset of a queue."""
    return f"{retry_flag(topic)} {queue_id} {start_queue_offset}"


def message_offset_info(topic: str, queue_id: int, queue_offsets: Iterable[int]) -> str:
    """Return the response field for the popped offsets of a queue."""
    return f"{retry_flag(topic)} {queue_id} {','.join(map(str, queue_offsets))}"


def order_count_info(topic: str, queue_id: int, consumed_counts: dict[int, int], message_count: int) -> list[str]:
    """Return how often each message was popped earlier; older clients read the last part only, for the whole queue."""
    flag = retry_flag(topic)
    parts = [f"{flag} qo{queue_id}%{queue_offset} {count}" for queue_offset, count in consumed_counts.items()]
    is_all = len(consumed_counts) == message_count
    return [*parts, f"{flag} {queue_id} {min(consumed_counts.values()) if is_all and consumed_counts else 0}"]


def acknowledged_offsets(start_queue_offset: int, bits: bytes) -> list[int]:
    """Return the queue offsets of a batch acknowledgement: Java's BitSet, lowest bit first."""
    if len(bits) > _BITS_BYTES_MAX:
        raise BadField(f"{len(bits)} bytes of bits exceed the maximum of {_BITS_BYTES_MAX}", field="acks")
    return [
        start_queue_offset + at * 8 + bit for at, byte in enumerate(bits) if byte for bit in range(8) if byte >> bit & 1
    ]
