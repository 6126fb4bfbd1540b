"""Topic table of a broker: creates, changes and deletes topics. Mirrors `TopicConfigManager`.

A pure table: `changed` saves it (`topics.json`) and registers it with the name servers. Every change increments the
data version, by which name servers detect it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from orbitlog.broker.runtime import broker_settings as keys
from orbitlog.broker.runtime.broker_settings import BrokerSettings
from orbitlog.formats import names
from orbitlog.formats.tables.topic_config import (
    PERMISSION_INHERIT,
    PERMISSION_READ,
    PERMISSION_WRITE,
    DataVersion,
    TopicConfig,
    TopicTable,
)

READ_WRITE = PERMISSION_READ | PERMISSION_WRITE
_TEMPLATE = READ_WRITE | PERMISSION_INHERIT
_BENCHMARK_QUEUES = 1024
_SCHEDULE_QUEUES = 18
_DEAD_LETTER_QUEUES = 1
_REPLY_QUEUES = 1
_JOURNAL_MAX = 1_000

NowMs = Callable[[], int]


class Topics:
    """Topics by name. `changed` is called after every change."""

    def __init__(self, now_ms: NowMs, changed: Callable[[], None], saved: TopicTable | None = None) -> None:
        self._now_ms = now_ms
        self._changed = changed
        saved = saved or TopicTable()
        self._topics = dict(saved.topics)
        self._unknown = saved.unknown
        self.data_version = saved.data_version
        self.admit: Callable[[int], None] = lambda _: None
        """Called with the number of topics before one is created; raises `RequestRefused` to prevent it."""
        # Topics by the counter of their last change, oldest first; complete for changes after `_journal_start`.
        self._journal: dict[str, int] = {}
        self._journal_start = self.data_version.counter

    @property
    def table(self) -> Mapping[str, TopicConfig]:
        return MappingProxyType(self._topics)

    def find(self, topic: str) -> TopicConfig | None:
        return self._topics.get(topic)

    def put(self, config: TopicConfig) -> TopicConfig:
        """Create a topic or change it, if it differs; raise `RequestRefused` if there are too many."""
        if self._topics.get(config.topic) == config:
            return config
        if config.topic not in self._topics and not names.is_system_topic(config.topic):
            self.admit(len(self._topics) + 1)
        self._topics[config.topic] = config
        self._note_change(config.topic, self.data_version.counter + 1)
        self._bump()
        return config

    def _note_change(self, topic: str, counter: int) -> None:
        self._journal.pop(topic, None)
        self._journal[topic] = counter
        if len(self._journal) > _JOURNAL_MAX:
            oldest = next(iter(self._journal))
            self._journal_start = self._journal.pop(oldest)

    def changed_since(self, version: DataVersion) -> list[str] | None:
        """Return the topics changed or created after a version of this table; None if that is not known."""
        if not self._journal_start <= version.counter <= self.data_version.counter:
            return None
        return [
            topic for topic, counter in self._journal.items() if counter > version.counter and topic in self._topics
        ]

    def delete(self, topic: str) -> bool:
        if self._topics.pop(topic, None) is None:
            return False
        self._bump()
        return True

    def find_or_create(
        self, topic: str, queue_count: int, permission: int = READ_WRITE, sys_flag: int = 0
    ) -> TopicConfig:
        """Return the topic, created if it does not exist: for topics of a group or of the broker itself."""
        config = self._topics.get(topic)
        if config is not None:
            return config
        return self.put(
            TopicConfig(
                topic,
                read_queue_count=queue_count,
                write_queue_count=queue_count,
                permission=permission,
                sys_flag=sys_flag,
            )
        )

    def find_or_create_retry_topic(self, group: str, queue_count: int, sys_flag: int = 0) -> TopicConfig:
        return self.find_or_create(names.retry_topic(group), queue_count, sys_flag=sys_flag)

    def find_or_create_dead_letter_topic(self, group: str) -> TopicConfig:
        return self.find_or_create(names.dead_letter_topic(group), _DEAD_LETTER_QUEUES)

    def create_from_template(
        self, topic: str, template_name: str, queue_count: int, sys_flag: int
    ) -> TopicConfig | None:
        """Create a topic for a first send; return None if no template allows it."""
        template = self._topics.get(template_name)
        if template is None or not template.permission & PERMISSION_INHERIT:
            return None
        count = max(min(queue_count, template.write_queue_count), 0)
        return self.put(
            TopicConfig(
                topic,
                read_queue_count=count,
                write_queue_count=count,
                permission=template.permission & ~PERMISSION_INHERIT,
                filter_type=template.filter_type,
                sys_flag=sys_flag,
            )
        )

    def create_system_topics(self, settings: BrokerSettings) -> None:
        """Create the topics that clients and tools expect, as a Java broker does when it starts."""
        cluster, broker = settings[keys.CLUSTER_NAME], settings[keys.BROKER_NAME]
        count = settings[keys.QUEUE_COUNT]
        wanted = [
            TopicConfig(names.SELF_TEST_TOPIC, 1, 1),
            TopicConfig(names.BENCHMARK_TOPIC, _BENCHMARK_QUEUES, _BENCHMARK_QUEUES),
            TopicConfig(cluster, 16, 16, _TEMPLATE if settings[keys.CLUSTER_TOPIC] else PERMISSION_INHERIT),
            TopicConfig(broker, 1, 1, _TEMPLATE if settings[keys.BROKER_TOPIC] else PERMISSION_INHERIT),
            TopicConfig(names.OFFSET_MOVED_TOPIC, 1, 1),
            TopicConfig(names.SCHEDULE_TOPIC, _SCHEDULE_QUEUES, _SCHEDULE_QUEUES),
            TopicConfig(cluster + names.REPLY_TOPIC_SUFFIX, _REPLY_QUEUES, _REPLY_QUEUES),
            TopicConfig(names.HALF_TOPIC, 1, 1),
            TopicConfig(names.OP_HALF_TOPIC, 1, 1),
        ]
        if settings[keys.TRACE_TOPIC]:
            wanted.append(TopicConfig(names.TRACE_TOPIC, 1, 1))
        if settings[keys.TIMER_ENABLED]:
            wanted.append(TopicConfig(names.TIMER_TOPIC, 1, 1))
        if settings[keys.AUTO_CREATE_TOPIC]:
            wanted.append(TopicConfig(names.AUTO_CREATE_TOPIC, count, count, _TEMPLATE))
        missing = {config.topic: config for config in wanted if config.topic not in self._topics}
        removed = None
        if not settings[keys.AUTO_CREATE_TOPIC]:
            removed = self._topics.pop(names.AUTO_CREATE_TOPIC, None)
        self._topics.update(missing)
        if missing or removed:
            # No event: the broker is not built yet, and saves and registers its topics when it starts.
            self.data_version = next_version(self.data_version, self._now_ms())
            self._journal_start = self.data_version.counter

    def copy_from(self, copied: TopicTable) -> set[str]:
        """Take over the table of the master, with its data version; return the topics that it does not have."""
        deleted = self._topics.keys() - copied.topics.keys()
        self._topics = dict(copied.topics)
        self.data_version = copied.data_version
        self._journal.clear()
        self._journal_start = copied.data_version.counter
        self._changed()
        return deleted

    def is_system(self, topic: str, settings: BrokerSettings) -> bool:
        """Return whether the topic is one of the broker's own."""
        cluster = settings[keys.CLUSTER_NAME]
        own = (cluster, settings[keys.BROKER_NAME], cluster + names.REPLY_TOPIC_SUFFIX)
        return names.is_system_topic(topic) or topic in own

    def snapshot(self) -> TopicTable:
        return TopicTable(dict(self._topics), self.data_version, unknown=self._unknown)

    def registered(self, names: Iterable[str], broker_permission: int) -> dict[str, TopicConfig]:
        """Return topics to register, without those deleted: a permission that the broker lacks is removed from each."""
        configs = {name: config for name in names if (config := self._topics.get(name)) is not None}
        if broker_permission & READ_WRITE == READ_WRITE:
            return configs
        return {
            name: replace(config, permission=config.permission & broker_permission) for name, config in configs.items()
        }

    def touch(self) -> None:
        """Register all topics with the name servers although none changed: the broker's permission did."""
        self._journal_start = self.data_version.counter + 1
        self._bump()

    def _bump(self) -> None:
        self.data_version = next_version(self.data_version, self._now_ms())
        self._changed()


class LightTopics(Topics):
    """Topics of a broker with light queues (`enableLmq`): `%LMQ%` names need no entry.

    Mirrors `LmqTopicConfigManager`.
    """

    def find(self, topic: str) -> TopicConfig | None:
        if topic.startswith(names.LMQ_PREFIX):
            return TopicConfig(topic, 1, 1, READ_WRITE) if names.is_topic(topic) else None
        return self._topics.get(topic)

    def put(self, config: TopicConfig) -> TopicConfig:
        return config if config.topic.startswith(names.LMQ_PREFIX) else super().put(config)


def next_version(version: DataVersion, now_ms: int) -> DataVersion:
    """Return the version after one more change at `now_ms`."""
    return replace(version, counter=version.counter + 1, timestamp_ms=now_ms)
