"""Reply messages: pushed to the requesting client over the connection of its heartbeats.

Mirrors `ReplyMessageProcessor`.
"""

from __future__ import annotations

from orbitlog.broker.runtime import broker_settings as keys
from orbitlog.broker.runtime.broker_state import BrokerState, host_bits, host_raw
from orbitlog.broker.sending.message_writer import MessageWriter
from orbitlog.broker.sending.send_rules import refuse_topic
from orbitlog.errors import RemotingError, RequestRefused
from orbitlog.formats.java import utf8_encode
from orbitlog.formats.records.message import make_message
from orbitlog.formats.records.message_id import OffsetMessageId
from orbitlog.formats.records.properties import decode_properties
from orbitlog.remoting.connection import Answer, Connection
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command, response_to
from orbitlog.wire.send_headers import PushReplyRequest, SendMessageRequest, SendMessageResponse, SendMessageV2Request

REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
_PUSH_TIME = "PUSH_REPLY_TIME"
_SECONDS = 10.0


class ReplyHandler:
    """Serves SEND_REPLY_MESSAGE and its V2, and sends PUSH_REPLY_MESSAGE_TO_CLIENT."""

    def __init__(self, state: BrokerState, writer: MessageWriter) -> None:
        self._state = state
        self._writer = writer

    async def __call__(self, connection: Connection, request: Command) -> Answer:
        kind = SendMessageRequest if request.code == RequestCode.SEND_REPLY_MESSAGE else SendMessageV2Request
        header = kind.from_ext_fields(request.ext_fields)
        config = self._state.topics.find(header.topic)
        refusal = refuse_topic(header.topic, exists=config is not None)
        if refusal is not None:
            raise RequestRefused(refusal.code, refusal.remark)
        if config is None:
            raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, f"topic {header.topic} does not exist")
        properties = decode_properties(utf8_encode(header.properties or ""))
        problem = await self._push(connection, request, header, properties)
        if problem is not None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, problem)
        queue_id = header.queue_id if 0 <= header.queue_id < config.write_queue_count else 0
        response = self._store(connection, request, header, properties, queue_id)
        return response_to(request, ResponseCode.SUCCESS, ext_fields=response.to_ext_fields())

    async def _push(
        self, connection: Connection, request: Command, header: SendMessageRequest, properties: dict[str, str]
    ) -> str | None:
        """Push the reply to its client; return the error, or None."""
        state = self._state
        client_id = properties.get(REPLY_TO_CLIENT)
        if not client_id:
            return f"reply message properties[{REPLY_TO_CLIENT}] is null"
        requester = state.clients.find_producer(client_id)
        if requester is None:
            return f"push reply message fail, channel of <{client_id[:255]}> not found."
        now_ms = state.now_ms()
        pushed = PushReplyRequest(
            producer_group=header.producer_group,
            topic=header.topic,
            default_topic=header.default_topic,
            default_topic_queue_count=header.default_topic_queue_count,
            queue_id=header.queue_id,
            sys_flag=header.sys_flag,
            born_timestamp_ms=header.born_timestamp_ms,
            flag=header.flag,
            properties=self._writer.encode(properties | {_PUSH_TIME: str(now_ms)}).decode(errors="replace"),
            reconsume_times=header.reconsume_times,
            unit_mode=header.unit_mode,
            born_host=connection.peer,
            store_host=state.address_for(connection),
            store_timestamp_ms=now_ms,
        )
        command = Command(
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, ext_fields=pushed.to_ext_fields(), body=request.body
        )
        assert isinstance(requester.connection, Connection)
        try:
            answer = await requester.connection.request(command, _SECONDS)
        except RemotingError as error:
            return f"push reply message to {client_id[:255]} fail: {error}"
        return None if answer.code == ResponseCode.SUCCESS else f"push reply message to {client_id[:255]} fail."

    def _store(
        self,
        connection: Connection,
        request: Command,
        header: SendMessageRequest,
        properties: dict[str, str],
        queue_id: int,
    ) -> SendMessageResponse:
        """Store the reply if `storeReplyMessageEnable` is set; its client has received it already."""
        state = self._state
        response = SendMessageResponse(
            message_id="0",
            queue_id=queue_id,
            queue_offset=0,
            region=state.settings[keys.REGION],
            trace="true" if state.settings[keys.TRACE_ON] else "false",
        )
        if not state.settings[keys.STORE_REPLIES] or not request.body:
            return response
        born_raw, store_raw = host_raw(*connection.remote_address), state.store_host_raw(connection)
        message = make_message(
            header.topic,
            request.body,
            properties=self._writer.encode(properties),
            queue_id=queue_id,
            flag=header.flag,
            born_timestamp_ms=header.born_timestamp_ms,
            reconsume_times=header.reconsume_times,
        )._replace(born_host_raw=born_raw, store_host_raw=store_raw, sys_flag=host_bits(born_raw, store_raw))
        result = self._writer.put(message)
        if result.is_stored:
            response.message_id = str(OffsetMessageId(message.store_host, result.physical_offset))
            response.queue_offset = result.queue_offset
        return response
