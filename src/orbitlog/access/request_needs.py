"""Request needs: the resources and actions that each request code needs. The table is closed.

A code without a row needs `Update` on the cluster, the highest right that a policy can grant; so does a request whose
fields or body do not name its resources. A test holds the table against the codes that the servers handle.

Names are translated as brokers use them: a retry topic stands for its group, a dead letter topic may be read by its
group and written by the broker alone, and internal topics, which contain messages of other topics, are for super users.
Mirrors Java `DefaultAuthorizationContextBuilder`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, cast

from orbitlog.access.access_model import Action, Need, ResourceKind
from orbitlog.errors import BadField, FormatError
from orbitlog.formats import names
from orbitlog.formats.records.message_id import parse_offset_message_id
from orbitlog.formats.tables.group_config import GroupConfig
from orbitlog.wire.bodies.body_json import decode_request_body, read_entries
from orbitlog.wire.bodies.client_bodies import QueryAssignmentBody
from orbitlog.wire.bodies.heartbeat_bodies import CheckClientRequestBody, HeartbeatData
from orbitlog.wire.bodies.queue_bodies import LockRequestBody
from orbitlog.wire.codes import RequestCode as Code
from orbitlog.wire.replication.group_headers import TABLES_FIELD

PUB, SUB, GET = Action.PUB, Action.SUB, Action.GET
CREATE, UPDATE, DELETE = Action.CREATE, Action.UPDATE, Action.DELETE
TOPIC, GROUP, CLUSTER = ResourceKind.TOPIC, ResourceKind.GROUP, ResourceKind.CLUSTER

MessageTopic = Callable[[int], str | None]
"""Returns the topic of the message at a physical offset, of a half message its real topic; None without a message."""

# Topics that the broker writes itself, with messages of other topics in them.
_INTERNAL_TOPICS = frozenset(
    (names.SCHEDULE_TOPIC, names.HALF_TOPIC, names.OP_HALF_TOPIC, names.CHECK_MAX_TIME_TOPIC, names.OFFSET_MOVED_TOPIC)
)
_OFFSET_DIGITS_MAX = 18


def topic_need(topic: str, actions: Action, cluster: str) -> Need:
    """Return the need of a request that names a topic."""
    if topic.startswith(names.RETRY_PREFIX):
        group = topic[len(names.RETRY_PREFIX) :].partition("+")[0]  # %RETRY%group+topic is a POP retry topic
        return group_need(group, SUB if actions == PUB else actions, cluster)
    if topic.startswith(names.DLQ_PREFIX):
        if actions == PUB:
            return Need(CLUSTER, cluster, UPDATE)
        return group_need(topic[len(names.DLQ_PREFIX) :], actions, cluster)
    if topic in _INTERNAL_TOPICS or topic.startswith(names.SYSTEM_TOPIC_PREFIX):
        return Need(TOPIC, topic, actions, is_management=True)
    return Need(TOPIC, topic, actions)


def group_need(group: str, actions: Action, _: str = "") -> Need:
    """Return the need of a request that names a group."""
    return Need(GROUP, group, actions, is_management=group.startswith(names.SYSTEM_GROUP_PREFIX))


class FieldNeed(NamedTuple):
    """A resource that an ext field names; an optional field may be absent, a list is separated by `,` or `;`."""

    kind: ResourceKind
    field: str
    actions: Action
    is_optional: bool = False
    is_list: bool = False
    free_name: str = ""
    """A resource that every authenticated client may name."""


BodyNeeds = Callable[[bytes], Iterable[tuple[ResourceKind, str, Action]]]


class CodeRow(NamedTuple):
    """The needs of one request code."""

    fields: tuple[FieldNeed, ...] = ()
    body: BodyNeeds | None = None
    message: FieldNeed | None = None
    """The field with the physical offset or id of a message, whose topic is needed as well."""
    cluster: Action | None = None
    is_management: bool = False
    is_free: bool = False
    """Whether every authenticated client may send it."""
    update_field: str = ""
    """A field with which it needs `Update` on the cluster: what the sender reports in it counts."""


class RequestParts(NamedTuple):
    """What the needs of a request depend on."""

    code: int
    fields: Mapping[str, str]
    body: bytes


def needs_of(request: RequestParts, cluster: str, message_topic: MessageTopic) -> tuple[Need, ...]:
    """Return everything that a request needs, in the order in which it is checked."""
    highest = (Need(CLUSTER, cluster, UPDATE),)
    row = ROWS.get(request.code)
    if row is None:
        return highest
    if row.is_management:
        return (Need(CLUSTER, cluster, UPDATE, is_management=True),)
    if row.update_field and row.update_field in request.fields:
        return highest
    needs: list[Need] = [] if row.cluster is None else [Need(CLUSTER, cluster, row.cluster)]
    for item in row.fields:
        found = _named(item, request.fields, cluster)
        if found is None:
            return highest
        needs += found
    try:
        if row.body is not None:
            needs += [_need(kind, name, actions, cluster) for kind, name, actions in row.body(request.body)]
        if row.message is not None:
            needs += _of_message(row.message, request.fields, cluster, message_topic)
    except FormatError:
        return highest
    return tuple(needs) if needs or row.is_free else highest


def _need(kind: ResourceKind, name: str, actions: Action, cluster: str) -> Need:
    if kind is CLUSTER:
        return Need(CLUSTER, name, actions)
    return topic_need(name, actions, cluster) if kind is TOPIC else group_need(name, actions)


def _named(item: FieldNeed, fields: Mapping[str, str], cluster: str) -> list[Need] | None:
    """Return the needs of one field; None if it is required and absent."""
    text = fields.get(item.field, "")
    if text and text == item.free_name:
        return []
    parts = text.replace(",", ";").split(";") if item.is_list else (text,)
    needs = [_need(item.kind, name, item.actions, cluster) for name in parts if name]
    return needs if needs or item.is_optional else None


def _of_message(
    item: FieldNeed, fields: Mapping[str, str], cluster: str, message_topic: MessageTopic
) -> Iterable[Need]:
    text = fields.get(item.field, "")
    if not text:
        return ()
    if text.isascii() and text.isdigit() and len(text) <= _OFFSET_DIGITS_MAX:
        physical_offset = int(text)
    else:
        physical_offset = parse_offset_message_id(text).physical_offset
    topic = message_topic(physical_offset)
    return () if topic is None else (topic_need(topic, item.actions, cluster),)


# Needs that a body names


def _texts(body: bytes, list_name: str, name: str) -> list[str]:
    """Return one field of each entry of a list; the other fields are the handler's, which decodes them in steps."""
    texts = [entry.get(name) if isinstance(entry, dict) else None for entry in read_entries(body, ("body", list_name))]
    if not all(isinstance(text, str) for text in texts):
        raise BadField("is missing or not a text", field=f"{list_name}.{name}")
    return cast("list[str]", texts)


