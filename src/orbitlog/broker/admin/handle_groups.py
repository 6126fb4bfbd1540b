"""Group handlers: configuration of groups, connected clients. Mirrors the group part of `AdminBrokerProcessor`."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from functools import partial
from typing import TypeVar

from orbitlog.broker.admin.name_checks import checked_group, checked_stored_topic
from orbitlog.broker.runtime import broker_settings as keys
from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.broker.tables.clients import Member
from orbitlog.errors import FormatError, RequestRefused
from orbitlog.formats.tables.group_config import GroupConfig, GroupTable
from orbitlog.formats.tables.json_records import JsonRecord
from orbitlog.remoting.connection import Answer, Connection, Handler
from orbitlog.remoting.loop_slices import in_slices, sliced
from orbitlog.remoting.whole_tables import WholeTables
from orbitlog.settings.limits import CONFIG_BYTES, LIST_ENTRIES
from orbitlog.wire.admin_headers import (
    DeleteGroupRequest,
    GroupForbiddenRequest,
    GroupRequest,
    ProducerGroupRequest,
    QuerySubscriptionRequest,
)
from orbitlog.wire.bodies.body_json import decode_request_body, encode_body, request_list_steps
from orbitlog.wire.bodies.client_bodies import (
    ClientConnection,
    ConsumerConnection,
    GroupForbidden,
    ProducerConnection,
    ProducerInfo,
    ProducerTable,
)
from orbitlog.wire.bodies.heartbeat_bodies import GroupSubscription
from orbitlog.wire.bodies.list_bodies import TopicList
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command, response_to
from orbitlog.wire.consume_headers import ConsumerGroupRequest

log = logging.getLogger(__name__)

T = TypeVar("T", bound=JsonRecord)

_RETRY_QUEUES_MAX = 1024
_SHOWN_GROUPS = 20


class GroupHandlers:
    """Serves the requests of operators about groups and their clients; `table` lists the codes."""

    def __init__(self, state: BrokerState, save: Callable[[], Awaitable[None]]) -> None:
        self._state = state
        self._save = save
        self._tables = WholeTables()

    @property
    def table(self) -> Mapping[int, Handler]:
        return {
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self.update,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: self.update_all,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self.delete,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self.configs,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self.config,
            RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: self.forbid,
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self.consumers,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self.producers,
            RequestCode.GET_ALL_PRODUCER_INFO: self.all_producers,
            RequestCode.QUERY_TOPICS_BY_CONSUMER: self.topics,
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: self.subscription,
        }

    async def update(self, connection: Connection, request: Command) -> Answer:
        config = _decoded(GroupConfig, request.body)
        self._check(config)
        await self._put_all(connection, (config,))
        return response_to(request, ResponseCode.SUCCESS)

    async def update_all(self, connection: Connection, request: Command) -> Answer:
        await self._put_all(connection, await in_slices(self._listed_steps(request.body)))
        return response_to(request, ResponseCode.SUCCESS)

    def _listed_steps(self, body: bytes) -> Generator[int, None, list[GroupConfig]]:
        admit = partial(self._state.limits.refuse_over, LIST_ENTRIES)
        try:
            configs = yield from request_list_steps(GroupConfig, body, ("groups", "groupConfigList"), admit)
        except FormatError as error:
            raise _not_decoded(error) from None
        for part in sliced(configs):
            for config in part:
                self._check(config)
            yield len(part)
        return configs

    def _check(self, config: GroupConfig) -> None:
        checked_group(config.group)
        self._state.limits.refuse_over(CONFIG_BYTES, len(encode_body(config)))
        if config.retry_queue_count > _RETRY_QUEUES_MAX:
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, f"retryQueueNums exceeds {_RETRY_QUEUES_MAX}")

    async def _put_all(self, connection: Connection, configs: Sequence[GroupConfig]) -> None:
        for config in configs:
            self._state.groups.put(config)
        log.info("groups created or changed by %s: %s", connection.peer, _shown(configs))
        await self._save()

    async def delete(self, connection: Connection, request: Command) -> Answer:
        header = DeleteGroupRequest.from_ext_fields(request.ext_fields)
        group = checked_group(header.group)
        if self._state.groups.delete(group):
            log.info("group %s deleted by %s", group, connection.peer)
            await self._save()
        if header.removes_offsets:
            self._state.offsets.forget_group(group)
        return response_to(request, ResponseCode.SUCCESS)

    async def configs(self, _: Connection, request: Command) -> Answer:
        def copy() -> Callable[[], GroupTable]:
            table = self._state.groups.snapshot()
            return lambda: table

        count = len(self._state.groups.table)
        answer = await self._tables.answer(request, count, copy)
        # A 5.x slave asks for pages, and refuses an answer without the number of rows; this page has all of them.
        answer.ext_fields["totalGroupNum"] = str(count)
        return answer

    def config(self, _: Connection, request: Command) -> Answer:
        """Return one group, or the defaults of one that its first consumer will create: a proxy asks before that."""
        group = GroupRequest.from_ext_fields(request.ext_fields).group
        config = self._state.groups.find(group)
        if config is None and self._state.settings[keys.AUTO_CREATE_GROUP]:
            config = GroupConfig(checked_group(group))
        if config is None:
            raise RequestRefused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"group {group[:255]} does not exist")
        return response_to(request, ResponseCode.SUCCESS, body=encode_body(config))

    async def forbid(self, connection: Connection, request: Command) -> Answer:
        """Set whether a group may read a topic, if the request does, and return the setting."""
        header = GroupForbiddenRequest.from_ext_fields(request.ext_fields)
        group, topic = checked_group(header.group), checked_stored_topic(header.topic)
        groups = self._state.groups
        if header.readable is not None and self._state.topics.find(topic) is not None:
            groups.set_readable(group, topic, header.readable)
            log.info("%s: group %s may read %s: %s", connection.peer, group, topic, header.readable)
            await self._save()
        body = GroupForbidden(group, topic, groups.may_read(group, topic))
        return response_to(request, ResponseCode.SUCCESS, body=encode_body(body))

    # Connected clients

    def consumers(self, _: Connection, request: Command) -> Answer:
        name = ConsumerGroupRequest.from_ext_fields(request.ext_fields).group
        group = self._state.clients.consumer_group(name)
        if group is None:
            raise RequestRefused(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name[:255]}] not online")
        body = ConsumerConnection(
            connections=tuple(map(_connection, group.members.values())),
            subscriptions={topic: subscription.data for topic, subscription in group.subscriptions.items()},
            consume_type=group.consume_type,
            message_model=group.message_model,
            consume_from_where=group.consume_from_where,
        )
        return response_to(request, ResponseCode.SUCCESS, body=encode_body(body))

    def producers(self, _: Connection, request: Command) -> Answer:
        name = ProducerGroupRequest.from_ext_fields(request.ext_fields).group
        members = self._state.clients.producers(name)
        if not members:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"the producer group[{name[:255]}] not exist")
        body = ProducerConnection(connections=tuple(map(_connection, members)))
        return response_to(request, ResponseCode.SUCCESS, body=encode_body(body))

    def all_producers(self, _: Connection, request: Command) -> Answer:
        groups = {
            group: tuple(_producer(member) for member in members.values())
            for group, members in self._state.clients.producer_groups.items()
        }
        return response_to(request, ResponseCode.SUCCESS, body=encode_body(ProducerTable(groups=groups)))

    def topics(self, _: Connection, request: Command) -> Answer:
        group = GroupRequest.from_ext_fields(request.ext_fields).group
        topics = tuple(self._state.offsets.topics_of(group))
        return response_to(request, ResponseCode.SUCCESS, body=encode_body(TopicList(topics=topics)))

    def subscription(self, _: Connection, request: Command) -> Answer:
        header = QuerySubscriptionRequest.from_ext_fields(request.ext_fields)
        group = self._state.clients.consumer_group(header.group)
        subscription = group.subscriptions.get(header.topic or "") if group else None
        body = GroupSubscription(header.group, header.topic, subscription.data if subscription else None)
        return response_to(request, ResponseCode.SUCCESS, body=encode_body(body))


def _connection(member: Member) -> ClientConnection:
    assert isinstance(member.connection, Connection)
    return ClientConnection(member.client_id, member.connection.peer, member.language, member.version)


def _producer(member: Member) -> ProducerInfo:
    shown = _connection(member)
    return ProducerInfo(
        member.client_id, f"/{shown.client_address}", member.language, member.version, member.last_seen_ms
    )


def _decoded(kind: type[T], body: bytes) -> T:
    try:
        return decode_request_body(kind, body, "groups")
    except FormatError as error:
        raise _not_decoded(error) from None


def _not_decoded(error: FormatError) -> RequestRefused:
    return RequestRefused(ResponseCode.INVALID_PARAMETER, str(error))


def _shown(configs: Sequence[GroupConfig]) -> str:
    names = ", ".join(config.group for config in configs[:_SHOWN_GROUPS])
    return names if len(configs) <= _SHOWN_GROUPS else f"{names} and {len(configs) - _SHOWN_GROUPS} more"
