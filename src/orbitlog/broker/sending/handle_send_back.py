"""Retry of messages that a consumer could not process: redelivers them later, and ends in the dead letter topic.

Mirrors `AbstractSendMessageProcessor.consumerSendMsgBack`. Each attempt has a longer delay than the last.
"""

from __future__ import annotations

import logging
import random

from orbitlog.broker.admin.name_checks import checked_group
from orbitlog.broker.runtime import broker_settings as keys
from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.broker.sending.flush_queue import FlushQueue, once_flushed
from orbitlog.broker.sending.handle_send import MAX_RECONSUME_SINCE_VERSION
from orbitlog.broker.sending.message_writer import MessageWriter
from orbitlog.broker.sending.quarantine import Quarantine, is_final
from orbitlog.broker.tables.statistics import SNDBCK_PUT_NUMS
from orbitlog.errors import RequestRefused
from orbitlog.formats.hosts import IPV6_HOST_BYTES, decode_host
from orbitlog.formats.names import retry_topic
from orbitlog.formats.records import flags
from orbitlog.formats.records import properties as props
from orbitlog.formats.records.message import TOPIC_BYTES_MAX_V1
from orbitlog.formats.records.message_id import OffsetMessageId
from orbitlog.formats.tables.topic_config import PERMISSION_WRITE
from orbitlog.remoting.connection import Answer, Connection
from orbitlog.wire.codes import ResponseCode
from orbitlog.wire.command import Command, response_to
from orbitlog.wire.consume_headers import SendBackRequest

log = logging.getLogger(__name__)

_ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
_FIRST_LEVEL = 3
_UNIT_SUBSCRIBER = 2


class SendBackHandler:
    """Serves CONSUMER_SEND_MSG_BACK."""

    def __init__(self, state: BrokerState, writer: MessageWriter, flushes: FlushQueue | None = None) -> None:
        self._state = state
        self._writer = writer
        self._quarantine = Quarantine(state, writer)
        self._flushes = flushes

    def __call__(self, connection: Connection, request: Command) -> Answer:
        state = self._state
        header = SendBackRequest.from_ext_fields(request.ext_fields)
        group = state.groups.find_or_create(
            checked_group(header.group), auto_create=state.settings[keys.AUTO_CREATE_GROUP]
        )
        if group is None:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {header.group}"
            )
        if not state.settings[keys.BROKER_PERMISSION] & PERMISSION_WRITE:
            raise RequestRefused(ResponseCode.NO_PERMISSION, "the broker is not writable (brokerPermission)")
        if group.retry_queue_count <= 0:
            return response_to(request, ResponseCode.SUCCESS)
        topic = state.topics.find_or_create_retry_topic(
            group.group, group.retry_queue_count, _UNIT_SUBSCRIBER if header.unit_mode else 0
        )
        if not topic.permission & PERMISSION_WRITE:
            raise RequestRefused(ResponseCode.NO_PERMISSION, f"the topic[{topic.topic}] sending message is forbidden")
        times_max = group.retry_times_max
        if request.version >= MAX_RECONSUME_SINCE_VERSION and header.max_reconsume_times is not None:
            times_max = header.max_reconsume_times
        end = self._store(connection, header, times_max, random.randrange(group.retry_queue_count))  # noqa: S311 - any
        return once_flushed(self._flushes, end, connection, request, response_to(request, ResponseCode.SUCCESS))

    def _store(self, connection: Connection, header: SendBackRequest, times_max: int, queue_id: int) -> int:
        """Store the message for its next attempt; return the end offset of the record."""
        state = self._state
        message = state.store.read_at(header.physical_offset)
        if message is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {header.physical_offset}")
        properties = message.properties
        properties.setdefault(props.RETRY_TOPIC, message.topic)
        origin = OffsetMessageId(decode_host(message.store_host_raw), message.physical_offset)
        properties.setdefault(_ORIGIN_MESSAGE_ID, str(origin))
        properties[props.WAIT] = "false"
        is_dead_letter = message.reconsume_times >= times_max or header.delay_level < 0
        if is_dead_letter:
            topic, queue_id = state.topics.find_or_create_dead_letter_topic(header.group).topic, 0
            properties.pop(props.DELAY, None)
            log.warning(
                "dead letter: group %s gave up on %s after %d attempts; it is in %s",
                header.group,
                properties.get(props.UNIQ_KEY, origin),
                message.reconsume_times,
                topic,
            )
        else:
            topic = retry_topic(header.group)
            properties[props.DELAY] = str(header.delay_level or _FIRST_LEVEL + message.reconsume_times)
        store_raw = state.store_host_raw(connection)
        is_ipv6 = len(store_raw) == IPV6_HOST_BYTES
        retried = message._replace(
            topic=topic,
            queue_id=queue_id,
            store_host_raw=store_raw,
            sys_flag=message.sys_flag & ~flags.STORE_HOST_IPV6 | (flags.STORE_HOST_IPV6 if is_ipv6 else 0),
            reconsume_times=message.reconsume_times + 1,
            properties_raw=self._writer.encode(properties),
            version=1 if len(topic) <= TOPIC_BYTES_MAX_V1 else 2,
        )
        result = self._writer.put(retried if is_dead_letter else self._writer.schedule(retried, properties))
        if is_final(result) and self._quarantine.move(message, result.reason):
            # Refused, its consumer would process it for ever. It waits for the log as it is now: the copy is in it.
            return state.store.written_to
        if not result.is_stored:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, result.status.value)
        state.statistics.add(SNDBCK_PUT_NUMS, f"{properties[props.RETRY_TOPIC]}@{header.group}", 1)
        if is_dead_letter:
            state.statistics.observers.dead_letter(properties[props.RETRY_TOPIC], header.group)
        return result.end
