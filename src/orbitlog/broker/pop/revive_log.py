"""Revive log: appends POP checkpoints and acknowledgements to `rmq_sys_REVIVE_LOG_<cluster>`, through the timer topic.

Orbitlog keeps messages in flight in a table of its own while it runs (docs/adr/0006). When it stops it hands them over
as checkpoints, which a Java broker or the next Orbitlog reads (`revive_reader`). Consumers may still hold receipts of
such messages: their acknowledgements are appended as by a Java broker. Mirrors `PopMessageProcessor.buildCkMsg`,
`AckMessageProcessor` and `ChangeInvisibleTimeProcessor`.
"""

from __future__ import annotations

import logging

from orbitlog.broker.pop.popped_queues import Flight, PopKey
from orbitlog.broker.runtime import broker_settings as keys
from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.broker.sending.message_writer import MessageWriter
from orbitlog.errors import RequestRefused
from orbitlog.formats.hosts import IPV6_HOST_BYTES
from orbitlog.formats.names import revive_topic
from orbitlog.formats.records import flags, timer_message
from orbitlog.formats.records import properties as props
from orbitlog.formats.records.message import make_message
from orbitlog.formats.records.pop_checkpoint import (
    ACK_INTERVAL_MS,
    ACK_TAG,
    CHECK_POINT_TAG,
    CheckPointKey,
    PopCheckPoint,
    ack_id,
    check_point_id,
    check_points_of,
    encode_ack,
    encode_check_point,
)
from orbitlog.wire.pop_receipt import PopReceipt

log = logging.getLogger(__name__)

# The queue named in Orbitlog's receipts: Java looks for acknowledgements in the queue of their checkpoint.
OWN_REVIVE_QUEUE = 0


class ReviveLog:
    """The writing side of one broker's revive topic."""

    def __init__(self, state: BrokerState, writer: MessageWriter) -> None:
        self._state = state
        self._writer = writer

    @property
    def is_usable(self) -> bool:
        """Return whether the next broker could read checkpoints: 4.x has neither POP nor timer."""
        return self._state.compat.config_has_5x_fields and self._state.settings[keys.TIMER_ENABLED]

    @property
    def topic(self) -> str:
        return revive_topic(self._state.cluster_name)

    def has_queue(self, revive_queue_id: int) -> bool:
        config = self._state.topics.find(self.topic)
        return config is not None and 0 <= revive_queue_id < config.read_queue_count

    def append_flight(self, key: PopKey, flight: Flight, queue_offsets: list[int]) -> bool:
        """Append checkpoints of messages in flight; return False if the store refuses them."""
        self._state.topics.find_or_create(self.topic, self._state.settings[keys.REVIVE_QUEUES])
        point_key = CheckPointKey(
            key.topic, key.group, key.queue_id, flight.start_queue_offset, flight.pop_timestamp_ms
        )
        points = check_points_of(point_key, queue_offsets, flight.visible_ms, self._state.broker_name)
        return all(self.append_check_point(point, OWN_REVIVE_QUEUE) for point in points)

    def append_check_point(self, point: PopCheckPoint, revive_queue_id: int) -> bool:
        """Append a checkpoint; return False if the store refuses it."""
        body = encode_check_point(point, self._state.compat)
        due_ms = point.visible_ms - ACK_INTERVAL_MS
        return self._append(body, revive_queue_id, CHECK_POINT_TAG, check_point_id(point), due_ms)

    def append_ack(self, key: PopKey, queue_offset: int, receipt: PopReceipt) -> bool:
        """Append an acknowledgement of a message that an earlier run or a Java broker delivered."""
        point_key = CheckPointKey(*key, receipt.start_queue_offset, receipt.pop_timestamp_ms)
        broker_name = receipt.broker_name or self._state.broker_name
        body = encode_ack(point_key, queue_offset, broker_name, self._state.compat)
        due_ms = receipt.pop_timestamp_ms + receipt.invisible_ms
        unique_id = ack_id(point_key, queue_offset, broker_name)
        return self._append(body, receipt.revive_queue_id, ACK_TAG, unique_id, due_ms)

    def _append(self, body: bytes, queue_id: int, tag: str, unique_id: str, due_ms: int) -> bool:
        state = self._state
        properties = {timer_message.DELIVER_MS: str(due_ms), props.UNIQ_KEY: unique_id, props.TAGS: tag}
        host_raw = state.store_host_raw(None)
        both_v6 = flags.BORN_HOST_IPV6 | flags.STORE_HOST_IPV6
        message = make_message(
            self.topic,
            body,
            queue_id=queue_id,
            born_timestamp_ms=state.now_ms(),
            properties=self._writer.encode(properties),
        )._replace(
            born_host_raw=host_raw,
            store_host_raw=host_raw,
            sys_flag=both_v6 if len(host_raw) == IPV6_HOST_BYTES else 0,
        )
        try:
            result = self._writer.put(self._writer.schedule(message, properties))
        except RequestRefused as error:
            log.warning("could not append a POP %s to %s: %s", tag, self.topic, error)
            return False
        if not result.is_stored:
            log.warning("could not append a POP %s to %s: %s", tag, self.topic, result.reason)
        return result.is_stored
