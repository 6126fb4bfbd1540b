"""Consumer groups of a broker and their permissions. Mirrors `SubscriptionGroupManager`.

A pure table, as `topics` is; saved to `subscriptionGroup.json`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from orbitlog.broker.tables.topics import NowMs, next_version
from orbitlog.formats.names import LMQ_PREFIX, is_system_group
from orbitlog.formats.tables.group_config import GroupConfig, GroupTable

# Created when a broker starts, as Java does.
_AT_START = (
    *("TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY"),
    *("CID_ONSAPI_PULL", "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER"),
)
_READ_BIT = 1 << 2


class Groups:
    """Groups by name. `changed` is called after every change."""

    def __init__(self, now_ms: NowMs, changed: Callable[[], None], saved: GroupTable | None = None) -> None:
        self._now_ms = now_ms
        self._changed = changed
        saved = saved or GroupTable()
        self._take(saved)
        self._unknown = saved.unknown
        self.admit: Callable[[int], None] = lambda _: None
        """Called with the number of groups before one is created; raises `RequestRefused` to prevent it."""
        for group in _AT_START:
            self._groups.setdefault(group, GroupConfig(group))

    @property
    def table(self) -> Mapping[str, GroupConfig]:
        return MappingProxyType(self._groups)

    def find(self, group: str) -> GroupConfig | None:
        return self._groups.get(group)

    def find_or_create(self, group: str, *, auto_create: bool) -> GroupConfig | None:
        """Return the group, created if it does not exist and that is allowed. The name must have been checked."""
        config = self._groups.get(group)
        if config is None and (auto_create or is_system_group(group)):
            return self.put(GroupConfig(group))
        return config

    def put(self, config: GroupConfig) -> GroupConfig:
        """Create a group or change it, if it differs; raise `RequestRefused` if there are too many."""
        if self._groups.get(config.group) == config:
            return config
        if config.group not in self._groups and not is_system_group(config.group):
            self.admit(len(self._groups) + 1)
        self._groups[config.group] = config
        self._bump()
        return config

    def delete(self, group: str) -> bool:
        self._forbidden.pop(group, None)
        if self._groups.pop(group, None) is None:
            return False
        self._bump()
        return True

    def copy_from(self, copied: GroupTable) -> None:
        """Take over the table of the master, with its data version."""
        self._take(copied)
        self._changed()

    def _take(self, table: GroupTable) -> None:
        """Set groups, permissions and data version to those of a table, which is not changed afterwards."""
        self._groups = dict(table.groups)
        self._forbidden = {group: dict(topics) for group, topics in table.forbidden.items()}
        self.data_version = table.data_version

    def may_read(self, group: str, topic: str) -> bool:
        """Return whether the group may read the topic: an operator can forbid it."""
        return not self._forbidden.get(group, {}).get(topic, 0) & _READ_BIT

    def set_readable(self, group: str, topic: str, readable: bool) -> None:
        bits = self._forbidden.setdefault(group, {})
        bits[topic] = bits.get(topic, 0) & ~_READ_BIT if readable else bits.get(topic, 0) | _READ_BIT
        self._bump()

    def snapshot(self) -> GroupTable:
        forbidden = {group: dict(topics) for group, topics in self._forbidden.items()}
        return GroupTable(dict(self._groups), forbidden, self.data_version, unknown=self._unknown)

    def _bump(self) -> None:
        self.data_version = next_version(self.data_version, self._now_ms())
        self._changed()


class LightGroups(Groups):
    """Groups of a broker with light queues (`enableLmq`): `%LMQ%` names need no entry.

    Mirrors `LmqSubscriptionGroupManager`.
    """

    def find(self, group: str) -> GroupConfig | None:
        return GroupConfig(group) if group.startswith(LMQ_PREFIX) else self._groups.get(group)

    def find_or_create(self, group: str, *, auto_create: bool) -> GroupConfig | None:
        return self.find(group) or super().find_or_create(group, auto_create=auto_create)

    def put(self, config: GroupConfig) -> GroupConfig:
        return config if config.group.startswith(LMQ_PREFIX) else super().put(config)
