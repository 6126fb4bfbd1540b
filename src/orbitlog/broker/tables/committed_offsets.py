"""Committed offsets: the next offset to consume, by group and queue. Mirrors `ConsumerOffsetManager`.

A pure table, saved to `consumerOffset.json` every few seconds and when the broker stops. An operator's offset reset
stays in `_resets` until the group's next pull of that queue; commits that arrive before it are dropped.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from orbitlog.broker.tables.topics import NowMs, next_version
from orbitlog.formats.names import LMQ_PREFIX
from orbitlog.formats.tables.json_records import JsonFile
from orbitlog.formats.tables.offset_tables import (
    CONSUMER_OFFSET,
    LMQ_CONSUMER_OFFSET,
    ConsumerOffsets,
    LmqConsumerOffsets,
    TopicGroup,
)
from orbitlog.settings.limits import QUEUE_OFFSETS, Limits

_NO_OFFSETS: dict[int, int] = {}


class CommittedOffsets:
    """Queue offsets of the next message to consume, by topic, group and queue; `file` is the file they are saved to."""

    file: ClassVar[JsonFile[Any]] = CONSUMER_OFFSET

    def __init__(self, now_ms: NowMs, saved: ConsumerOffsets | None = None) -> None:
        self._now_ms = now_ms
        saved = saved or ConsumerOffsets()
        self.limits = Limits()
        self._count = 0  # of queue offsets, as of the last snapshot and with those added since
        self._offsets = {key: dict(queues) for key, queues in saved.offsets.items()}
        self._pulled = {key: dict(queues) for key, queues in saved.pull_offsets.items()}
        self._resets: dict[TopicGroup, dict[int, int]] = {}
        # Keys of `_offsets`: statistics of ten thousand groups must not search all of them for each.
        self._topics_of: dict[str, dict[str, None]] = {}
        self._groups_of: dict[str, dict[str, None]] = {}
        for key in self._offsets:
            self._note_key(key)
        self._unknown = saved.unknown
        self._data_version = saved.data_version
        self.is_changed = False

    def _note_key(self, key: TopicGroup) -> None:
        self._topics_of.setdefault(key.group, {})[key.topic] = None
        self._groups_of.setdefault(key.topic, {})[key.group] = None

    def _queues_of(self, key: TopicGroup) -> dict[int, int]:
        """Return the offsets of a group in a topic, to be changed."""
        queues = self._offsets.get(key)
        if queues is None:
            queues = self._offsets[key] = {}
            self._note_key(key)
        return queues

    def find(self, topic: str, group: str, queue_id: int) -> int | None:
        return self._offsets.get(TopicGroup(topic, group), _NO_OFFSETS).get(queue_id)

    def queues(self, topic: str, group: str) -> dict[int, int]:
        """Return the offsets of every queue of the topic that the group has committed."""
        return dict(self._offsets.get(TopicGroup(topic, group), _NO_OFFSETS))

    def commit(self, topic: str, group: str, queue_id: int, queue_offset: int) -> bool:
        """Set an offset, also to a smaller one.

        Return False if the group has not seen an offset reset yet, or if there are too many offsets.
        """
        key = TopicGroup(topic, group)
        if queue_id in self._resets.get(key, _NO_OFFSETS):
            return False
        queues = self._offsets.get(key)
        if queues is None or queue_id not in queues:
            if not self._has_room():
                return False
            queues = self._queues_of(key)
        queues[queue_id] = queue_offset
        self.is_changed = True
        return True

    def note_pull(self, topic: str, group: str, queue_id: int, queue_offset: int) -> None:
        """Record the offset that the group will pull next."""
        key = TopicGroup(topic, group)
        queues = self._pulled.get(key)
        if queues is None or queue_id not in queues:
            if not self._has_room():
                return
            queues = self._pulled.setdefault(key, {})
        queues[queue_id] = queue_offset

    def _has_room(self) -> bool:
        """Count one more offset; return False if there are too many."""
        if self._count >= self.limits[QUEUE_OFFSETS]:
            self.limits.reach(QUEUE_OFFSETS)
            return False
        self._count += 1
        return True

    def refuse_full(self) -> None:
        """Raise `RequestRefused` if no queue can be added."""
        self.limits.refuse_over(QUEUE_OFFSETS, self._count + 1)

    def pulled(self, topic: str, group: str, queue_id: int) -> int | None:
        return self._pulled.get(TopicGroup(topic, group), _NO_OFFSETS).get(queue_id)

    def reset(self, topic: str, group: str, queue_id: int, queue_offset: int) -> None:
        """Reset a group's offset: its next pull of the queue is redirected to it."""
        self._resets.setdefault(TopicGroup(topic, group), {})[queue_id] = queue_offset
        self._queues_of(TopicGroup(topic, group))[queue_id] = queue_offset
        self.is_changed = True

    def take_reset(self, topic: str, group: str, queue_id: int) -> int | None:
        """Return the offset that a pull must be redirected to and remove it; None without a reset."""
        if not self._resets:
            return None
        key = TopicGroup(topic, group)
        resets = self._resets.get(key, _NO_OFFSETS)
        queue_offset = resets.pop(queue_id, None)
        if not resets:
            self._resets.pop(key, None)
        return queue_offset

    def has_reset(self, topic: str, group: str, queue_id: int) -> bool:
        return queue_id in self._resets.get(TopicGroup(topic, group), _NO_OFFSETS)

    def topics_of(self, group: str) -> list[str]:
        return list(self._topics_of.get(group, ()))

    def groups_of(self, topic: str) -> list[str]:
        return [group for group in self._groups_of.get(topic, ()) if group]

    @property
    def keys(self) -> Iterable[TopicGroup]:
        return list(self._offsets)

    @property
    def key_count(self) -> int:
        """Number of pairs of topic and group."""
        return len(self._offsets)

    @property
    def groups(self) -> list[str]:
        """All groups with an offset."""
        return list(self._topics_of)

    @property
    def queue_count(self) -> int:
        """Number of queues with an offset, of all groups."""
        return sum(map(len, self._offsets.values()))

    def clone(self, topic: str, source: str, target: str) -> bool:
        """Copy the offsets of one group to another; return False if the first has committed none."""
        queues = self._offsets.get(TopicGroup(topic, source))
        if not queues:
            return False
        self._queues_of(TopicGroup(topic, target))
        self._offsets[TopicGroup(topic, target)] = dict(queues)
        self.is_changed = True
        return True

    def copy_from(self, copied: ConsumerOffsets) -> None:
        """Take over the offsets of the master; offsets of groups and topics that it does not have stay, as in Java."""
        for key, queues in copied.offsets.items():
            if self._offsets.get(key) != queues:
                self._queues_of(key)
                self._offsets[key] = dict(queues)
                self.is_changed = True
        self._pulled.update((key, dict(queues)) for key, queues in copied.pull_offsets.items())

    def forget_group(self, group: str) -> None:
        self._forget([TopicGroup(topic, group) for topic in self.topics_of(group)])

    def forget_topic(self, topic: str) -> None:
        self._forget([TopicGroup(topic, group) for group in self._groups_of.get(topic, ())])

    def _forget(self, keys: Iterable[TopicGroup]) -> None:
        for key in keys:
            for table in (self._offsets, self._pulled, self._resets):
                table.pop(key, None)
            _drop(self._topics_of, key.group, key.topic)
            _drop(self._groups_of, key.topic, key.group)
            self.is_changed = True

    def snapshot(self) -> ConsumerOffsets:
        """Return the table to save."""
        offsets = {key: queues.copy() for key, queues in self._offsets.items()}
        pulled = {key: queues.copy() for key, queues in self._pulled.items()}
        self._count = sum(map(len, offsets.values())) + sum(map(len, pulled.values()))
        self._data_version = next_version(self._data_version, self._now_ms())
        self.is_changed = False
        return ConsumerOffsets(offsets, pulled, self._data_version, unknown=self._unknown)


