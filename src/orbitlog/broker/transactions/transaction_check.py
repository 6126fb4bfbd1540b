"""Asks producers about transactions that they have not ended. Mirrors `TransactionalMessageServiceImpl.check`.

Two cursors, kept with the offsets of the group CID_RMQ_SYS_TRANS: everything before the half cursor is ended or has a
later copy, everything before the op cursor has done its work. A message that is asked about is appended again with its
count of questions, so that the half cursor can pass it and a restart knows how often it was asked. Unlike Java's, a
question that reaches nobody does not count: a producer that is away for a while loses nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from orbitlog.broker.runtime import broker_settings as keys
from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.broker.transactions.half_messages import CHECK_IMMUNITY_SECONDS, HALF_QUEUE, HalfMessages, origin_of
from orbitlog.formats import names
from orbitlog.formats.records import properties as props
from orbitlog.formats.records.message import Message
from orbitlog.formats.records.transaction_ops import CHECK_TIMES, PREPARED_QUEUE_OFFSET

log = logging.getLogger(__name__)

STEP_MESSAGES_MAX = 10_000
LATE_ENDS_MAX = 100_000
_HOUR_MS = 3_600_000

Ask = Callable[[Message, Message], bool]
"""Ask the producer of a half message (as it was, as it is now); False if nobody could be asked."""


@dataclass(frozen=True, slots=True)
class PendingTransaction:
    """A half message that is not ended."""

    queue_offset: int
    physical_offset: int
    topic: str
    producer_group: str
    message_id: str
    age_ms: int
    check_times: int


class TransactionCheck:
    """The cursors, and the step that moves them on."""

    def __init__(self, state: BrokerState, halves: HalfMessages, can_ask: Callable[[str], bool], ask: Ask) -> None:
        self._state = state
        self._halves = halves
        self._can_ask = can_ask
        self._ask = ask
        self._reserved_ms = state.settings.store.retention.reserved_hours * _HOUR_MS
        # Origins of messages that were ended by an earlier copy than the one that stands for them now.
        self._late_ends: set[int] = set()
        self._noted_to = 0

    def check_once(self, now_ms: int) -> int:
        """Ask about what is pending for too long; returns how many producers were asked."""
        ended, op_records = self._read_ops()
        half_cursor = self._cursor(names.HALF_TOPIC)
        self._note_late_ends(op_records, half_cursor)
        last = min(self._state.max_offset(names.HALF_TOPIC, HALF_QUEUE), half_cursor + STEP_MESSAGES_MAX)
        asked, position = 0, half_cursor
        while position < last:
            half = None if position in ended else self._halves.at(position)
            if half is not None:
                outcome = self._look_at(half, ended, now_ms)
                if outcome is None:
                    break
                asked += outcome
            position += 1
        self._move(names.HALF_TOPIC, half_cursor, position)
        self._move_over_ops(op_records, position)
        return asked

    def _note_late_ends(self, records: list[tuple[int, list[int]]], half_cursor: int) -> None:
        """Remember who ended a message by a copy that the cursor has passed: the next copy must not be asked about."""
        for op_queue_offset, ended in records:
            if op_queue_offset < self._noted_to:
                continue
            self._noted_to = op_queue_offset + 1
            for queue_offset in ended:
                half = self._halves.at(queue_offset) if queue_offset < half_cursor else None
                if half is not None and len(self._late_ends) < LATE_ENDS_MAX:
                    self._late_ends.add(origin_of(half))

    def pending(self, now_ms: int, limit: int = STEP_MESSAGES_MAX) -> list[PendingTransaction]:
        """Return what is not ended, oldest first."""
        ended, op_records = self._read_ops()
        self._note_late_ends(op_records, self._cursor(names.HALF_TOPIC))
        found = []
        for position in range(self._cursor(names.HALF_TOPIC), self._state.max_offset(names.HALF_TOPIC, HALF_QUEUE)):
            half = None if position in ended else self._halves.at(position)
            if half is None:
                continue
            properties = half.properties
            if origin_of(half) in ended or origin_of(half) in self._late_ends:
                continue
            found.append(_described(half, properties, now_ms))
            if len(found) >= limit:
                break
        return found

    def _look_at(self, half: Message, ended: set[int], now_ms: int) -> int | None:
        """Deal with one pending message: None to stop here, else how many producers were asked."""
        properties = half.properties
        if origin_of(half) in ended or origin_of(half) in self._late_ends:
            self._late_ends.discard(origin_of(half))
            return 0
        settings = self._state.settings
        age_ms = now_ms - half.born_timestamp_ms
        times_max = settings[keys.TRANSACTION_CHECK_MAX]
        if _number(properties.get(CHECK_TIMES)) >= times_max or age_ms > self._reserved_ms:
            return self._give_up(half, properties)
        own_immunity = properties.get(CHECK_IMMUNITY_SECONDS)
        immunity_ms = _immunity_ms(own_immunity, settings[keys.TRANSACTION_TIMEOUT_MS])
        if 0 <= age_ms < immunity_ms:
            if own_immunity is None:
                return None  # and so are all that came after it
            return self._keep(half, properties)
        return self._question(half, properties)

    def _give_up(self, half: Message, properties: dict[str, str]) -> int | None:
        if not self._halves.discard(half).is_stored:
            return None
        log.warning(
            "transaction %s of group %s was never ended; its message is in %s",
            properties.get(props.UNIQ_KEY),
            properties.get(props.PRODUCER_GROUP),
            names.CHECK_MAX_TIME_TOPIC,
        )
        return 0

    def _keep(self, half: Message, properties: dict[str, str]) -> int | None:
        """Carry a message along that asked not to be asked about yet."""
        _, result = self._halves.put_again(half, {PREPARED_QUEUE_OFFSET: str(origin_of(half))})
        return 0 if result.is_stored else None

    def _question(self, half: Message, properties: dict[str, str]) -> int | None:
        group = properties.get(props.PRODUCER_GROUP, "")
        can_ask = self._can_ask(group)
        times = _number(properties.get(CHECK_TIMES)) + can_ask
        changed = {CHECK_TIMES: str(times), PREPARED_QUEUE_OFFSET: str(origin_of(half))}
        copy, result = self._halves.put_again(half, changed)
        if not result.is_stored:
            return None
        return int(can_ask and self._ask(half, copy))

    # Cursors

    def _read_ops(self) -> tuple[set[int], list[tuple[int, list[int]]]]:
        """Return what is ended, and by which op messages."""
        first = self._cursor(names.OP_HALF_TOPIC)
        last = self._state.max_offset(names.OP_HALF_TOPIC, HALF_QUEUE)
        records = [(position, self._halves.ended_by(position) or []) for position in range(first, last)]
        return {queue_offset for _, ended in records for queue_offset in ended}, records

    def _cursor(self, topic: str) -> int:
        committed = self._state.offsets.find(topic, names.TRANSACTION_GROUP, HALF_QUEUE) or 0
        return max(committed, self._state.min_offset(topic, HALF_QUEUE))

    def _move(self, topic: str, before: int, after: int) -> None:
        if after != before or self._state.offsets.find(topic, names.TRANSACTION_GROUP, HALF_QUEUE) is None:
            self._state.offsets.commit(topic, names.TRANSACTION_GROUP, HALF_QUEUE, after)

    def _move_over_ops(self, records: list[tuple[int, list[int]]], half_cursor: int) -> None:
        """Pass the op messages whose half messages all lie behind the half cursor."""
        before = after = self._cursor(names.OP_HALF_TOPIC)
        for position, ended in records:
            if any(queue_offset >= half_cursor for queue_offset in ended):
                break
            after = position + 1
        self._move(names.OP_HALF_TOPIC, before, after)


def _described(half: Message, properties: dict[str, str], now_ms: int) -> PendingTransaction:
    return PendingTransaction(
        half.queue_offset,
        half.physical_offset,
        properties.get(props.REAL_TOPIC, ""),
        properties.get(props.PRODUCER_GROUP, ""),
        properties.get(props.UNIQ_KEY, ""),
        now_ms - half.born_timestamp_ms,
        _number(properties.get(CHECK_TIMES)),
    )


def _immunity_ms(own_seconds: str | None, default_ms: int) -> int:
    seconds = _number(own_seconds, -1)
    return default_ms if seconds < 0 else seconds * 1000


def _number(text: str | None, default: int = 0) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) <= 18 else default
