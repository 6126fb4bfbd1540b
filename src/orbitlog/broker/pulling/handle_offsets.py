"""Offset handlers: offsets of queues, and committed offsets of groups.

Mirrors `ConsumerManageProcessor` and the offset part of `AdminBrokerProcessor`.
"""

from __future__ import annotations

from collections.abc import Mapping

from orbitlog.broker.admin.name_checks import checked_group, checked_stored_topic
from orbitlog.broker.runtime import broker_settings as keys
from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.errors import RequestRefused
from orbitlog.remoting.connection import Answer, Connection, Handler
from orbitlog.store.reads.time_search import Boundary
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command, response_to
from orbitlog.wire.consume_headers import (
    GetMaxOffsetRequest,
    QueryConsumerOffsetRequest,
    QueueOffsetResponse,
    SearchOffsetRequest,
    TimestampResponse,
    TopicQueueRequest,
    UpdateConsumerOffsetRequest,
)


class OffsetHandlers:
    """Serves queries, commits and searches of offsets; `table` lists the codes."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state

    @property
    def table(self) -> Mapping[int, Handler]:
        return {
            RequestCode.QUERY_CONSUMER_OFFSET: self.query,
            RequestCode.UPDATE_CONSUMER_OFFSET: self.update,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self.search,
            RequestCode.GET_MAX_OFFSET: self.maximum,
            RequestCode.GET_MIN_OFFSET: self.minimum,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self.earliest,
        }

    def query(self, _: Connection, request: Command) -> Answer:
        """Return a group's committed offset; for a new group 0, if the queue still has its first message."""
        header = QueryConsumerOffsetRequest.from_ext_fields(request.ext_fields)
        state = self._state
        committed = state.offsets.find(header.topic, header.group, header.queue_id)
        if committed is not None and committed >= 0:
            return _offset(request, committed)
        if header.set_zero_if_not_found is not False and self._starts_at_zero(header.topic, header.queue_id):
            return _offset(request, 0)
        raise RequestRefused(ResponseCode.QUERY_NOT_FOUND, f"group {header.group[:255]} has not committed this queue")

    def _starts_at_zero(self, topic: str, queue_id: int) -> bool:
        """Return whether a new group starts at 0, whatever its `consumeFromWhere`.

        It does so also in an empty queue, as with 4.x. A 5.x broker answers "not found", the client then asks for the
        end of the queue, and a message that arrives between the two requests is never delivered.
        """
        state = self._state
        if state.max_offset(topic, queue_id) == 0:
            return state.topics.find(topic) is not None
        return state.min_offset(topic, queue_id) <= 0 and state.is_in_memory(topic, queue_id, 0)

    def update(self, _: Connection, request: Command) -> Answer:
        """Commit an offset."""
        header = UpdateConsumerOffsetRequest.from_ext_fields(request.ext_fields)
        state = self._state
        topic, group = header.topic, header.group
        if state.groups.find(group) is None:
            auto_create = state.settings[keys.AUTO_CREATE_GROUP]
            if state.groups.find_or_create(checked_group(group), auto_create=auto_create) is None:
                raise RequestRefused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"group {group} does not exist")
        config = state.topics.find(topic)
        if config is None:
            raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, f"topic {topic[:255]} does not exist")
        count = max(config.read_queue_count, config.write_queue_count)
        # A queue that the topic had earlier may still have an offset.
        if header.queue_id >= count and state.offsets.find(topic, group, header.queue_id) is None:
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{header.queue_id}] is out of range: {topic} has {count} queues",
            )
        if header.queue_id < 0 or header.commit_queue_offset < 0:
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, "queueId and commitOffset must not be negative")
        queue_count = max(config.read_queue_count, config.write_queue_count)
        if header.queue_id >= queue_count:
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{header.queue_id}] is out of range: topic {topic} has {queue_count} queues",
            )
        if state.offsets.find(topic, group, header.queue_id) is None:
            state.offsets.refuse_full()
        if state.offsets.commit(topic, group, header.queue_id, header.commit_queue_offset):
            return response_to(request, ResponseCode.SUCCESS)
        return response_to(request, ResponseCode.SUCCESS, "commit ignored: the offset was reset")

    def search(self, _: Connection, request: Command) -> Answer:
        header = SearchOffsetRequest.from_ext_fields(request.ext_fields)
        is_upper = (header.boundary_type or "").upper() == Boundary.UPPER.value
        boundary = Boundary.UPPER if is_upper else Boundary.LOWER
        topic = checked_stored_topic(header.topic)
        return _offset(request, self._state.store.offset_by_time(topic, header.queue_id, header.timestamp_ms, boundary))

    def maximum(self, _: Connection, request: Command) -> Answer:
        header = GetMaxOffsetRequest.from_ext_fields(request.ext_fields)
        return _offset(request, self._state.max_offset(header.topic, header.queue_id))

    def minimum(self, _: Connection, request: Command) -> Answer:
        header = TopicQueueRequest.from_ext_fields(request.ext_fields)
        return _offset(request, self._state.min_offset(header.topic, header.queue_id))

    def earliest(self, _: Connection, request: Command) -> Answer:
        header = TopicQueueRequest.from_ext_fields(request.ext_fields)
        timestamp_ms = self._state.store.earliest_time_ms(header.topic, header.queue_id)
        return response_to(
            request, ResponseCode.SUCCESS, ext_fields=TimestampResponse(timestamp_ms=timestamp_ms).to_ext_fields()
        )


def _offset(request: Command, queue_offset: int) -> Command:
    header = QueueOffsetResponse(queue_offset=queue_offset)
    return response_to(request, ResponseCode.SUCCESS, ext_fields=header.to_ext_fields())
