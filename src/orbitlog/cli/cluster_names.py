"""Names of topics and consumer groups in a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orbitlog.client.admin.administration import Administration


async def all_groups(admin: Administration) -> list[str]:
    """Return the consumer groups of all brokers, sorted."""
    groups: set[str] = set()
    for broker in (await admin.brokers()).values():
        groups |= set(await admin.groups(broker))
    return sorted(groups)


def user_topics(topics: list[str]) -> list[str]:
    """Return topics without system topics, retry topics and dead-letter topics."""
    from orbitlog.formats.names import DLQ_PREFIX, RETRY_PREFIX, is_system_topic

    return [topic for topic in topics if not (is_system_topic(topic) or topic.startswith((RETRY_PREFIX, DLQ_PREFIX)))]
