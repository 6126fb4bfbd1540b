"""Labels of topics and groups: whether they are the broker's own, as Apache's metrics state it."""

from __future__ import annotations

from functools import lru_cache

from orbitlog.formats.names import SYSTEM_GROUP_PREFIX, is_system_topic

__all__ = ["is_system", "is_system_group", "is_system_topic"]


def is_system_group(group: str) -> bool:
    """Return whether Apache's metrics label a group as the broker's own: by its prefix, in any case."""
    return group.upper().startswith(SYSTEM_GROUP_PREFIX)


@lru_cache(maxsize=4096)
def is_system(topic: str, group: str) -> bool:
    """Return whether a topic or a group is the broker's own."""
    return is_system_topic(topic) or is_system_group(group)
