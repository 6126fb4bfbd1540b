"""Progress handlers: consumer lag, offset reset, offset cloning. Mirrors that part of `AdminBrokerProcessor`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Mapping
from itertools import islice

from orbitlog.broker.admin.name_checks import checked_group, checked_stored_topic, known_topic
from orbitlog.broker.admin.queue_statistics import JsonSteps, QueueStatistics
from orbitlog.broker.delayed.delayed_delivery import DelayedDelivery
from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.broker.tables.table_saver import copy_of
from orbitlog.errors import RequestRefused
from orbitlog.formats.message_queue import MessageQueue
from orbitlog.formats.tables.offset_tables import ConsumerOffsets
from orbitlog.remoting.connection import Answer, Connection, Handler
from orbitlog.remoting.loop_slices import in_slices, sliced
from orbitlog.remoting.whole_tables import WholeTables
from orbitlog.settings.limits import STATS_TOPICS
from orbitlog.wire.admin_headers import (
    BrokerConsumeStatsRequest,
    CloneGroupOffsetRequest,
    ConsumeStatsRequest,
    CorrectionOffsetRequest,
    QueryConsumeQueueRequest,
    ResetOffsetRequest,
    TopicGroupRequest,
)
from orbitlog.wire.bodies.body_json import encode_body, write_body
from orbitlog.wire.bodies.list_bodies import GroupList
from orbitlog.wire.bodies.queue_bodies import (
    CorrectionOffsets,
    QueueOffsetTable,
    QueueUnit,
    QueueUnits,
)
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command, response_to
from orbitlog.wire.nameserver_headers import TopicRequest

log = logging.getLogger(__name__)

_UNITS_MAX = 1_000
_STEP_TARGETS = 100
_SHOWN_TARGETS = 20
_OFFSET_TABLE = b'{"offsetTable":{'


class ProgressHandlers:
    """Serves the requests of operators about consumer progress; `table` lists the codes."""

    def __init__(self, state: BrokerState, delayed: DelayedDelivery, wake: Callable[[str, int], None]) -> None:
        self._state = state
        self._delayed = delayed
        self._wake = wake
        self._statistics = QueueStatistics(state)
        self._tables = WholeTables()

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

    async def consume_stats(self, _: Connection, request: Command) -> Answer:
        header = ConsumeStatsRequest.from_ext_fields(request.ext_fields)
        given = self._listed((header.topics or header.topic or ""), ";")
        topics = given or self._state.offsets.topics_of(header.group)
        return await _answered(request, self._statistics.group_steps(header.group, topics))

    def _listed(self, text: str, separator: str) -> list[str]:
        """Split a list of names in a header field, each once; refuse one that is too long."""
        names = list(dict.fromkeys(filter(None, text.split(separator))))
        self._state.limits.refuse_over(STATS_TOPICS, len(names))
        return names

    async def all_consume_stats(self, connection: Connection, request: Command) -> Answer:
        header = BrokerConsumeStatsRequest.from_ext_fields(request.ext_fields)
        address = self._state.address_for(connection)
        return await _answered(request, self._statistics.all_groups_steps(address, ordered=header.ordered))

    def consumed_by(self, _: Connection, request: Command) -> Answer:
        topic = TopicRequest.from_ext_fields(request.ext_fields).topic
        groups = (*self._state.clients.groups_subscribed_to(topic), *self._state.offsets.groups_of(topic))
        return response_to(request, ResponseCode.SUCCESS, body=encode_body(GroupList(tuple(dict.fromkeys(groups)))))

    async def time_spans(self, _: Connection, request: Command) -> Answer:
        header = TopicGroupRequest.from_ext_fields(request.ext_fields)
        return await _answered(
            request, self._statistics.span_steps(known_topic(self._state.topics, header.topic), header.group)
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

    async def all_offsets(self, _: Connection, request: Command) -> Answer:
        offsets = self._state.offsets

        def copy() -> Callable[[], ConsumerOffsets]:
            table = copy_of(offsets)
            return lambda: table

        return await self._tables.answer(request, offsets.queue_count, copy)

    def delay_offsets(self, _: Connection, request: Command) -> Answer:
        return response_to(request, ResponseCode.SUCCESS, body=encode_body(copy_of(self._delayed)))

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

    async def reset(self, connection: Connection, request: Command) -> Answer:
        """Reset a group's offsets to a timestamp or an offset; its consumers learn it with their next pull."""
        header = ResetOffsetRequest.from_ext_fields(request.ext_fields)
        state = self._state
        topic, group = checked_stored_topic(header.topic), checked_group(header.group)
        config = known_topic(self._state.topics, topic)
        if state.groups.find(group) is None:
            raise RequestRefused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} does not exist")
        queue_ids = range(config.read_queue_count) if header.queue_id < 0 else (header.queue_id,)
        targets = await in_slices(self._target_steps(header, topic, queue_ids))
        body = await in_slices(self._reset_steps(topic, group, targets))
        shown = dict(islice(targets.items(), _SHOWN_TARGETS))
        log.info("%d offsets of group %s in %s reset by %s: %s", len(targets), group, topic, connection.peer, shown)
        return response_to(request, ResponseCode.SUCCESS, body=body)

    def _reset_steps(self, topic: str, group: str, targets: Mapping[int, int]) -> Generator[int, None, bytes]:
        """Reset the offsets of a group in steps, and return the encoded `QueueOffsetTable`."""
        state, parts = self._state, list[bytes]()
        for part in sliced(targets.items(), _STEP_TARGETS):
            table: dict[MessageQueue, int] = {}
            for queue_id, queue_offset in part:
                state.offsets.reset(topic, group, queue_id, queue_offset)
                self._wake(topic, queue_id)
                table[MessageQueue(topic, state.broker_name, queue_id)] = queue_offset
            parts.append(encode_body(QueueOffsetTable(table))[len(_OFFSET_TABLE) : -len(b"}}")])
            yield len(part)
        return _OFFSET_TABLE + b",".join(parts) + b"}}"

    def _target_steps(
        self, header: ResetOffsetRequest, topic: str, queue_ids: Iterable[int]
    ) -> Generator[int, None, dict[int, int]]:
        targets: dict[int, int] = {}
        for part in sliced(queue_ids, _STEP_TARGETS):
            targets |= {queue_id: self._target(header, topic, queue_id) for queue_id in part}
            yield len(part)
        return targets

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


async def _answered(request: Command, steps: JsonSteps) -> Command:
    """Compute a body in steps, with other requests between them, and return the response."""
    return response_to(request, ResponseCode.SUCCESS, body=write_body(dict(await in_slices(steps))))
