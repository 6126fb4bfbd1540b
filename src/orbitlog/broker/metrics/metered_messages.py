"""Metered messages: counts stored messages by topic and message type, for a broker with metrics.

It replaces `StoredMessages`, so a broker without metrics pays nothing. A run of sends to one topic costs no
further call: sizes follow from the offsets, and types from two searches in the properties.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from operator import sub
from typing import Final

from orbitlog.broker.metrics.message_counts import SMALL_BYTES, MessageCounts
from orbitlog.broker.metrics.traffic_metrics import TrafficMetrics
from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.broker.sending.stored_messages import StoredMessages
from orbitlog.broker.tables.statistics import KEYS_MAX
from orbitlog.formats import names
from orbitlog.formats.records import properties as props
from orbitlog.formats.records.flags import TRANSACTION_MASK, TransactionType
from orbitlog.formats.records.message import Message
from orbitlog.formats.records.properties import NAME_END, PROPERTY_END
from orbitlog.formats.records.record_template import Row

NORMAL, FIFO, DELAY, TRANSACTION = "normal", "fifo", "delay", "transaction"
OTHER_TOPICS = "unknown"

_PREPARED = f"{props.TRANSACTION_PREPARED}{NAME_END}true".encode()
_ORDER_KEY = f"__SHARDINGKEY{NAME_END}".encode()
_DELAYS = re.compile(
    f"(?:^|{PROPERTY_END})(?:DELAY|TIMER_DELIVER_MS|TIMER_DELAY_MS|TIMER_DELAY_SEC|__STARTDELIVERTIME){NAME_END}".encode()
)
_COMMITTED = TransactionType.COMMIT
_END = PROPERTY_END.encode()
_FEW: Final = 8
_REAL_TOPIC = re.compile(f"(?:^|{PROPERTY_END}){props.REAL_TOPIC}{NAME_END}([^{PROPERTY_END}]*)".encode())


def message_type(properties_raw: bytes) -> str:
    """Return the type of a message as Apache's broker labels it."""
    if _PREPARED in properties_raw:
        return TRANSACTION
    if _ORDER_KEY in properties_raw:
        return FIFO
    return DELAY if _DELAYS.search(properties_raw) else NORMAL


class MeteredMessages(StoredMessages):
    """Counts stored messages by topic and type, and half messages by the topic that they are for."""

    def __init__(self, state: BrokerState, traffic: TrafficMetrics) -> None:
        super().__init__(state)
        self._counts = traffic.stored
        self._halves = traffic.halves
        self._note_end = traffic.note_end
        # Most runs are for the topic of the last one.
        self._recent_topic, self._recent = "", MessageCounts()
        traffic.on_forget = self._forget_recent

    def note(self, message: Message, count: int, size_bytes: int) -> None:
        super().note(message, count, size_bytes)
        self._of(message.topic, message_type(message.properties_raw)).add(count, size_bytes, 1)
        if message.topic == names.HALF_TOPIC:
            self._note_half(message.properties_raw)

    def note_rows(self, rows: Sequence[Row], places: Sequence[tuple[int, int]], is_one_topic: bool) -> None:
        count = len(places)
        if not is_one_topic or count != len(rows):
            self._note_each(rows, places, is_one_topic)
            return
        # No call for a message, and for a run only those of `StoredMessages`: a client that waits for each response
        # sends runs of one.
        template, (topic, _), _, _, body, properties = rows[-1]
        last_bytes = template[1] + len(body) + len(properties)
        if count > _FEW:
            offsets = [physical_offset for physical_offset, _ in places]
            largest_bytes = max(last_bytes, *map(sub, offsets[1:], offsets))
            # One search in all properties takes half the time of one in each.
            text = _END.join([row[5] for row in rows])
            is_plain = largest_bytes <= SMALL_BYTES and _ORDER_KEY not in text and _PREPARED not in text
        else:
            is_plain, before = last_bytes <= SMALL_BYTES, places[0][0]
            for row, place in zip(rows, places):  # noqa: B905 - as long as each other
                if place[0] - before > SMALL_BYTES or _ORDER_KEY in row[5] or _PREPARED in row[5]:
                    is_plain = False
                    break
                before = place[0]
        if not is_plain:
            self._note_each(rows, places, is_one_topic)
            return
        size_bytes = places[-1][0] - places[0][0] + last_bytes
        counts = self._recent if topic == self._recent_topic else self._find_recent(topic)
        counts.messages += count
        counts.size_bytes += size_bytes
        counts.sizes.counts[0] += count
        counts.sizes.total += size_bytes
        self._note_put(topic, count, size_bytes, count)
        self._state.message_appended()

    def _note_each(self, rows: Sequence[Row], places: Sequence[tuple[int, int]], is_one_topic: bool) -> None:
        """Note a run with messages of several topics, types or size buckets."""
        super().note_rows(rows, places, is_one_topic)
        for (template, (topic, _), born_ms, _, body, properties), _ in zip(rows, places, strict=False):
            # Delayed messages never take the fast path: their properties must be changed.
            kind = TRANSACTION if _PREPARED in properties else FIFO if _ORDER_KEY in properties else NORMAL
            self._of(topic, kind).add(1, template[1] + len(body) + len(properties), 1)
            if topic == names.HALF_TOPIC:
                self._note_half(properties)
            elif template.sys_flag & TRANSACTION_MASK == _COMMITTED:
                self._note_end(topic, True, born_ms)

    def _forget_recent(self) -> None:
        self._recent_topic = ""

    def _find_recent(self, topic: str) -> MessageCounts:
        self._recent_topic, self._recent = topic, self._of(topic, NORMAL)
        return self._recent

    def _of(self, topic: str, kind: str) -> MessageCounts:
        counts = self._counts.get((topic, kind))
        if counts is None:
            if len(self._counts) >= KEYS_MAX:  # topics are limited, but old ones stay until they are forgotten
                topic = OTHER_TOPICS
            counts = self._counts.setdefault((topic, kind), MessageCounts())
        return counts

    def _note_half(self, properties_raw: bytes) -> None:
        match = _REAL_TOPIC.search(properties_raw)
        topic = match[1].decode(errors="replace") if match else OTHER_TOPICS
        self._halves[topic] = self._halves.get(topic, 0) + 1
