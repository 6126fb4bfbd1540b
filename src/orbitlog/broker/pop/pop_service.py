"""POP service: takes messages out of queues, and requeues those not acknowledged within their invisibility timeout.

Mirrors the middle of `PopMessageProcessor`, and `PopReviveService` without its log (docs/adr/0006): messages in flight
are in `PoppedQueues`, and one whose timeout has passed is appended to the retry topic of its group and topic.
"""

from __future__ import annotations

import logging
import random
from dataclasses import dataclass, field, replace

from orbitlog.broker.pop.ordered_pops import OrderedPops
from orbitlog.broker.pop.popped_queues import Expired, Flight, PopKey, PoppedQueues
from orbitlog.broker.pop.queue_search import NARROW_QUEUES, QueueSearch
from orbitlog.broker.runtime import broker_settings as keys
from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.broker.sending.message_writer import MessageWriter
from orbitlog.broker.sending.quarantine import Quarantine
from orbitlog.broker.tables.clients import Subscription
from orbitlog.formats.hosts import IPV6_HOST_BYTES
from orbitlog.formats.names import RETRY_PREFIX, RETRY_TOPIC_CHARACTERS_MAX, pop_retry_topic
from orbitlog.formats.records import flags
from orbitlog.formats.records.message import TOPIC_BYTES_MAX_V1, decode_message, encode_message
from orbitlog.store.reads.queue_reader import GetResult, GetStatus, ReadRequest
from orbitlog.wire import pop_receipt
from orbitlog.wire.pop_receipt import ORDERED_REVIVE_QUEUE, PopReceipt

log = logging.getLogger(__name__)

FROM_MIN = 0
REVIVE_STEP_MAX = 64
_ROUNDS_MAX = 8
_RETRY_FIRST = 0.2
_QUEUES_WHEN_FULL = 64
_QUEUE_OFFSET_AT = slice(20, 28)  # position in a record
_ELSEWHERE = frozenset((GetStatus.OFFSET_TOO_SMALL, GetStatus.OFFSET_OVERFLOW_BADLY))


@dataclass(frozen=True, slots=True)
class PopWish:
    """The request of one pop."""

    topic: str
    group: str
    queue_id: int
    count_max: int
    invisible_ms: int
    init_mode: int
    subscription: Subscription
    ordered: bool
    attempt_id: str | None


@dataclass(slots=True)
class Popped:
    """The messages popped for one request."""

    pop_timestamp_ms: int
    revive_queue_id: int
    records: list[bytes] = field(default_factory=list)
    starts: list[str] = field(default_factory=list)
    offsets: list[str] = field(default_factory=list)
    counts: list[str] = field(default_factory=list)
    rest_count: int = 0
    size_bytes: int = 0
    """Bytes of `records`, which must fit a frame."""

    def has_room_for(self, records: list[bytes]) -> bool:
        """Return whether these fit the answer as well; the first ones always do, as each fits a frame."""
        return not self.records or self.size_bytes + sum(map(len, records)) <= keys.ANSWER_BYTES_MAX


