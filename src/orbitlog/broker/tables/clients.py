"""Connected clients: producers and consumers by group, from their heartbeats.

Mirrors `ProducerManager`, `ConsumerManager`, `ConsumerGroupInfo`. A pure table: connections are only keys, and callers
pass the time. Methods return whether membership changed; the caller notifies the other members.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from orbitlog.errors import BadExpression
from orbitlog.formats.java import string_hash
from orbitlog.formats.records.message import decode_message
from orbitlog.remoting.loop_slices import at_once
from orbitlog.wire.bodies.heartbeat_bodies import ALL, SQL92, TAG, ConsumerData, SubscriptionData

EXPIRY_MS = 120_000
BROADCASTING = "BROADCASTING"
_CACHED_CHARACTERS_MAX = 512

TagsFilter = Callable[[int], bool]
RecordFilter = Callable[[bytes], bool]


class Subscription:
    """A group's subscription to one topic, with the filters that select its messages."""

    __slots__ = ("data", "problem", "record_filter", "tags_filter")

    def __init__(self, data: SubscriptionData) -> None:
        self.data = data
        self.tags_filter = _tags_filter(data)
        """Selects messages by their tag hash; None if all match."""
        self.record_filter: RecordFilter | None = None
        """Selects messages by the whole record, for an expression over properties."""
        self.problem = ""
        """Why the expression is invalid; empty if it is valid."""
        if not data.is_tag:
            try:
                self.record_filter = _sql_filter(data.expression_type, data.expression)
            except BadExpression as error:
                self.problem = f"invalid expression: {error}"

    @property
    def topic(self) -> str:
        return self.data.topic

    @property
    def version(self) -> int:
        return self.data.version


def _tags_filter(data: SubscriptionData) -> TagsFilter | None:
    if not data.is_tag or data.expression == ALL or not (data.tags or data.tag_codes):
        return None
    # Hashes are computed from the tags, not taken from the request: Go clients hash bytes, all others characters.
    return frozenset(map(string_hash, data.tags) if data.tags else data.tag_codes).__contains__


def _sql_filter(expression_type: str, expression: str) -> RecordFilter:
    """Compile an expression. A short one is cached: all members of a group send the same one, in each heartbeat."""
    if len(expression) <= _CACHED_CHARACTERS_MAX:
        return _compile_cached(expression_type, expression)
    return _compile(expression_type, expression)


def _compile(expression_type: str, expression: str) -> RecordFilter:
    if expression_type != SQL92:
        raise BadExpression(f"{expression_type[:40]!r} is not a type of expression", expression)
    from orbitlog.filters.sql_filter import SqlFilter

    matches = SqlFilter(expression).matches
    return lambda record: matches(decode_message(record, check_crc=False).properties)


_compile_cached = lru_cache(maxsize=256)(_compile)


def is_valid_sql(expression: str) -> bool:
    """Return whether an SQL92 expression compiles."""
    try:
        _sql_filter(SQL92, expression)
    except BadExpression:
        return False
    return True


def no_property_filter(expression_type: str) -> str:
    """Return the refusal of expressions over properties, in Java's words."""
    return f"The broker does not support consumer to filter message by {expression_type[:40]} (enablePropertyFilter)"


def parse_subscription(topic: str, expression: str | None, expression_type: str | None = None) -> Subscription:
    """Parse `a || b`, as Java `FilterAPI.build` does; `*`, an empty text and blanks match every message."""
    if expression_type not in (None, "", TAG):
        return Subscription(SubscriptionData(topic, expression or "", expression_type=expression_type or TAG))
    if expression is None or expression == ALL or expression.strip() in ("", ALL):
        return _to_everything(topic)
    tags = tuple(dict.fromkeys(tag for part in expression.split("||") if (tag := part.strip())))
    return Subscription(SubscriptionData(topic, expression, tags, tuple(map(string_hash, tags))))


@lru_cache(maxsize=1024)
def _to_everything(topic: str) -> Subscription:
    """Return a subscription without filter. Cached: most pulls that carry a subscription carry this one."""
    return Subscription(SubscriptionData(topic))


@dataclass(slots=True)
class Member:
    """One client in one group."""

    client_id: str
    language: str
    version: int
    connection: object
    last_seen_ms: int
    account: str = ""
    """The account of its heartbeats, with access control."""


@dataclass(slots=True)
class ConsumerGroup:
    """The connected consumers of a group, and the subscriptions of the last heartbeat."""

    group: str
    consume_type: str = "CONSUME_PASSIVELY"
    message_model: str = "CLUSTERING"
    consume_from_where: str = "CONSUME_FROM_LAST_OFFSET"
    members: dict[object, Member] = field(default_factory=dict)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    last_change_ms: int = 0

    @property
    def client_ids(self) -> list[str]:
        return list(dict.fromkeys(member.client_id for member in self.members.values()))

    def find(self, client_id: str) -> Member | None:
        return next((member for member in self.members.values() if member.client_id == client_id), None)

    def take_subscriptions(self, given: Mapping[str, SubscriptionData]) -> Generator[int, None, bool]:
        """Replace the subscriptions by those of a heartbeat in steps; return whether a topic was added or removed.

        Members with different subscriptions overwrite each other's, as in Java.
        """
        changed = False
        for topic, subscription in given.items():
            before = self.subscriptions.get(topic)
            changed |= before is None
            if before is None or subscription.version > before.version:
                self.subscriptions[topic] = Subscription(subscription)
                yield 1
        for topic in [topic for topic in self.subscriptions if topic not in given]:
            del self.subscriptions[topic]
            changed = True
        return changed


