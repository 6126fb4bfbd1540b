"""Progress handlers: consumer lag, offset reset, offset cloning. Mirrors that part of `AdminBrokerProcessor`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping

from orbitlog.broker.admin.name_checks import checked_group, checked_stored_topic
from orbitlog.broker.delayed.delayed_delivery import DelayedDelivery
from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.broker.tables.statistics import GROUP_GET_NUMS
from orbitlog.errors import RequestRefused
from orbitlog.formats.message_queue import MessageQueue
from orbitlog.formats.names import popped_topic
from orbitlog.formats.tables.topic_config import TopicConfig
from orbitlog.remoting.connection import Answer, Connection, Handler
from orbitlog.settings.limits import STATS_QUEUES, STATS_TOPICS
from orbitlog.wire.admin_headers import (
    BrokerConsumeStatsRequest,
    CloneGroupOffsetRequest,
    ConsumeStatsRequest,
    CorrectionOffsetRequest,
    QueryConsumeQueueRequest,
    ResetOffsetRequest,
    TopicGroupRequest,
)
from orbitlog.wire.bodies.body_json import encode_body
from orbitlog.wire.bodies.list_bodies import GroupList
from orbitlog.wire.bodies.queue_bodies import (
    ConsumeOffset,
    ConsumeStats,
    ConsumeStatsList,
    ConsumeTimeSpans,
    CorrectionOffsets,
    QueueOffsetTable,
    QueueTimeSpan,
    QueueUnit,
    QueueUnits,
)
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command, response_to
from orbitlog.wire.nameserver_headers import TopicRequest

log = logging.getLogger(__name__)

_UNITS_MAX = 1_000


class ProgressHandlers:
    """Serves the requests of operators about consumer progress; `table` lists the codes."""

    def __init__(self, state: BrokerState, delayed: DelayedDelivery, wake: Callable[[str, int], None]) -> None:
        self._state = state
        self._delayed = delayed
        self._wake = wake

    @property
    def table(self) -> Mapping[int, Handler]:
        return {
            RequestCode.GET_CONSUME_STATS: self.consume_stats,
            RequestCode.GET_BROKER_CONSUME_STATS: self.all_consume_stats,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self.consumed_by,
            RequestCode.QUERY_CONSUME_TIME_SPAN: self.time_spans,
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self.reset,
            RequestCode.CLONE_GROUP_OFFSET: self.clone,
            RequestCode.QUERY_CORRECTION_OFFSET: self.correction,
            RequestCode.GET_ALL_CONSUMER_OFFSET: self.all_offsets,
            RequestCode.GET_ALL_DELAY_OFFSET: self.delay_offsets,
            RequestCode.QUERY_CONSUME_QUEUE: self.units,
        }

    # Reading

    def consume_stats(self, _: Connection, request: Command) -> Answer:
        header = ConsumeStatsRequest.from_ext_fields(request.ext_fields)
        given = self._listed((header.topics or header.topic or ""), ";")
        topics = given or self._state.offsets.topics_of(header.group)
        configs = filter(None, map(self._state.topics.find, topics))
        self._state.limits.refuse_over(STATS_QUEUES, sum(config.read_queue_count for config in configs))
        return response_to(request, ResponseCode.SUCCESS, body=encode_body(self._stats(header.group, topics)))

    def _listed(self, text: str, separator: str) -> list[str]:
        """Split a list of names in a header field, each once; refuse one that is too long."""
        names = list(dict.fromkeys(filter(None, text.split(separator))))
        self._state.limits.refuse_over(STATS_TOPICS, len(names))
        return names

    def _stats(self, group: str, topics: Iterable[str]) -> ConsumeStats:
        """Return a group's offsets, without topics that its consumers no longer subscribe to."""
        state = self._state
        online = state.clients.consumer_group(group)
        offsets: dict[MessageQueue, ConsumeOffset] = {}
        tps = 0.0
        for topic in topics:
            config = state.topics.find(topic)
            # Consumers subscribe to a topic, not to its POP retry topics.
            wanted = {topic, popped_topic(topic, group)}
            if config is None or (online and online.subscriptions and wanted.isdisjoint(online.subscriptions)):
                continue
            for queue_id in range(config.read_queue_count):
                offsets[MessageQueue(topic, state.broker_name, queue_id)] = self._queue_stats(group, topic, queue_id)
            counter = state.statistics.find(GROUP_GET_NUMS, f"{topic}@{group}")
            tps += counter.windows(state.now_ms())[0].tps if counter else 0.0
        return ConsumeStats(offsets=offsets, consume_tps=tps)

    def _queue_stats(self, group: str, topic: str, queue_id: int) -> ConsumeOffset:
        state = self._state
        consumed = max(state.offsets.find(topic, group, queue_id) or 0, 0)
        pulled = state.offsets.pulled(topic, group, queue_id)
        return ConsumeOffset(
            broker_queue_offset=state.max_offset(topic, queue_id),
            consumer_queue_offset=consumed,
            pull_queue_offset=max(consumed, pulled or 0),
            last_timestamp_ms=max(state.store_time_ms(topic, queue_id, consumed - 1), 0),
        )

    def all_consume_stats(self, connection: Connection, request: Command) -> Answer:
        header = BrokerConsumeStatsRequest.from_ext_fields(request.ext_fields)
        state = self._state
        groups = []
        behind = in_flight = 0
        for group in state.groups.table:
            stats = []
            for topic in state.offsets.topics_of(group):
                config = state.topics.find(topic)
                if config is None or config.ordered != header.ordered:
                    continue
                group_stats = self._stats(group, (topic,))
                if group_stats.offsets:
                    stats.append(group_stats)
                    behind += sum(
                        offset.broker_queue_offset - offset.consumer_queue_offset
                        for offset in group_stats.offsets.values()
                    )
                    in_flight += sum(
                        offset.pull_queue_offset - offset.consumer_queue_offset
                        for offset in group_stats.offsets.values()
                    )
            groups.append({group: tuple(stats)})
        body = ConsumeStatsList(tuple(groups), state.address_for(connection), behind, in_flight)
        return response_to(request, ResponseCode.SUCCESS, body=encode_body(body))

    def consumed_by(self, _: Connection, request: Command) -> Answer:
        topic = TopicRequest.from_ext_fields(request.ext_fields).topic
        groups = (*self._state.clients.groups_subscribed_to(topic), *self._state.offsets.groups_of(topic))
        return response_to(request, ResponseCode.SUCCESS, body=encode_body(GroupList(tuple(dict.fromkeys(groups)))))

    def time_spans(self, _: Connection, request: Command) -> Answer:
        header = TopicGroupRequest.from_ext_fields(request.ext_fields)
        config = self._topic(header.topic)
        spans = tuple(self._span(header.group, config.topic, queue_id) for queue_id in range(config.write_queue_count))
        return response_to(request, ResponseCode.SUCCESS, body=encode_body(ConsumeTimeSpans(spans)))

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

    def correction(self, _: Connection, request: Command) -> Answer:
        """Return a group's offsets, but at most the smallest of the other groups named."""
        header = CorrectionOffsetRequest.from_ext_fields(request.ext_fields)
        offsets = self._state.offsets
        corrected = offsets.queues(header.topic, header.compare_group)
        for group in self._listed(header.filter_groups or "", ","):
            for queue_id, queue_offset in offsets.queues(header.topic, group).items():
                corrected[queue_id] = min(queue_offset, corrected.get(queue_id, queue_offset))
        return response_to(request, ResponseCode.SUCCESS, body=encode_body(CorrectionOffsets(corrected)))

    def all_offsets(self, _: Connection, request: Command) -> Answer:
        changed = self._state.offsets.is_changed
        table = self._state.offsets.snapshot()
        self._state.offsets.is_changed = changed
        return response_to(request, ResponseCode.SUCCESS, body=encode_body(table))

    def delay_offsets(self, _: Connection, request: Command) -> Answer:
        changed = self._delayed.is_changed
        table = self._delayed.snapshot()
        self._delayed.is_changed = changed
        return response_to(request, ResponseCode.SUCCESS, body=encode_body(table))

    def units(self, _: Connection, request: Command) -> Answer:
        """Return units of a queue, undecoded."""
        header = QueryConsumeQueueRequest.from_ext_fields(request.ext_fields)
        queue = self._state.store.queue(header.topic, header.queue_id)
        if queue is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"{header.queue_id}@{header.topic[:255]} is not exist!")
        count = max(min(header.count, _UNITS_MAX), 0)
        start = max(header.index, queue.min_offset)
        entries = (queue.entry(number) for number in range(start, min(start + count, queue.max_offset)))
        units = tuple(
            QueueUnit(entry.physical_offset, entry.size_bytes, entry.tags_code)
            for entry in entries
            if entry is not None
        )
        body = QueueUnits(units, queue.min_offset, queue.max_offset)
        return response_to(request, ResponseCode.SUCCESS, body=encode_body(body))

    # Changing

    def reset(self, connection: Connection, request: Command) -> Answer:
        """Reset a group's offsets to a timestamp or an offset; its consumers learn it with their next pull."""
        header = ResetOffsetRequest.from_ext_fields(request.ext_fields)
        state = self._state
        topic, group = checked_stored_topic(header.topic), checked_group(header.group)
        config = self._topic(topic)
        if state.groups.find(group) is None:
            raise RequestRefused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} does not exist")
        queue_ids = range(config.read_queue_count) if header.queue_id < 0 else (header.queue_id,)
        targets = {queue_id: self._target(header, topic, queue_id) for queue_id in queue_ids}
        for queue_id, queue_offset in targets.items():
            state.offsets.reset(topic, group, queue_id, queue_offset)
            self._wake(topic, queue_id)
        log.info("offsets of group %s in %s reset to %s by %s", group, topic, targets, connection.peer)
        table = {MessageQueue(topic, state.broker_name, queue_id): offset for queue_id, offset in targets.items()}
        return response_to(request, ResponseCode.SUCCESS, body=encode_body(QueueOffsetTable(table)))

    def _target(self, header: ResetOffsetRequest, topic: str, queue_id: int) -> int:
        state = self._state
        if header.queue_id >= 0 and header.queue_offset is not None and header.queue_offset != -1:
            low, high = state.min_offset(topic, queue_id), state.max_offset(topic, queue_id)
            if not low <= header.queue_offset <= high:
                raise RequestRefused(
                    ResponseCode.SYSTEM_ERROR, f"offset {header.queue_offset} is out of range {low} to {high}"
                )
            return header.queue_offset
        if header.timestamp_ms < 0:
            return state.max_offset(topic, queue_id)
        return state.store.offset_by_time(topic, queue_id, header.timestamp_ms)

    def clone(self, connection: Connection, request: Command) -> Answer:
        header = CloneGroupOffsetRequest.from_ext_fields(request.ext_fields)
        state = self._state
        source, target = checked_group(header.source_group), checked_group(header.destination_group)
        for topic in [header.topic] if header.topic else state.offsets.topics_of(source):
            if state.topics.find(topic) is not None:
                state.offsets.clone(topic, source, target)
        log.info("offsets of group %s copied to group %s by %s", source, target, connection.peer)
        return response_to(request, ResponseCode.SUCCESS)

    def _topic(self, topic: str) -> TopicConfig:
        config = self._state.topics.find(topic)
        if config is None:
            raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic[:255]}] not exist")
        return config