def _heartbeat(body: bytes) -> Iterable[tuple[ResourceKind, str, Action]]:
    for consumer in decode_request_body(HeartbeatData, body, "heartbeat").consumers:
        yield GROUP, consumer.group, SUB
        for subscription in consumer.subscriptions:
            yield TOPIC, subscription.topic, SUB


def _locks(body: bytes) -> Iterable[tuple[ResourceKind, str, Action]]:
    locks = decode_request_body(LockRequestBody, body, "locks")
    yield GROUP, locks.group, SUB
    for topic in dict.fromkeys(queue.topic for queue in locks.queues):
        yield TOPIC, topic, SUB


def _client_check(body: bytes) -> Iterable[tuple[ResourceKind, str, Action]]:
    check = decode_request_body(CheckClientRequestBody, body, "client check")
    if check.group:
        yield GROUP, check.group, SUB
    if check.subscription is not None:
        yield TOPIC, check.subscription.topic, SUB


def _assignment(body: bytes) -> Iterable[tuple[ResourceKind, str, Action]]:
    asked = decode_request_body(QueryAssignmentBody, body, "assignment")
    yield GROUP, asked.group, SUB
    yield TOPIC, asked.topic, SUB


def _acks(body: bytes) -> Iterable[tuple[ResourceKind, str, Action]]:
    for group, topic in dict.fromkeys(zip(_texts(body, "acks", "c"), _texts(body, "acks", "t"), strict=True)):
        yield GROUP, group, SUB
        yield TOPIC, topic, SUB