class Clients:
    """All connected clients."""

    def __init__(self) -> None:
        self._consumers: dict[str, ConsumerGroup] = {}
        self._producers: dict[str, dict[object, Member]] = {}
        # The groups of each connection: a connection that closes must not cost a look at all groups.
        self._consumed: dict[object, dict[str, None]] = {}
        self._produced: dict[object, dict[str, None]] = {}
        # The producer of each client id, and the id of each connection: a connection has one.
        self._by_id: dict[str, Member] = {}
        self._ids: dict[object, str] = {}

    def groups_of(self, connection: object) -> set[str]:
        """Return the groups that a connection is in."""
        return {*self._consumed.get(connection, ()), *self._produced.get(connection, ())}

    def group_count(self, connection: object) -> int:
        """Return the number of groups that a connection is in."""
        return len(self._consumed.get(connection, ())) + len(self._produced.get(connection, ()))

    # Consumers

    def consumer_group(self, group: str) -> ConsumerGroup | None:
        return self._consumers.get(group)

    @property
    def consumer_groups(self) -> Iterable[ConsumerGroup]:
        return list(self._consumers.values())

    def groups_subscribed_to(self, topic: str) -> list[str]:
        return [group.group for group in self._consumers.values() if topic in group.subscriptions]

    def register_consumer(self, heartbeat: ConsumerData, member: Member) -> bool:
        """Register a heartbeat; return whether the group's members should rebalance."""
        return at_once(self.register_steps(heartbeat, member))

    def register_steps(self, heartbeat: ConsumerData, member: Member) -> Generator[int, None, bool]:
        """Do the same in steps; yield the number of compiled subscriptions after each."""
        group = self._consumers.get(heartbeat.group)
        if group is None:
            group = self._consumers[heartbeat.group] = ConsumerGroup(heartbeat.group)
        group.consume_type = heartbeat.consume_type
        group.message_model = heartbeat.message_model
        group.consume_from_where = heartbeat.consume_from_where
        before = group.members.get(member.connection)
        is_new = before is None or before.client_id != member.client_id
        group.members[member.connection] = member
        self._consumed.setdefault(member.connection, {})[heartbeat.group] = None
        changed = yield from group.take_subscriptions(
            {subscription.topic: subscription for subscription in heartbeat.subscriptions}
        )
        if is_new or changed:
            group.last_change_ms = member.last_seen_ms
        return is_new or changed

    def unregister_consumer(self, group_name: str, connection: object) -> bool:
        """Remove a member; return whether it was one."""
        group = self._consumers.get(group_name)
        if group is None or group.members.pop(connection, None) is None:
            return False
        _leave(self._consumed, connection, group_name)
        if not group.members:
            del self._consumers[group_name]
        return True

    # Producers

    @property
    def producer_groups(self) -> Mapping[str, Mapping[object, Member]]:
        return self._producers

    def producers(self, group: str) -> list[Member]:
        return list(self._producers.get(group, {}).values())

    def find_producer(self, client_id: str) -> Member | None:
        """Return the producer with that client id, in any group."""
        return self._by_id.get(client_id)

    def register_producer(self, group: str, member: Member) -> None:
        """Register a heartbeat.

        While a client id is in use, it belongs to the account that registered it: replies to it contain messages.
        """
        self._producers.setdefault(group, {})[member.connection] = member
        self._produced.setdefault(member.connection, {})[group] = None
        if self._ids.get(member.connection) != member.client_id:
            self._forget_id(member.connection)
        owner = self._by_id.get(member.client_id)
        if owner is None or owner.account == member.account:
            self._by_id[member.client_id] = member
            self._ids[member.connection] = member.client_id

    def _forget_id(self, connection: object) -> None:
        """Free the client id of a connection, unless the client has reconnected and uses it there."""
        client_id = self._ids.pop(connection, None)
        member = None if client_id is None else self._by_id.get(client_id)
        if member is not None and member.connection is connection:
            del self._by_id[member.client_id]

    def unregister_producer(self, group: str, connection: object) -> None:
        members = self._producers.get(group, {})
        members.pop(connection, None)
        _leave(self._produced, connection, group)
        if connection not in self._produced:
            self._forget_id(connection)
        if not members:
            self._producers.pop(group, None)

    # Both

    def drop_connection(self, connection: object) -> list[str]:
        """Remove a closed connection; return the consumer groups that it was in."""
        for group in list(self._produced.get(connection, ())):
            self.unregister_producer(group, connection)
        return [
            group for group in list(self._consumed.get(connection, ())) if self.unregister_consumer(group, connection)
        ]

    def expired(self, now_ms: int) -> list[object]:
        """Return connections without a heartbeat for longer than the timeout."""
        groups = [*(group.members for group in self._consumers.values()), *self._producers.values()]
        return list(
            {
                connection: None
                for members in groups
                for connection, member in members.items()
                if now_ms - member.last_seen_ms > EXPIRY_MS
            }
        )


def _leave(groups: dict[object, dict[str, None]], connection: object, group: str) -> None:
    joined = groups.get(connection)
    if joined is not None:
        joined.pop(group, None)
        if not joined:
            del groups[connection]
