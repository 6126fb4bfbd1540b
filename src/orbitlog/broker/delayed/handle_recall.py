"""Recall handler: cancels a message scheduled at a timestamp. Mirrors `RecallMessageProcessor`."""

from __future__ import annotations

from orbitlog.broker.admin.name_checks import checked_topic
from orbitlog.broker.runtime import broker_settings as keys
from orbitlog.broker.runtime.broker_state import BrokerState, host_bits, host_raw
from orbitlog.broker.sending.flush_queue import FlushQueue, once_flushed
from orbitlog.broker.sending.message_writer import MessageWriter, refuse
from orbitlog.errors import FormatError, RequestRefused
from orbitlog.formats.records import properties as props
from orbitlog.formats.records import timer_message
from orbitlog.formats.records.message import make_message
from orbitlog.formats.records.timer_message import RecallHandle, parse_recall_handle
from orbitlog.remoting.connection import Answer, Connection
from orbitlog.wire.codes import ResponseCode
from orbitlog.wire.command import Command, response_to
from orbitlog.wire.send_headers import RecallMessageRequest, RecallMessageResponse

_BODY = b"0"


class RecallHandler:
    """Serves RECALL_MESSAGE."""

    def __init__(self, state: BrokerState, writer: MessageWriter, flushes: FlushQueue | None = None) -> None:
        self._state = state
        self._writer = writer
        self._flushes = flushes

    def __call__(self, connection: Connection, request: Command) -> Answer:
        header = RecallMessageRequest.from_ext_fields(request.ext_fields)
        handle = self._checked(header)
        born_raw, store_raw = host_raw(*connection.remote_address), self._state.store_host_raw(connection)
        properties = {
            props.UNIQ_KEY: handle.unique_id,
            timer_message.DELIVER_MS: str(handle.timestamp_ms),
            timer_message.DELETE_KEY: self._delete_key(handle),
        }
        message = make_message(
            handle.topic, _BODY, properties=self._writer.encode(properties), born_timestamp_ms=self._state.now_ms()
        )
        message = message._replace(
            born_host_raw=born_raw, store_host_raw=store_raw, sys_flag=host_bits(born_raw, store_raw)
        )
        result = self._writer.put(self._writer.schedule(message, properties))
        if not result.is_stored:
            refuse(result)
        response_header = RecallMessageResponse(message_id=handle.unique_id)
        answer = response_to(request, ResponseCode.SUCCESS, ext_fields=response_header.to_ext_fields())
        return once_flushed(self._flushes, result.end, connection, request, answer)

    def _delete_key(self, handle: RecallHandle) -> str:
        """Return the key as Apache's broker looks for it: with another one it would deliver the message."""
        if self._state.settings[keys.RECALL_NAMES_TOPIC]:
            return timer_message.delete_key(handle.topic, handle.unique_id)
        return handle.unique_id

    def _checked(self, header: RecallMessageRequest) -> RecallHandle:
        state, topic = self._state, checked_topic(header.topic)
        if not state.settings[keys.RECALL_ENABLED]:
            raise RequestRefused(ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden")
        if state.topics.find(topic) is None:
            raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, f"recall failed, the topic[{topic}] not exist")
        try:
            handle = parse_recall_handle(header.recall_handle)
        except FormatError as error:
            raise RequestRefused(ResponseCode.ILLEGAL_OPERATION, f"recall failed: {error.problem}") from None
        if handle.topic != topic:
            raise RequestRefused(ResponseCode.ILLEGAL_OPERATION, "recall failed, topic not match")
        if handle.broker_name != state.broker_name:
            raise RequestRefused(ResponseCode.ILLEGAL_OPERATION, "recall failed, broker service not available")
        if handle.timestamp_ms <= state.now_ms():
            raise RequestRefused(ResponseCode.ILLEGAL_OPERATION, "recall failed, timestamp invalid: the message is due")
        return handle