def _new_topics(body: bytes) -> Iterable[tuple[ResourceKind, str, Action]]:
    for topic in dict.fromkeys(_texts(body, "topicConfigList", "topicName")):
        yield TOPIC, topic, CREATE


def _new_group(body: bytes) -> Iterable[tuple[ResourceKind, str, Action]]:
    yield GROUP, decode_request_body(GroupConfig, body, "group").group, CREATE | UPDATE


def _new_groups(body: bytes) -> Iterable[tuple[ResourceKind, str, Action]]:
    for group in dict.fromkeys(_texts(body, "groupConfigList", "groupName")):
        yield GROUP, group, CREATE | UPDATE


# The table


def _topic(actions: Action, field: str = "topic", *, is_optional: bool = False, is_list: bool = False) -> FieldNeed:
    return FieldNeed(TOPIC, field, actions, is_optional, is_list)


def _group(
    actions: Action, field: str = "consumerGroup", *, is_optional: bool = False, is_list: bool = False
) -> FieldNeed:
    return FieldNeed(GROUP, field, actions, is_optional, is_list)


def _cluster(actions: Action, field: str = "clusterName") -> FieldNeed:
    return FieldNeed(CLUSTER, field, actions)


def _row(*fields: FieldNeed, message: FieldNeed | None = None) -> CodeRow:
    return CodeRow(fields, message=message)


_CONSUME = _row(_group(SUB), _topic(SUB))
_READ_CLUSTER, _CHANGE_CLUSTER = CodeRow(cluster=GET), CodeRow(cluster=UPDATE)
_MANAGEMENT = CodeRow(is_management=True)
_OPTIONAL_TOPIC = _topic(GET, is_optional=True, is_list=True)

