"""Assignment handlers: the queues that a consumer must pull or pop, for clients that let brokers assign them.

A consumer asks any broker of the topic, so the response covers the queues of all brokers, known from the name servers.
Mirrors `QueryAssignmentProcessor`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence

from orbitlog.broker.admin.name_checks import checked_group, known_topic
from orbitlog.broker.pop.request_modes import POP, RequestModes
from orbitlog.broker.runtime import broker_settings as keys
from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.broker.tables.clients import BROADCASTING
from orbitlog.broker.tables.table_saver import copy_of
from orbitlog.errors import FormatError, RemotingError, RequestRefused
from orbitlog.formats.message_queue import MessageQueue
from orbitlog.formats.names import RETRY_PREFIX
from orbitlog.formats.tables.group_config import RequestMode, RequestModeTable
from orbitlog.formats.tables.topic_config import PERMISSION_READ
from orbitlog.remoting.client import RemotingClient
from orbitlog.remoting.connection import Answer, Connection, Handler
from orbitlog.remoting.loop_slices import in_slices, sliced
from orbitlog.remoting.whole_tables import WholeTables
from orbitlog.settings import limits as limit_keys
from orbitlog.wire.bodies.body_json import decode_body, decode_request_body, encode_body
from orbitlog.wire.bodies.client_bodies import REQUEST_MODES, QueryAssignmentBody, QueueAssignment, QueueAssignments
from orbitlog.wire.bodies.route_bodies import TopicRoute, require_listable
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command, response_to
from orbitlog.wire.nameserver_headers import GetRouteInfoRequest
from orbitlog.wire.queue_shares import Allocate, allocate_average, allocate_circle

log = logging.getLogger(__name__)

_ROUTE_SECONDS = 1.0
_ROUTE_KEPT_MS = 5_000
_ANY_QUEUE = -1
_STRATEGIES: Mapping[str, Allocate] = {"AVG": allocate_average, "AVG_BY_CIRCLE": allocate_circle}
# Clients take an empty response as "not known now" and keep their assignment.
_NO_ANSWER = b"{}"


class AssignmentHandlers:
    """Serves QUERY_ASSIGNMENT, SET_MESSAGE_REQUEST_MODE and GET_ALL_MESSAGE_REQUEST_MODE."""

    def __init__(self, state: BrokerState, modes: RequestModes, client: RemotingClient) -> None:
        self._state = state
        self._modes = modes
        self._client = client
        self._routes: dict[str, tuple[int, list[MessageQueue]]] = {}
        self._tables = WholeTables()

    @property
    def table(self) -> Mapping[int, Handler]:
        return {
            RequestCode.QUERY_ASSIGNMENT: self.assignment,
            RequestCode.SET_MESSAGE_REQUEST_MODE: self.set_mode,
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: self.modes,
        }

    async def modes(self, _: Connection, request: Command) -> Answer:
        """Return all modes, for a slave."""

        def copy() -> Callable[[], RequestModeTable]:
            table = copy_of(self._modes)
            return lambda: table

        return await self._tables.answer(request, len(self._modes), copy)

    async def set_mode(self, connection: Connection, request: Command) -> Answer:
        mode = _decoded_mode(request)
        topic, group = mode.topic or "", checked_group(mode.group or "")
        if topic.startswith(RETRY_PREFIX):
            raise RequestRefused(ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode")
        known_topic(self._state.topics, topic)
        config = self._state.groups.find_or_create(group, auto_create=self._state.settings[keys.AUTO_CREATE_GROUP])
        if config is None:
            raise RequestRefused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "subscription group does not exist")
        if not self._modes.has(topic, group):
            self._state.limits.refuse_over(limit_keys.REQUEST_MODES, len(self._modes) + 1)
        self._modes.put(mode)
        await self._state.events.save_tables()
        log.info("group %s consumes %s by %s, set by %s", group, topic, mode.mode, connection.peer)
        return response_to(request, ResponseCode.SUCCESS)

    async def assignment(self, _: Connection, request: Command) -> Answer:
        try:
            asked = decode_request_body(QueryAssignmentBody, request.body, "assignment")
        except FormatError as error:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"invalid body: {error}") from None
        settings = self._state.settings
        mode = self._modes.find(asked.topic, asked.group, settings[keys.REQUEST_MODE], settings[keys.POP_SHARE_QUEUES])
        queues = self._share(asked, mode, await self._queues(asked.topic))
        if queues is None:
            return response_to(request, ResponseCode.SUCCESS, body=_NO_ANSWER)
        body = await in_slices(_encoding_steps(queues, mode.mode))
        return response_to(request, ResponseCode.SUCCESS, body=body)

    def _share(
        self, asked: QueryAssignmentBody, mode: RequestMode, queues: Sequence[MessageQueue]
    ) -> Sequence[MessageQueue] | None:
        if not queues:
            return None
        if asked.message_model == BROADCASTING:
            return queues
        group = self._state.clients.consumer_group(asked.group)
        allocate = _STRATEGIES.get(asked.strategy or "")
        if group is None or allocate is None:
            return None
        members = sorted(group.client_ids)
        if mode.mode == POP:
            return _share_to_pop(asked.client_id, queues, members, mode.pop_share_queue_count, allocate)
        return allocate(asked.client_id, queues, members)

    async def _queues(self, topic: str) -> list[MessageQueue]:
        """Return every readable queue of a topic, at every broker, in order."""
        read_ms, queues = self._routes.get(topic, (0, []))
        now_ms = self._state.now_ms()
        if not 0 <= now_ms - read_ms < _ROUTE_KEPT_MS:
            queues = await self._queues_by_route(topic)
            if len(self._routes) > len(self._state.topics.table):
                self._routes.clear()
            self._routes[topic] = (now_ms, queues)
        return queues

    async def _queues_by_route(self, topic: str) -> list[MessageQueue]:
        header = GetRouteInfoRequest(topic=topic).to_ext_fields()
        servers = self._state.settings[keys.NAME_SERVERS]
        for address in servers:
            request = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields=header)
            try:
                answer = await self._client.invoke(address, request, _ROUTE_SECONDS)
                if answer.code == ResponseCode.SUCCESS:
                    route = decode_body(TopicRoute, answer.body, "route")
                    require_listable(route)
                    return _readable(topic, route)
            except (RemotingError, FormatError) as error:
                log.warning("could not get the route of %s from name server %s: %s", topic, address, error)
        config = self._state.topics.find(topic)
        count = config.read_queue_count if config is not None else 0
        return [MessageQueue(topic, self._state.broker_name, queue_id) for queue_id in range(count)]


def _encoding_steps(queues: Iterable[MessageQueue], mode: str) -> Generator[int, None, bytes]:
    """Encode `QueueAssignments` in steps: a topic may have 65,535 queues."""
    parts: list[bytes] = []
    for part in sliced(queues):
        encoded = encode_body(QueueAssignments(tuple(QueueAssignment(queue, mode) for queue in part)))
        parts.append(encoded[encoded.index(b"[") + 1 : -len(b"]}")])
        yield len(part)
    return b'{"messageQueueAssignments":[' + b",".join(parts) + b"]}"


def _readable(topic: str, route: TopicRoute) -> list[MessageQueue]:
    return [
        MessageQueue(topic, queue.broker_name, queue_id)
        for queue in sorted(route.queues, key=lambda queue: queue.broker_name)  # not 65,535 queues of one broker
        if queue.permission & PERMISSION_READ
        for queue_id in range(queue.read_queue_count)
    ]


def _share_to_pop(
    client_id: str, queues: Sequence[MessageQueue], members: list[str], share_count: int, allocate: Allocate
) -> list[MessageQueue]:
    """Return a consumer's queues and those of the `share_count` consumers after it, or all if it shares with all."""
    if client_id not in members:
        return []
    if share_count <= 0 or share_count >= len(members) - 1:
        brokers = dict.fromkeys(queue.broker_name for queue in queues)
        return [MessageQueue(queues[0].topic, broker_name, _ANY_QUEUE) for broker_name in brokers]
    at = members.index(client_id)
    if len(members) > len(queues):
        return [queues[at % len(queues)]]
    near = [members[(at + step) % len(members)] for step in range(share_count + 1)]
    return list(dict.fromkeys(queue for member in near for queue in allocate(member, queues, members)))


def _decoded_mode(request: Command) -> RequestMode:
    try:
        mode = decode_request_body(RequestMode, request.body, "request mode")
    except FormatError as error:
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, str(error)) from None
    if mode.mode not in REQUEST_MODES:
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, f"{mode.mode[:40]!r} is neither PULL nor POP")
    return mode
