"""Relay handlers: pass requests of tools on to a client, over the connection of its heartbeats.

Mirrors `AdminBrokerProcessor.callConsumer` and `Broker2Client`.
"""

from __future__ import annotations

from collections.abc import Mapping

from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.broker.tables.clients import Member
from orbitlog.errors import FormatError, RemotingError, RequestRefused, RequestTimeout
from orbitlog.formats.message_queue import MessageQueue
from orbitlog.formats.records.message import encode_message
from orbitlog.remoting.connection import Answer, Connection, Handler
from orbitlog.wire.bodies.body_json import decode_request_body, encode_body
from orbitlog.wire.bodies.queue_bodies import ConsumerStatus
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command, response_to
from orbitlog.wire.consume_headers import (
    ConsumeDirectlyRequest,
    ConsumerRunningInfoRequest,
    ConsumerStatusRequest,
)

_SECONDS = 10.0


class RelayHandlers:
    """Serves GET_CONSUMER_RUNNING_INFO, CONSUME_MESSAGE_DIRECTLY and INVOKE_BROKER_TO_GET_CONSUMER_STATUS."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state

    @property
    def table(self) -> Mapping[int, Handler]:
        return {
            RequestCode.GET_CONSUMER_RUNNING_INFO: self.running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self.consume_directly,
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: self.consumer_status,
        }

    async def running_info(self, _: Connection, request: Command) -> Answer:
        header = ConsumerRunningInfoRequest.from_ext_fields(request.ext_fields)
        return await self._relay(request, header.group, header.client_id, dict(request.ext_fields), request.body)

    async def consume_directly(self, _: Connection, request: Command) -> Answer:
        """Deliver one message to one consumer now."""
        header = ConsumeDirectlyRequest.from_ext_fields(request.ext_fields)
        fields = {**request.ext_fields, "brokerName": self._state.broker_name}
        body = request.body
        if header.message_id:
            try:
                message = self._state.store.read_by_id(header.message_id)
            except FormatError as error:
                raise RequestRefused(ResponseCode.INVALID_PARAMETER, str(error)) from None
            if message is None:
                raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"message {header.message_id} does not exist here")
            body = encode_message(message)
        return await self._relay(request, header.group, header.client_id or "", fields, body)

    async def _relay(
        self, request: Command, group: str, client_id: str, fields: dict[str, str], body: bytes
    ) -> Command:
        members = self._state.clients.consumer_group(group)
        member = members.find(client_id) if members else None
        if member is None:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR, f"The Consumer <{group[:255]}> <{client_id[:255]}> not online"
            )
        answer = await self._ask(member, Command(request.code, ext_fields=fields, body=body))
        return response_to(request, answer.code, answer.remark, dict(answer.ext_fields), answer.body)

    async def _ask(self, member: Member, question: Command) -> Command:
        connection = member.connection
        assert isinstance(connection, Connection)
        try:
            return await connection.request(question, _SECONDS)
        except RequestTimeout as error:
            raise RequestRefused(ResponseCode.CONSUME_MSG_TIMEOUT, str(error)) from None
        except RemotingError as error:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, str(error)) from None

    async def consumer_status(self, _: Connection, request: Command) -> Answer:
        """Ask the consumers of a group, or one of them, for their offsets."""
        header = ConsumerStatusRequest.from_ext_fields(request.ext_fields)
        group = self._state.clients.consumer_group(header.group)
        if group is None:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR, f"No Any Consumer online in the consumer group: [{header.group[:255]}]"
            )
        offsets: dict[str, Mapping[MessageQueue, int]] = {}
        for member in list(group.members.values()):
            if header.client_address and member.client_id != header.client_address:
                continue
            question = Command(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, ext_fields=header.to_ext_fields())
            answer = await self._ask(member, question)
            if answer.code == ResponseCode.SUCCESS and answer.body:
                offsets[member.client_id] = decode_request_body(ConsumerStatus, answer.body, "consumer status").queues
        return response_to(request, ResponseCode.SUCCESS, body=encode_body(ConsumerStatus(clients=offsets)))
