"""Subscriptions: all messages (`*`), tags (`A || B`) or an SQL92 expression. Mirrors Java `FilterAPI`."""

from __future__ import annotations

from orbitlog.client.connection.checked_input import text
from orbitlog.errors import ClientError
from orbitlog.formats.java import string_hash
from orbitlog.formats.records import properties
from orbitlog.formats.records.message import Message
from orbitlog.wire.bodies.heartbeat_bodies import ALL, SubscriptionData

SQL92 = "SQL92"


def make_subscription(topic: str, tags: str = ALL, sql: str | None = None, *, version: int = 0) -> SubscriptionData:
    """Build a subscription; `version` is its creation time in milliseconds."""
    text("tags", tags)
    if sql is not None:
        text("sql", sql)
        if tags != ALL:
            raise ClientError("give tags or sql, not both")
        return SubscriptionData(topic, expression=sql, expression_type=SQL92, version=version)
    if tags == ALL or not tags.strip():
        return SubscriptionData(topic, version=version)
    wanted = tuple(dict.fromkeys(tag for tag in (part.strip() for part in tags.split("||")) if tag))
    if not wanted:
        raise ClientError(f"{tags!r} contains no tag; write 'A || B', or '*' for all")
    return SubscriptionData(
        topic, expression=tags, tags=wanted, tag_codes=tuple(string_hash(tag) for tag in wanted), version=version
    )


def wants(subscription: SubscriptionData, message: Message) -> bool:
    """Return whether the tag matches; the broker compared only hashes, which may collide."""
    return not subscription.tags or message.properties.get(properties.TAGS) in subscription.tags