def _drop(index: dict[str, dict[str, None]], name: str, member: str) -> None:
    members = index.get(name, {})
    members.pop(member, None)
    if not members:
        index.pop(name, None)


class LightOffsets(CommittedOffsets):
    """Offsets of a broker with light queues, kept in `lmqConsumerOffset.json`. Mirrors `LmqConsumerOffsetManager`.

    In that file a `%LMQ%` group has one offset for each topic: a light queue is one queue.
    """

    file: ClassVar[JsonFile[Any]] = LMQ_CONSUMER_OFFSET

    def __init__(self, now_ms: NowMs, saved: ConsumerOffsets | None = None) -> None:
        super().__init__(now_ms, saved)
        if isinstance(saved, LmqConsumerOffsets):
            for key, queue_offset in saved.lmq_offsets.items():
                self._queues_of(key)[0] = queue_offset

    def snapshot(self) -> LmqConsumerOffsets:
        saved = super().snapshot()
        light = {
            key: queues[0] for key, queues in saved.offsets.items() if key.group.startswith(LMQ_PREFIX) and 0 in queues
        }
        # Java's file has no entry for other queues of such a group: they stay in the regular table, as with Java.
        others = {key: queues for key, queues in saved.offsets.items() if key not in light or len(queues) > 1}
        return LmqConsumerOffsets(
            others, saved.pull_offsets, saved.data_version, lmq_offsets=light, unknown=saved.unknown
        )
