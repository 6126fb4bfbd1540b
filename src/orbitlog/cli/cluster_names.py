"""Names of topics and consumer groups in a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orbitlog.client.admin.administration import Administration


async def all_groups(admin: Administration) -> list[str]:
    found: set[str] = set()
    for broker in (await admin.brokers()).values():
        found |= set(await admin.groups(broker))
    return sorted(found)


def user_topics(topics: list[str]) -> list[str]:
    """Leave out what brokers make for themselves."""
    from orbitlog.formats.names import DLQ_PREFIX, RETRY_PREFIX, is_system_topic

    return [each for each in topics if not (is_system_topic(each) or each.startswith((RETRY_PREFIX, DLQ_PREFIX)))]
