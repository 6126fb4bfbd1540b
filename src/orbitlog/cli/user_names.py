"""Topics and groups of users, as opposed to those that brokers create for themselves: lists hide the latter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from orbitlog.formats.names import REPLY_TOPIC_SUFFIX, is_system_group, is_system_topic

if TYPE_CHECKING:
    from orbitlog.client.admin.administration import Administration


async def topics_named_by_brokers(admin: Administration) -> frozenset[str]:
    """Return the topics that brokers name after themselves and their cluster."""
    info = await admin.cluster()
    clusters = info.clusters
    return frozenset((*info.brokers, *clusters, *(cluster + REPLY_TOPIC_SUFFIX for cluster in clusters)))


def user_groups(groups: Iterable[str]) -> list[str]:
    """Return the groups without those of the system."""
    return [group for group in groups if not is_system_group(group)]


def user_rows(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the rows of a statistics table without those of system topics and system groups."""
    return [row for row in rows if not (is_system_topic(row.get("topic", "")) or is_system_group(row.get("group", "")))]
