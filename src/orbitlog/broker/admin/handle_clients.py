"""Client handlers: heartbeats, group membership and queue locks.

Mirrors `ClientManageProcessor` and parts of `ConsumerManageProcessor` and `AdminBrokerProcessor`. Members of a group
are notified when another joins or leaves (NOTIFY_CONSUMER_IDS_CHANGED), so that they rebalance at once and not at their
next timer.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Generator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from orbitlog.broker.admin.name_checks import checked_group
from orbitlog.broker.runtime import broker_settings as keys
from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.broker.tables.clients import Member, Subscription, no_property_filter
from orbitlog.broker.tables.queue_locks import QueueName
from orbitlog.errors import ConnectionLost, FormatError, RequestRefused
from orbitlog.formats.message_queue import MessageQueue
from orbitlog.remoting.connection import Answer, Connection, Handler
from orbitlog.remoting.loop_slices import at_once, in_slices, joined
from orbitlog.settings import limits as limit_keys
from orbitlog.wire.bodies.body_json import decode_request_body, encode_body
from orbitlog.wire.bodies.heartbeat_bodies import CheckClientRequestBody, ConsumerData, HeartbeatData, heartbeat_steps
from orbitlog.wire.bodies.list_bodies import ConsumerList
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command, response_to
from orbitlog.wire.consume_headers import ConsumerGroupRequest, UnregisterClientRequest
from orbitlog.wire.header_patterns import ACCOUNT_FIELD

if TYPE_CHECKING:
    from orbitlog.wire.bodies.queue_bodies import LockRequestBody

log = logging.getLogger(__name__)

_UNIT_SUBSCRIBER = 2
_STEP_OBJECTS = 20
"""Groups, subscriptions and filters of a heartbeat in a step; a new group takes a tenth of a millisecond."""


class ClientHandlers:
    """Serves HEART_BEAT, UNREGISTER_CLIENT, GET_CONSUMER_LIST_BY_GROUP, CHECK_CLIENT_CONFIG and the queue locks."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state

    @property
    def table(self) -> Mapping[int, Handler]:
        return {
            RequestCode.HEART_BEAT: self.heartbeat,
            RequestCode.UNREGISTER_CLIENT: self.unregister,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self.consumer_list,
            RequestCode.CHECK_CLIENT_CONFIG: self.check_config,
            RequestCode.LOCK_BATCH_MQ: self.lock,
            RequestCode.UNLOCK_BATCH_MQ: self.unlock,
        }

    # Membership

    def heartbeat(self, connection: Connection, request: Command) -> Answer | Awaitable[Answer]:
        limits = self._state.limits
        objects_max = limits[limit_keys.HEARTBEAT_GROUPS] + limits[limit_keys.HEARTBEAT_SUBSCRIPTIONS] + 1
        if (objects := request.body.count(b"{")) > objects_max:  # before each of them is decoded
            limits.refuse_over(limit_keys.HEARTBEAT_SUBSCRIPTIONS, objects)
        steps = self._heartbeat_steps(connection, request)
        if objects > _STEP_OBJECTS:
            return self._answered(request, steps)
        at_once(steps)
        return response_to(request, ResponseCode.SUCCESS)

    async def _answered(self, request: Command, steps: Generator[int, None, None]) -> Command:
        await in_slices(steps)
        return response_to(request, ResponseCode.SUCCESS)

    def _heartbeat_steps(self, connection: Connection, request: Command) -> Generator[int, None, None]:
        """Decode and register the groups of a heartbeat in steps of at least `_STEP_OBJECTS` groups and filters."""
        try:
            data = yield from joined(heartbeat_steps(request.body), _STEP_OBJECTS)
        except FormatError as error:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"invalid heartbeat: {error}") from None
        self._check_heartbeat(connection, data)
        yield from joined(self._registration_steps(connection, request, data), _STEP_OBJECTS)

    def _registration_steps(
        self, connection: Connection, request: Command, data: HeartbeatData
    ) -> Generator[int, None, None]:
        now_ms, changed = self._state.now_ms(), deque[str]()
        for consumer in data.consumers:
            if connection.is_closed:  # since the last step: nothing would unregister the rest
                return
            member = Member(data.client_id, request.language, request.version, connection, now_ms)
            if (yield from self._register_consumer(consumer, member)):
                self._notify(consumer.group, skipped=connection)
                changed.append(consumer.group)
            yield 2  # a new group costs twice as much as the rest
        if changed:
            # Not earlier: a Java client that rebalances while it waits for this response cannot send the heartbeat of
            # its new subscription, and its pulls are refused until the next one, 30 seconds later.
            connection.when_answered(request, partial(self._notify_changed, connection, changed))
        for producer in data.producers:
            client = data.client_id, request.language, request.version, connection, now_ms
            member = Member(*client, account=request.ext_fields.get(ACCOUNT_FIELD, ""))
            self._state.clients.register_producer(checked_group(producer.group), member)

    def _check_heartbeat(self, connection: Connection, data: HeartbeatData) -> None:
        """Refuse a heartbeat that would cost too much; each group and subscription is kept and compiled."""
        limits = self._state.limits
        subscriptions = [subscription for consumer in data.consumers for subscription in consumer.subscriptions]
        group_count = len(data.consumers) + len(data.producers)
        limits.refuse_over(limit_keys.CLIENT_ID_CHARACTERS, len(data.client_id))
        limits.refuse_over(limit_keys.HEARTBEAT_GROUPS, group_count)
        limits.refuse_over(limit_keys.HEARTBEAT_SUBSCRIPTIONS, len(subscriptions))
        longest = max((len(subscription.expression) for subscription in subscriptions), default=0)
        limits.refuse_over(limit_keys.SUBSCRIPTION_CHARACTERS, longest)
        sql_characters = sum(len(subscription.expression) for subscription in subscriptions if not subscription.is_tag)
        limits.refuse_over(limit_keys.HEARTBEAT_SQL_CHARACTERS, sql_characters)
        registered = self._state.clients.group_count(connection)
        if registered + group_count > limits[limit_keys.CLIENT_GROUPS]:
            new = {consumer.group for consumer in data.consumers} | {producer.group for producer in data.producers}
            limits.refuse_over(
                limit_keys.CLIENT_GROUPS, registered + len(new - self._state.clients.groups_of(connection))
            )

    def _register_consumer(self, consumer: ConsumerData, member: Member) -> Generator[int, None, bool]:
        """Register a consumer; return whether its group must rebalance."""
        state = self._state
        group = checked_group(consumer.group)
        is_new = state.groups.find(group) is None
        config = state.groups.find_or_create(group, auto_create=state.settings[keys.AUTO_CREATE_GROUP])
        if config is None:
            log.warning("consumer %s waits: group %s does not exist, and is not auto-created", member.client_id, group)
            return False
        if is_new:
            log.info("group %s auto-created by the heartbeat of %s", group, member.client_id)
        # Created here because consumers ask for its route soon after, and tools depend on it.
        state.topics.find_or_create_retry_topic(
            group, config.retry_queue_count, sys_flag=_UNIT_SUBSCRIBER if consumer.unit_mode else 0
        )
        if (yield from state.filters.register_steps(group, consumer.subscriptions)):
            state.events.save_soon()
        is_changed = yield from state.clients.register_steps(consumer, member)
        if is_changed:
            log.info("consumer %s of group %s: %s", member.client_id, group, _wanted(consumer))
        return is_changed

    def unregister(self, connection: Connection, request: Command) -> Answer:
        header = UnregisterClientRequest.from_ext_fields(request.ext_fields)
        if header.producer_group:
            self._state.clients.unregister_producer(header.producer_group, connection)
        if header.consumer_group and self._state.clients.unregister_consumer(header.consumer_group, connection):
            log.info("consumer %s of group %s leaves", header.client_id[:255], header.consumer_group)
            self._notify(header.consumer_group)
        return response_to(request, ResponseCode.SUCCESS)

    def drop(self, connection: Connection) -> None:
        """Remove a closed connection from its groups."""
        for group in self._state.clients.drop_connection(connection):
            log.info("consumer at %s of group %s disconnected", connection.peer, group)
            self._notify(group)

    def scan(self, now_ms: int) -> None:
        """Close connections without a heartbeat for too long, and drop expired queue locks."""
        for connection in self._state.clients.expired(now_ms):
            assert isinstance(connection, Connection)
            log.warning("closing %s: no heartbeat for too long", connection.peer)
            self.drop(connection)
            connection.close()
        self._state.locks.drop_expired(now_ms)

    def _notify(self, group: str, skipped: Connection | None = None) -> None:
        """Notify the members of a group, except one, that they must rebalance."""
        members = self._state.clients.consumer_group(group)
        if members is None:
            if self._state.filters.unregister(group):
                self._state.events.save_soon()
            return
        for connection in list(members.members):
            assert isinstance(connection, Connection)
            if connection is not skipped:
                self._notify_member(connection, group)

    def _notify_changed(self, connection: Connection, groups: deque[str]) -> None:
        """Notify one member of many groups, some of them in each turn of the event loop."""
        for _ in range(min(len(groups), _STEP_OBJECTS)):
            self._notify_member(connection, groups.popleft())
        if groups and not connection.is_closed:
            asyncio.get_running_loop().call_soon(self._notify_changed, connection, groups)

    def _notify_member(self, connection: Connection, group: str) -> None:
        """Notify one member, unless the broker or the group has notifications switched off."""
        config = self._state.groups.find(group)
        if not self._state.settings[keys.NOTIFY_CHANGES] or (config and not config.notify_ids_changed_enabled):
            return
        header = ConsumerGroupRequest(group=group).to_ext_fields()
        try:
            connection.request_oneway(Command(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, ext_fields=header))
        except ConnectionLost:
            return  # the event loop will call `drop` for it

    # Queues of a group

    def consumer_list(self, _: Connection, request: Command) -> Answer:
        header = ConsumerGroupRequest.from_ext_fields(request.ext_fields)
        members = self._state.clients.consumer_group(header.group)
        if members is None or not members.members:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {header.group[:255]}")
        body = encode_body(ConsumerList(client_ids=tuple(members.client_ids)))
        return response_to(request, ResponseCode.SUCCESS, body=body)

    def check_config(self, _: Connection, request: Command) -> Answer:
        """Check whether a subscription can be served; clients ask before they start."""
        data = decode_request_body(CheckClientRequestBody, request.body, "client check").subscription
        if data is None or data.is_tag:
            return response_to(request, ResponseCode.SUCCESS)
        if not self._state.settings[keys.PROPERTY_FILTER]:
            return response_to(request, ResponseCode.SYSTEM_ERROR, no_property_filter(data.expression_type))
        if problem := Subscription(data).problem:
            return response_to(request, ResponseCode.SUBSCRIPTION_PARSE_FAILED, problem)
        return response_to(request, ResponseCode.SUCCESS)

    def lock(self, _: Connection, request: Command) -> Answer:
        from orbitlog.wire.bodies.queue_bodies import LockResponseBody

        body, state = self._lock_body(request), self._state
        group = checked_group(body.group)
        state.limits.refuse_over(limit_keys.CLIENT_ID_CHARACTERS, len(body.client_id))
        existing = {_queue_name(queue): queue for queue in body.queues if self._has_queue(queue)}
        locks_max = state.limits[limit_keys.QUEUE_LOCKS]
        held = state.locks.lock(group, existing, body.client_id, state.now_ms(), locks_max=locks_max)
        if len(held) < len(existing) and len(state.locks) >= locks_max:
            state.limits.reach(limit_keys.QUEUE_LOCKS)
        queues = tuple(existing[queue] for queue in held)
        return response_to(request, ResponseCode.SUCCESS, body=encode_body(LockResponseBody(queues=queues)))

    def _has_queue(self, queue: MessageQueue) -> bool:
        """Return whether a queue exists: a lock of another would be kept for nothing."""
        config = self._state.topics.find(queue.topic)
        return config is not None and 0 <= queue.queue_id < max(config.read_queue_count, config.write_queue_count)

    def unlock(self, _: Connection, request: Command) -> Answer:
        body = self._lock_body(request)
        self._state.locks.unlock(body.group, map(_queue_name, body.queues), body.client_id)
        return response_to(request, ResponseCode.SUCCESS)

    def _lock_body(self, request: Command) -> LockRequestBody:
        # Only ordered consumers lock queues: a broker starts without these bodies.
        from orbitlog.wire.bodies.queue_bodies import LockRequestBody

        queues = request.body.count(b"{") - 1  # before each of them is decoded
        self._state.limits.refuse_over(limit_keys.LOCK_QUEUES, queues)
        try:
            return decode_request_body(LockRequestBody, request.body, "locks")
        except FormatError as error:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"invalid body: {error}") from None


def _queue_name(queue: MessageQueue) -> QueueName:
    return QueueName(queue.topic, queue.queue_id)


def _wanted(consumer: ConsumerData) -> str:
    return (
        ", ".join(f"{subscription.topic} {subscription.expression}" for subscription in consumer.subscriptions)[:400]
        or "nothing"
    )