class PopService:
    """Pops from the queues of one broker."""

    def __init__(self, state: BrokerState, writer: MessageWriter, popped: PoppedQueues, ordered: OrderedPops) -> None:
        self._state = state
        self._writer = writer
        self._quarantine = Quarantine(state, writer)
        self.popped = popped
        self.ordered = ordered

    # Pops

    def pop(self, wish: PopWish, search: QueueSearch) -> Popped:
        """Take messages, also of the retry topics; they are invisible to other consumers from now on.

        Without any, and if the search is unfinished, another call continues it.
        """
        popped = Popped(self._state.now_ms(), ORDERED_REVIVE_QUEUE if wish.ordered else 0)
        retry_first = random.random() < _RETRY_FIRST  # noqa: S311 - not for security
        queues = self._queues(wish, search, retry_first=retry_first)
        for _ in range(_ROUNDS_MAX):
            popped.rest_count = 0
            has_advanced = False
            looked_when_full = 0
            for topic, queue_id in queues:
                if len(popped.records) >= wish.count_max:
                    looked_when_full += 1
                    if looked_when_full > _QUEUES_WHEN_FULL:
                        break  # the rest is counted in part: that it is not zero suffices for clients
                has_advanced = self._pop_queue(wish, topic, queue_id, popped) or has_advanced
            # A round that only skipped filtered messages is followed by another one past them.
            if popped.records or search.is_unfinished or not popped.rest_count or not has_advanced:
                break
        return popped

    def has_message(self, wish: PopWish, search: QueueSearch) -> bool:
        """Return whether there may be a message to pop; expressions are not evaluated."""
        for topic, queue_id in self._queues(wish, search, retry_first=False):
            key = PopKey(topic, wish.group, queue_id)
            if wish.ordered and self.ordered.is_blocked(key, wish.attempt_id, self._state.now_ms()):
                continue
            next_offset = self.popped.next_to_pop(key)
            if self._state.max_offset(topic, queue_id) > (
                self._state.min_offset(topic, queue_id) if next_offset is None else next_offset
            ):
                return True
        return False

    def peek(self, wish: PopWish, search: QueueSearch) -> list[bytes]:
        """Return the messages that a pop would return, and leave them visible."""
        records: list[bytes] = []
        for topic, queue_id in self._queues(wish, search, retry_first=False):
            next_offset = self.popped.next_to_pop(PopKey(topic, wish.group, queue_id))
            if next_offset is None:
                next_offset = self._state.min_offset(topic, queue_id)
            if len(records) < wish.count_max:
                result = self._read(wish, topic, queue_id, next_offset, wish.count_max - len(records))
                if records and sum(map(len, (*records, *result.records))) > keys.ANSWER_BYTES_MAX:
                    break
                records += result.records
        return records

    def _queues(self, wish: PopWish, search: QueueSearch, *, retry_first: bool) -> list[tuple[str, int]]:
        """Return the queues to read, starting with a different one each time."""
        topics = [wish.topic] if wish.queue_id < 0 else []
        if not wish.ordered:
            topics += self._retry_topics(wish)
        spans = [(topic, self._queue_count(topic)) for topic in topics]
        if sum(count for _, count in spans) > NARROW_QUEUES:
            single = [(wish.topic, wish.queue_id)] if wish.queue_id >= 0 else []
            return single + search.next_window(spans, self._is_used)
        own = self._queue_ids(wish.topic) if wish.queue_id < 0 else [wish.queue_id]
        queues = [(wish.topic, queue_id) for queue_id in own]
        if wish.ordered:
            return queues
        retried = [(topic, queue_id) for topic in self._retry_topics(wish) for queue_id in self._queue_ids(topic)]
        return retried + queues if retry_first else queues + retried

    def _retry_topics(self, wish: PopWish) -> list[str]:
        """Return the retry topics to pop from; `group+topic` also after `enableRetryTopicV2` was switched off."""
        settings = self._state.settings
        is_v1_read = not settings[keys.POP_RETRY_V2] or settings[keys.POP_RETRY_V1_READ]
        return [pop_retry_topic(wish.group, wish.topic, is_v2=is_v2) for is_v2 in (True, False) if is_v2 or is_v1_read]

    def _queue_ids(self, topic: str) -> list[int]:
        """Return the queues that have had a message, from a random one on."""
        count = self._queue_count(topic)
        first = random.randrange(count) if count > 1 else 0  # noqa: S311 - not for security
        find = self._state.store.queue
        return [queue_id for queue_id in (*range(first, count), *range(first)) if find(topic, queue_id) is not None]

    def _queue_count(self, topic: str) -> int:
        config = self._state.topics.find(topic)
        return 0 if config is None else config.read_queue_count

    def _is_used(self, topic: str, queue_id: int) -> bool:
        return self._state.store.queue(topic, queue_id) is not None

    def _pop_queue(self, wish: PopWish, topic: str, queue_id: int, popped: Popped) -> bool:
        """Take messages of one queue; return whether the group's next offset advanced."""
        key = PopKey(topic, wish.group, queue_id)
        if len(popped.records) >= wish.count_max:
            popped.rest_count += self._rest_count(key, wish.init_mode)
            return False
        start = self._next_offset(key, wish.init_mode)
        if wish.ordered and self.ordered.is_blocked(key, wish.attempt_id, popped.pop_timestamp_ms):
            return False
        wanted = wish.count_max - len(popped.records)
        if not wish.ordered:
            wanted = min(wanted, self.popped.room(key))
        if wanted <= 0:
            popped.rest_count += max(self._state.max_offset(topic, queue_id) - start, 0)
            return False
        result = self._read(wish, topic, queue_id, start, wanted)
        if result.status in _ELSEWHERE or (result.status is GetStatus.NO_MESSAGE_IN_QUEUE and start > 0):
            log.warning(
                "group %s: offset %d of %s queue %d is out of range, continuing at %d",
                *(key.group, start, topic, queue_id, result.next_offset),
            )
            start = result.next_offset
            self.popped.start(key, start)
            result = self._read(wish, topic, queue_id, start, wanted)
        if not popped.has_room_for(result.records):
            popped.rest_count += max(result.max_offset - start, 0)  # for the next pop
            return False
        popped.rest_count += max(result.max_offset - result.next_offset, 0)
        queue_offsets = list(map(_queue_offset, result.records))
        if wish.ordered:
            self._take_ordered(wish, key, queue_offsets, result, popped)
        else:
            flight = Flight(popped.pop_timestamp_ms, popped.pop_timestamp_ms + wish.invisible_ms, start)
            if result.next_offset > start or queue_offsets:
                self.popped.pop(key, queue_offsets, result.next_offset, flight)
        if queue_offsets:
            popped.starts.append(pop_receipt.start_offset_info(topic, queue_id, start))
            popped.offsets.append(pop_receipt.message_offset_info(topic, queue_id, queue_offsets))
            self._give(wish, key, start, result.records, popped)
        return result.next_offset > start

    def _rest_count(self, key: PopKey, init_mode: int) -> int:
        """Return the number of messages that a group can still pop; does not set its first offset."""
        next_offset = self.popped.next_to_pop(key)
        if next_offset is None:
            next_offset = self._first_offset(key, init_mode)
        return max(self._state.max_offset(key.topic, key.queue_id) - next_offset, 0)

    def _read(self, wish: PopWish, topic: str, queue_id: int, start: int, count: int) -> GetResult:
        subscription = wish.subscription
        request = ReadRequest(
            start, count, subscription.tags_filter, subscription.record_filter, self._state.read_limits
        )
        return self._state.store.get(topic, queue_id, request)

    def _take_ordered(
        self, wish: PopWish, key: PopKey, queue_offsets: list[int], result: GetResult, popped: Popped
    ) -> None:
        if not queue_offsets:
            if result.next_offset > (self._state.offsets.find(*key) or 0):
                self._state.offsets.commit(*key, result.next_offset)
            return
        counts = self.ordered.take(
            key,
            queue_offsets,
            now_ms=popped.pop_timestamp_ms,
            invisible_ms=wish.invisible_ms,
            attempt_id=wish.attempt_id,
        )
        popped.counts += pop_receipt.order_count_info(key.topic, key.queue_id, counts, len(queue_offsets))

    def _give(self, wish: PopWish, key: PopKey, start: int, records: list[bytes], popped: Popped) -> None:
        size_bytes = sum(map(len, records))
        popped.size_bytes += size_bytes
        self._state.statistics.note_get(key.topic, key.group, len(records), size_bytes)
        if key.topic == wish.topic:
            popped.records += records
            return
        for record in records:
            receipt = PopReceipt(
                start,
                popped.pop_timestamp_ms,
                wish.invisible_ms,
                popped.revive_queue_id,
                pop_receipt.retry_flag(key.topic),
                self._state.broker_name,
                key.queue_id,
                _queue_offset(record),
            )
            popped.records.append(self._retried(record, wish.topic, receipt))

    def _retried(self, record: bytes, topic: str, receipt: PopReceipt) -> bytes:
        """Return a message of a retry topic as its consumer expects it: with its original topic and its receipt."""
        message = decode_message(record, check_crc=False)
        properties = message.properties | {pop_receipt.POP_RECEIPT: str(receipt)}
        return encode_message(
            message._replace(
                topic=topic,
                properties_raw=self._writer.encode(properties),
                version=1 if len(topic) <= TOPIC_BYTES_MAX_V1 else 2,
            )
        )

    def _next_offset(self, key: PopKey, init_mode: int) -> int:
        """Return the offset that a group pops next; for a new group, set its first one."""
        reset_to = self._state.offsets.take_reset(*key)
        if reset_to is not None:
            self.ordered.forget(key)
            self.popped.start(key, reset_to)
            return reset_to
        next_offset = self.popped.next_to_pop(key)
        if next_offset is None:
            next_offset = self._first_offset(key, init_mode)
            self.popped.start(key, next_offset)
        return next_offset

    def _first_offset(self, key: PopKey, init_mode: int) -> int:
        state, topic, queue_id = self._state, key.topic, key.queue_id
        low = state.min_offset(topic, queue_id)
        if init_mode == FROM_MIN or topic.startswith(RETRY_PREFIX):
            return low
        if low == 0 and state.is_in_memory(topic, queue_id, 0):
            return 0
        return max(state.max_offset(topic, queue_id) - 1, 0)

    # Revival

    def revive_once(self, now_ms: int) -> int:
        """Append some expired messages to their retry topics; return their number."""
        count = 0
        for expired in self.popped.expired(now_ms, REVIVE_STEP_MAX):
            if not self.revive(expired):
                break
            self.popped.acknowledge(expired.key, expired.queue_offset, expired.flight.pop_timestamp_ms)
            count += 1
        return count

    def revive(self, expired: Expired, *, counts: bool = True) -> bool:
        """Append a message to its retry topic; return False if the store refuses it now.

        A message that a consumer suspended does not count as one more delivery.
        """
        state, key = self._state, expired.key
        queue = state.store.queue(key.topic, key.queue_id)
        entry = None if queue is None else queue.entry(expired.queue_offset)
        message = None if entry is None else state.store.read_at(entry.physical_offset)
        if message is None or state.groups.find(key.group) is None:
            log.warning(
                "no retry: message %d of %s queue %d was deleted", expired.queue_offset, key.topic, key.queue_id
            )
            return True
        topic, queue_id = self._retry_queue(key)
        properties = message.properties
        properties.setdefault(pop_receipt.FIRST_POP_TIME, str(expired.flight.pop_timestamp_ms))
        if state.compat.config_has_5x_fields:
            properties[pop_receipt.ORIGIN_GROUP] = key.group
        host_raw = state.store_host_raw(None)
        both_v6 = flags.BORN_HOST_IPV6 | flags.STORE_HOST_IPV6
        plain = message._replace(
            topic=topic,
            queue_id=queue_id,
            born_host_raw=host_raw,
            store_host_raw=host_raw,
            sys_flag=message.sys_flag & ~both_v6 | (both_v6 if len(host_raw) == IPV6_HOST_BYTES else 0),
            reconsume_times=message.reconsume_times + (1 if counts else 0),
            version=1 if len(topic) <= TOPIC_BYTES_MAX_V1 else 2,
        )
        again = plain._replace(properties_raw=self._writer.encode(properties))
        # The second copy is for a message whose properties leave no room for the broker's.
        return self._quarantine.deliver(message, again, plain)

    def _retry_queue(self, key: PopKey) -> tuple[str, int]:
        """Return topic and queue in which a message is retried, created if they do not exist."""
        state = self._state
        settings, topics = state.settings, state.topics
        is_retried = key.topic.startswith(RETRY_PREFIX)
        topic = key.topic if is_retried else pop_retry_topic(key.group, key.topic, is_v2=settings[keys.POP_RETRY_V2])
        if len(topic) > RETRY_TOPIC_CHARACTERS_MAX:
            return topic, 0  # the store refuses it: only a checkpoint of another broker names such a group and topic
        is_separate = settings[keys.POP_SEPARATE_RETRY]
        original = topics.find(key.topic) if is_separate and not is_retried else None
        wanted = original.write_queue_count if original is not None else 1
        config = topics.find_or_create(topic, wanted)
        if config.write_queue_count < wanted:
            config = topics.put(replace(config, read_queue_count=wanted, write_queue_count=wanted))
        for queue_id in range(config.write_queue_count):
            if state.offsets.find(topic, key.group, queue_id) is None:
                state.offsets.commit(topic, key.group, queue_id, 0)
        return topic, key.queue_id if is_separate and key.queue_id < config.write_queue_count else 0


def _queue_offset(record: bytes) -> int:
    return int.from_bytes(record[_QUEUE_OFFSET_AT], "big")
