"""Stored messages: everything that follows an append, for all messages of the broker.

`MessageWriter` calls it after each successful append, on the fast path and on the slow path alike. Code that must see
every stored message (metrics, quotas by volume, replication) belongs here.
"""

from __future__ import annotations

from collections.abc import Sequence

from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.formats.records.message import Message
from orbitlog.formats.records.record_template import Row


class StoredMessages:
    """Counts stored messages, and wakes dispatch, parked pulls and flush."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._note_put = state.statistics.note_put

    def note(self, message: Message, count: int, size_bytes: int) -> None:
        """Note the messages of one request, all of one topic; `message` is the first of them, or the batch."""
        self._note_put(message.topic, count, size_bytes)
        self._state.message_appended()

    def note_rows(self, rows: Sequence[Row], places: Sequence[tuple[int, int]], is_one_topic: bool) -> None:
        """Note the first rows of a run, one request each: as many as have a place in the log.

        `is_one_topic` states that all rows have the same topic. The record sizes then follow from the first and the
        last offset, without a loop.
        """
        count = len(places)
        if is_one_topic and count == len(rows):
            template, (topic, _), _, _, body, properties = rows[-1]
            size_bytes = places[-1][0] - places[0][0] + template[1] + len(body) + len(properties)
            self._note_put(topic, count, size_bytes, count)
        else:
            totals: dict[str, tuple[int, int]] = {}
            for (template, (topic, _), _, _, body, properties), _ in zip(rows, places, strict=False):
                messages, size_bytes = totals.get(topic, (0, 0))
                totals[topic] = messages + 1, size_bytes + template[1] + len(body) + len(properties)
            for topic, (messages, size_bytes) in totals.items():
                self._note_put(topic, messages, size_bytes, messages)
        self._state.message_appended()