ROWS: Mapping[int, CodeRow] = {
    # Clients
    Code.SEND_MESSAGE: _row(_topic(PUB)),
    Code.SEND_MESSAGE_V2: _row(_topic(PUB, "b")),
    Code.SEND_BATCH_MESSAGE: _row(_topic(PUB, "b")),
    Code.SEND_REPLY_MESSAGE: _row(_topic(PUB)),
    Code.SEND_REPLY_MESSAGE_V2: _row(_topic(PUB, "b")),
    Code.RECALL_MESSAGE: _row(_topic(PUB)),
    Code.END_TRANSACTION: CodeRow(
        (_topic(PUB, is_optional=True),), message=_topic(PUB, "commitLogOffset"), is_free=True
    ),
    Code.PULL_MESSAGE: _CONSUME,
    Code.LITE_PULL_MESSAGE: _CONSUME,
    Code.QUERY_MESSAGE: _row(_topic(SUB | GET)),
    Code.VIEW_MESSAGE_BY_ID: CodeRow(
        (_topic(GET, is_optional=True),), message=_topic(SUB | GET, "offset"), is_free=True
    ),
    Code.CONSUMER_SEND_MSG_BACK: _row(_group(SUB, "group"), message=_topic(SUB, "offset")),
    Code.QUERY_CONSUMER_OFFSET: _row(_topic(SUB | GET), _group(SUB | GET)),
    Code.UPDATE_CONSUMER_OFFSET: _row(_topic(SUB | UPDATE), _group(SUB | UPDATE)),
    Code.HEART_BEAT: CodeRow(body=_heartbeat, is_free=True),
    Code.UNREGISTER_CLIENT: CodeRow((_group(SUB, is_optional=True),), is_free=True),
    Code.GET_CONSUMER_LIST_BY_GROUP: _row(_group(SUB | GET)),
    Code.LOCK_BATCH_MQ: CodeRow(body=_locks),
    Code.UNLOCK_BATCH_MQ: CodeRow(body=_locks),
    Code.CHECK_CLIENT_CONFIG: CodeRow(body=_client_check, is_free=True),
    Code.QUERY_ASSIGNMENT: CodeRow(body=_assignment),
    Code.POP_MESSAGE: _CONSUME,
    Code.ACK_MESSAGE: _CONSUME,
    Code.PEEK_MESSAGE: _CONSUME,
    Code.CHANGE_MESSAGE_INVISIBLETIME: _CONSUME,
    Code.NOTIFICATION: _CONSUME,
    Code.POLLING_INFO: _row(_group(GET), _topic(GET)),
    Code.BATCH_ACK_MESSAGE: CodeRow(body=_acks),
    # Routes
    # A client that sends to a new topic looks up the template of topics first.
    Code.GET_ROUTEINFO_BY_TOPIC: CodeRow(
        (FieldNeed(TOPIC, "topic", PUB | SUB | GET, free_name=names.AUTO_CREATE_TOPIC),), is_free=True
    ),
    # Topics
    Code.UPDATE_AND_CREATE_TOPIC: _row(_topic(CREATE)),
    Code.UPDATE_AND_CREATE_TOPIC_LIST: CodeRow(body=_new_topics),
    Code.DELETE_TOPIC_IN_BROKER: _row(_topic(DELETE)),
    Code.SEARCH_OFFSET_BY_TIMESTAMP: _row(_topic(GET)),
    Code.GET_MAX_OFFSET: _row(_topic(GET)),
    Code.GET_MIN_OFFSET: _row(_topic(GET)),
    Code.GET_EARLIEST_MSG_STORETIME: _row(_topic(GET)),
    Code.GET_TOPIC_STATS_INFO: _row(_topic(GET)),
    Code.GET_TOPIC_CONFIG: _row(_topic(GET)),
    Code.QUERY_TOPIC_CONSUME_BY_WHO: _row(_topic(GET)),
    # Groups
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: CodeRow(body=_new_group),
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: CodeRow(body=_new_groups),
    Code.DELETE_SUBSCRIPTIONGROUP: _row(_group(DELETE, "groupName")),
    Code.GET_CONSUMER_CONNECTION_LIST: _row(_group(GET)),
    Code.GET_SUBSCRIPTIONGROUP_CONFIG: _row(_group(GET, "group")),
    Code.QUERY_TOPICS_BY_CONSUMER: _row(_group(GET, "group")),
    Code.QUERY_SUBSCRIPTION_BY_CONSUMER: _row(_group(GET, "group"), _OPTIONAL_TOPIC),
    Code.GET_CONSUMER_RUNNING_INFO: _row(_group(GET)),
    Code.CONSUME_MESSAGE_DIRECTLY: _row(_group(SUB), _topic(SUB, is_optional=True), message=_topic(SUB, "msgId")),
    # Topics and groups
    Code.GET_CONSUME_STATS: _row(_group(GET), _OPTIONAL_TOPIC, _OPTIONAL_TOPIC._replace(field="topicList")),
    Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: _row(_topic(GET), _group(GET, "group")),
    Code.QUERY_CONSUME_TIME_SPAN: _row(_topic(GET), _group(GET, "group")),
    Code.QUERY_CORRECTION_OFFSET: _row(
        _topic(GET), _group(GET, "compareGroup"), _group(GET, "filterGroups", is_optional=True, is_list=True)
    ),
    Code.QUERY_CONSUME_QUEUE: _row(_topic(GET), _group(GET, is_optional=True)),
    Code.INVOKE_BROKER_TO_RESET_OFFSET: _row(_topic(UPDATE), _group(UPDATE, "group")),
    Code.CLONE_GROUP_OFFSET: _row(
        _group(GET, "srcGroup"), _group(UPDATE, "destGroup"), _topic(UPDATE, is_optional=True)
    ),
    Code.UPDATE_AND_GET_GROUP_FORBIDDEN: _row(_topic(UPDATE), _group(UPDATE, "group")),
    # The cluster
    **dict.fromkeys(
        (
            *(Code.GET_ALL_TOPIC_CONFIG, Code.GET_BROKER_CONFIG, Code.GET_BROKER_RUNTIME_INFO),
            *(Code.GET_ALL_CONSUMER_OFFSET, Code.GET_ALL_DELAY_OFFSET, Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG),
            *(Code.GET_PRODUCER_CONNECTION_LIST, Code.GET_ALL_PRODUCER_INFO, Code.VIEW_BROKER_STATS_DATA),
            *(Code.GET_BROKER_CONSUME_STATS, Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, Code.GET_KV_CONFIG),
            *(Code.GET_KVLIST_BY_NAMESPACE, Code.GET_BROKER_CLUSTER_INFO, Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER),
            *(Code.GET_SYSTEM_TOPIC_LIST_FROM_NS, Code.GET_UNIT_TOPIC_LIST, Code.GET_HAS_UNIT_SUB_TOPIC_LIST),
            *(Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, Code.GET_NAMESRV_CONFIG, Code.GET_ALL_MESSAGE_REQUEST_MODE),
            *(Code.GET_BROKER_HA_STATUS, Code.GET_TIMER_CHECK_POINT, Code.GET_BROKER_EPOCH_CACHE),
        ),
        _READ_CLUSTER,
    ),
    **dict.fromkeys(
        (
            *(Code.UPDATE_BROKER_CONFIG, Code.CLEAN_EXPIRED_CONSUMEQUEUE, Code.CLEAN_UNUSED_TOPIC),
            *(Code.DELETE_EXPIRED_COMMITLOG, Code.SET_MESSAGE_REQUEST_MODE, Code.PUT_KV_CONFIG, Code.DELETE_KV_CONFIG),
            *(Code.WIPE_WRITE_PERM_OF_BROKER, Code.ADD_WRITE_PERM_OF_BROKER, Code.DELETE_TOPIC_IN_NAMESRV),
            *(Code.REGISTER_TOPIC_IN_NAMESRV, Code.UPDATE_NAMESRV_CONFIG, Code.EXCHANGE_BROKER_HA_INFO),
            *(Code.CONTROLLER_ELECT_MASTER, Code.NOTIFY_BROKER_ROLE_CHANGED),
        ),
        _CHANGE_CLUSTER,
    ),
    # The members of a replica group report with it which tables they have saved.
    Code.CONTROLLER_GET_SYNC_STATE_DATA: CodeRow(cluster=GET, update_field=TABLES_FIELD),
    # A cluster that the request names: one name server serves brokers of several
    **dict.fromkeys(
        (Code.REGISTER_BROKER, Code.UNREGISTER_BROKER, Code.QUERY_DATA_VERSION, Code.BROKER_HEARTBEAT),
        _row(_cluster(UPDATE)),
    ),
    Code.GET_BROKER_MEMBER_GROUP: _row(_cluster(GET)),
    Code.GET_TOPICS_BY_CLUSTER: _row(_cluster(GET, "cluster")),
    # Accounts: super users only
    **dict.fromkeys((*range(50, 55), *range(3001, 3011)), _MANAGEMENT),
}


def _is_administrative(row: CodeRow) -> bool:
    """Return whether a request changes something besides messages and consumer offsets."""
    changes = CREATE | UPDATE | DELETE
    by_field = any(item.actions & changes and not item.actions & SUB for item in row.fields)
    return row.is_management or row.cluster == UPDATE or by_field or row.body in (_new_topics, _new_group, _new_groups)


# Brokers repeat these every few seconds.
_REPEATED = frozenset(
    (Code.REGISTER_BROKER, Code.QUERY_DATA_VERSION, Code.BROKER_HEARTBEAT, Code.EXCHANGE_BROKER_HA_INFO)
)
ADMINISTRATIVE_CODES = frozenset(
    int(code) for code, row in ROWS.items() if _is_administrative(row) and code not in _REPEATED
)
"""Codes whose admitted requests belong in the audit log."""
