"""Transaction check: asks producers about pending transactions. Mirrors `TransactionalMessageServiceImpl.check`.

Two cursors are stored as offsets of the group CID_RMQ_SYS_TRANS. Every half message below the half cursor has ended or
has a later copy; every op message below the op cursor is no longer needed. Before a producer is asked, a copy of the
half message is appended with the number of checks: so the half cursor can pass the first copy, and the number survives
a restart. Unlike in Java, a check that reaches no producer does not count: a producer may be offline for a while.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from orbitlog.broker.runtime import broker_settings as keys
from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.broker.sending.quarantine import is_final
from orbitlog.broker.transactions.half_messages import CHECK_IMMUNITY_SECONDS, HALF_QUEUE, HalfMessages, origin_of
from orbitlog.formats import names
from orbitlog.formats.records import properties as props
from orbitlog.formats.records.message import Message
from orbitlog.formats.records.real_target import bounded_number
from orbitlog.formats.records.transaction_ops import CHECK_TIMES, PREPARED_QUEUE_OFFSET
from orbitlog.store.appending.put_result import PutResult

log = logging.getLogger(__name__)

STEP_MESSAGES_MAX = 10_000
LATE_ENDS_MAX = 100_000
_HOUR_MS = 3_600_000
_NUMBER_MAX = 10**18

Ask = Callable[[Message, Message], bool]
"""Ask the producer of a half message, given with its latest copy; return False if no producer could be asked."""


@dataclass(frozen=True, slots=True)
class PendingTransaction:
    """A half message that has not ended."""

    queue_offset: int
    physical_offset: int
    topic: str
    producer_group: str
    message_id: str
    age_ms: int
    check_times: int


class TransactionCheck:
    """The two cursors, and the step that advances them."""

    def __init__(self, state: BrokerState, halves: HalfMessages, can_ask: Callable[[str], bool], ask: Ask) -> None:
        self._state = state
        self._halves = halves
        self._can_ask = can_ask
        self._ask = ask
        self._reserved_ms = state.settings.store.retention.reserved_hours * _HOUR_MS
        # Origins of half messages that ended by an earlier copy than their latest one.
        self._late_ends: set[int] = set()
        self._noted_to = 0

    def check_once(self, now_ms: int) -> int:
        """Ask about transactions that are pending for too long; return the number of producers asked."""
        ended, op_records = self._read_ops()
        half_cursor = self._cursor(names.HALF_TOPIC)
        self._note_late_ends(op_records, half_cursor)
        last = min(self._state.max_offset(names.HALF_TOPIC, HALF_QUEUE), half_cursor + STEP_MESSAGES_MAX)
        asked, position = 0, half_cursor
        while position < last:
            half = None if position in ended else self._halves.at(position)
            if half is not None:
                outcome = self._check(half, ended, now_ms)
                if outcome is None:
                    break
                asked += outcome
            position += 1
        self._move(names.HALF_TOPIC, half_cursor, position)
        self._move_over_ops(op_records, position)
        return asked

    def _note_late_ends(self, records: list[tuple[int, list[int]]], half_cursor: int) -> None:
        """Note half messages that ended by a copy below the cursor: their latest copy must not be checked."""
        for op_queue_offset, ended in records:
            if op_queue_offset < self._noted_to:
                continue
            self._noted_to = op_queue_offset + 1
            for queue_offset in ended:
                half = self._halves.at(queue_offset) if queue_offset < half_cursor else None
                if half is not None and len(self._late_ends) < LATE_ENDS_MAX:
                    self._late_ends.add(origin_of(half))

    def pending(self, now_ms: int, limit: int = STEP_MESSAGES_MAX) -> list[PendingTransaction]:
        """Return pending transactions, oldest first."""
        ended, op_records = self._read_ops()
        self._note_late_ends(op_records, self._cursor(names.HALF_TOPIC))
        pending = []
        for position in range(self._cursor(names.HALF_TOPIC), self._state.max_offset(names.HALF_TOPIC, HALF_QUEUE)):
            half = None if position in ended else self._halves.at(position)
            if half is None:
                continue
            properties = half.properties
            if origin_of(half) in ended or origin_of(half) in self._late_ends:
                continue
            pending.append(_described(half, properties, now_ms))
            if len(pending) >= limit:
                break
        return pending

    def _check(self, half: Message, ended: set[int], now_ms: int) -> int | None:
        """Check one pending half message; return the number of producers asked, or None to stop at this one."""
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
                return None  # those after it are younger still
            return self._requeue(half)
        return self._ask_producer(half, properties)

    def _give_up(self, half: Message, properties: dict[str, str]) -> int | None:
        if not self._halves.discard(half):
            return None
        log.warning(
            "transaction %s of group %s has not ended after all checks; its message is in %s",
            properties.get(props.UNIQ_KEY),
            properties.get(props.PRODUCER_GROUP),
            names.CHECK_MAX_TIME_TOPIC,
        )
        return 0

    def _requeue(self, half: Message) -> int | None:
        """Append a copy of a half message whose own immunity time is not over, so that the cursor can pass it."""
        _, result = self._halves.append_copy(half, {PREPARED_QUEUE_OFFSET: str(origin_of(half))})
        return 0 if result.is_stored else self._refused(half, result)

    def _refused(self, half: Message, result: PutResult) -> int | None:
        """Quarantine a half message whose copy is never accepted; return None, to stop, if the store refuses it now.

        Its properties leave no room for the number of checks. Its producer can still end it by its offset.
        """
        if is_final(result) and self._halves.quarantine.move(half, result.reason):
            return 0
        return None

    def _ask_producer(self, half: Message, properties: dict[str, str]) -> int | None:
        group = properties.get(props.PRODUCER_GROUP, "")
        can_ask = self._can_ask(group)
        times = _number(properties.get(CHECK_TIMES)) + can_ask
        changed = {CHECK_TIMES: str(times), PREPARED_QUEUE_OFFSET: str(origin_of(half))}
        copy, result = self._halves.append_copy(half, changed)
        if not result.is_stored:
            return self._refused(half, result)
        return int(can_ask and self._ask(half, copy))

    # Cursors

    def _read_ops(self) -> tuple[set[int], list[tuple[int, list[int]]]]:
        """Return the queue offsets of ended half messages, and the op messages with those that each one ends."""
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
        """Advance past op messages whose half messages are all below the half cursor."""
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
    number = bounded_number(text or "", _NUMBER_MAX)
    return default if number is None else number
