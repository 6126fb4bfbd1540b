"""Queue statistics: offsets and timestamps of all queues of a topic or a group, computed and encoded in steps.

A topic may have 65,535 queues and a broker 20,000 groups. Each function is a generator that yields the number of queues
after each step, for `in_slices`, and returns JSON. The bodies are those of `ConsumeStats`, `ConsumeStatsList`,
`TopicStats` and `ConsumeTimeSpans`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass, field

import orjson

from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.broker.tables.statistics import GROUP_GET_NUMS
from orbitlog.formats.message_queue import MessageQueue
from orbitlog.formats.names import popped_topic
from orbitlog.formats.tables.loose_json import Json
from orbitlog.formats.tables.topic_config import TopicConfig
from orbitlog.settings.limits import STATS_QUEUES
from orbitlog.wire.bodies.body_json import encode_body, encode_queue
from orbitlog.wire.bodies.queue_bodies import ConsumeOffset, QueueTimeSpan, TopicOffset

STEP_QUEUES = 100

JsonSteps = Generator[int, None, dict[str | int, Json]]


@dataclass(slots=True)
class _Counted:
    """Queues of one request so far, and sums over them."""

    total: int = 0
    in_step: int = 0
    behind: int = 0
    in_flight: int = 0

    def is_step_full(self) -> bool:
        """Count one queue; return whether a step is complete."""
        self.total += 1
        self.in_step += 1
        return self.in_step >= STEP_QUEUES

    def take_step(self) -> int:
        count, self.in_step = self.in_step, 0
        return count


@dataclass(slots=True)
class _Stats:
    """The encoded queues of one group in some topics."""

    members: list[bytes] = field(default_factory=list)
    tps: float = 0.0

    def json(self) -> dict[str | int, Json]:
        return {"consumeTps": self.tps, "offsetTable": _object(self.members)}


class QueueStatistics:
    """Computes the statistics of one broker."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state

    # Groups

    def group_steps(self, group: str, topics: Iterable[str]) -> JsonSteps:
        """Return the offsets of a group; raise `RequestRefused` if its topics have too many queues together."""
        counted, stats = _Counted(), _Stats()
        for topic in dict.fromkeys(topics):
            yield from self._topic_steps(group, topic, stats, counted)
        yield counted.take_step()
        return stats.json()

    def all_groups_steps(self, broker_address: str, *, ordered: bool) -> JsonSteps:
        """Return the offsets of every group in ordered, or in unordered, topics."""
        state, counted = self._state, _Counted()
        groups: list[Json] = []
        for group in list(state.groups.table):
            entries: list[Json] = []
            for topic in state.offsets.topics_of(group):
                config = state.topics.find(topic)
                if config is None or config.ordered != ordered:
                    continue
                stats = _Stats()
                yield from self._topic_steps(group, topic, stats, counted)
                if stats.members:
                    entries.append(stats.json())
            groups.append({group: entries})
            if counted.is_step_full():  # a group without offsets costs a little as well
                yield counted.take_step()
        return {
            "brokerAddr": broker_address,
            "consumeStatsList": groups,
            "totalDiff": counted.behind,
            "totalInflightDiff": counted.in_flight,
        }

    def _topic_steps(self, group: str, topic: str, stats: _Stats, counted: _Counted) -> Generator[int, None, None]:
        """Add the queues of one topic, unless the consumers of the group no longer subscribe to it."""
        state = self._state
        config = state.topics.find(topic)
        online = state.clients.consumer_group(group)
        # Consumers subscribe to a topic, not to its POP retry topics.
        wanted = {topic, popped_topic(topic, group)}
        if config is None or (online and online.subscriptions and wanted.isdisjoint(online.subscriptions)):
            return
        state.limits.refuse_over(STATS_QUEUES, counted.total + config.read_queue_count)
        for queue_id in range(config.read_queue_count):
            offset = self._group_offset(group, topic, queue_id)
            stats.members.append(self._member(topic, queue_id, encode_body(offset)))
            counted.behind += offset.broker_queue_offset - offset.consumer_queue_offset
            counted.in_flight += offset.pull_queue_offset - offset.consumer_queue_offset
            if counted.is_step_full():
                yield counted.take_step()
        counter = state.statistics.find(GROUP_GET_NUMS, f"{topic}@{group}")
        stats.tps += counter.windows(state.now_ms())[0].tps if counter else 0.0

    def _group_offset(self, group: str, topic: str, queue_id: int) -> ConsumeOffset:
        state = self._state
        consumed = max(state.offsets.find(topic, group, queue_id) or 0, 0)
        pulled = state.offsets.pulled(topic, group, queue_id)
        return ConsumeOffset(
            broker_queue_offset=state.max_offset(topic, queue_id),
            consumer_queue_offset=consumed,
            pull_queue_offset=max(consumed, pulled or 0),
            last_timestamp_ms=max(state.store_time_ms(topic, queue_id, consumed - 1), 0),
        )

    # Topics

    def topic_steps(self, config: TopicConfig, put_tps: float) -> JsonSteps:
        """Return both offsets of each queue of a topic, and its write rate."""
        state, topic, members, counted = self._state, config.topic, list[bytes](), _Counted()
        for queue_id in range(config.write_queue_count):
            end = state.max_offset(topic, queue_id)
            offset = TopicOffset(
                min_queue_offset=max(state.min_offset(topic, queue_id), 0),
                max_queue_offset=end,
                last_update_timestamp_ms=max(state.store_time_ms(topic, queue_id, end - 1), 0) if end else 0,
            )
            members.append(self._member(topic, queue_id, encode_body(offset)))
            if counted.is_step_full():
                yield counted.take_step()
        return {"offsetTable": _object(members), "topicPutTps": put_tps}

    def span_steps(self, config: TopicConfig, group: str) -> JsonSteps:
        """Return the time spans of each queue of a topic."""
        spans, counted = list[bytes](), _Counted()
        for queue_id in range(config.write_queue_count):
            spans.append(encode_body(self._span(group, config.topic, queue_id)))
            if counted.is_step_full():
                yield counted.take_step()
        return {"consumeTimeSpanSet": orjson.Fragment(b"[" + b",".join(spans) + b"]")}  # type: ignore[dict-item]

    def _span(self, group: str, topic: str, queue_id: int) -> QueueTimeSpan:
        state = self._state
        first_ms = state.store.earliest_time_ms(topic, queue_id)
        end = state.max_offset(topic, queue_id)
        consumed = state.offsets.find(topic, group, queue_id) or 0
        waits_ms = state.store_time_ms(topic, queue_id, consumed) if consumed < end else -1
        return QueueTimeSpan(
            MessageQueue(topic, state.broker_name, queue_id),
            first_ms,
            state.store_time_ms(topic, queue_id, end - 1),
            state.store_time_ms(topic, queue_id, consumed - 1) if consumed > 0 else first_ms,
            max(state.now_ms() - waits_ms, 0) if waits_ms >= 0 else 0,
        )

    def _member(self, topic: str, queue_id: int, value: bytes) -> bytes:
        return encode_queue(MessageQueue(topic, self._state.broker_name, queue_id)) + b":" + value


def _object(members: list[bytes]) -> Json:
    # orjson copies a fragment into its output as it is: it has no objects as keys itself.
    return orjson.Fragment(b"{" + b",".join(members) + b"}")  # type: ignore[return-value]
