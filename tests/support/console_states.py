"""Clusters for console tests: waiting messages of every kind, and a store with very many topics and groups."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from orbitlog.formats.compat import COMPAT_5_5
from orbitlog.formats.tables.group_config import GroupConfig, GroupTable, encode_groups
from orbitlog.formats.tables.offset_tables import ConsumerOffsets, TopicGroup, encode_consumer_offsets
from orbitlog.formats.tables.topic_config import TopicConfig, TopicTable, encode_topics
from orbitlog.testing.running_broker import RunningBroker

LETTERS = 3
SCHEDULED = 4


def add_waiting_messages(broker: RunningBroker) -> None:
    """Add dead letters of the group refunds, scheduled messages and a pending transaction."""
    client = broker.client
    client.admin.create_topic("Payments", 1)
    client.admin.create_group(GroupConfig("refunds"))
    client.admin.create_topic("%DLQ%refunds", 1)
    for number in range(LETTERS):
        client.send("%DLQ%refunds", f"letter {number}", keys=[f"k{number}"], properties={"RETRY_TOPIC": "Payments"})
    now = datetime.now(UTC)
    for hours in (1, 1, 26):
        client.send("Payments", f"in {hours} h", deliver_at=now + timedelta(hours=hours))
    client.send("Payments", "by level", delay_level=18)
    client.send_in_transaction("Payments", "half", lambda _: None, keys=["open"])


def write_many_names(store: Path, topics: int, groups: int) -> None:
    """Write the config files of a store with these numbers of topics and groups, before a broker starts on it."""
    config = store / "config"
    config.mkdir(parents=True)
    names = [f"topic-{number:05d}" for number in range(topics)]
    topic_table = TopicTable({name: TopicConfig(name, 1, 1) for name in names})
    members = [f"group-{number:05d}" for number in range(groups)]
    group_table = GroupTable({name: GroupConfig(name) for name in members})
    offsets = {TopicGroup(names[at % topics], name): {0: 0} for at, name in enumerate(members)}
    (config / "topics.json").write_text(encode_topics(topic_table, COMPAT_5_5))
    (config / "subscriptionGroup.json").write_text(encode_groups(group_table, COMPAT_5_5))
    (config / "consumerOffset.json").write_text(encode_consumer_offsets(ConsumerOffsets(offsets), COMPAT_5_5))
