"""Promotion: what a member does before it serves as the master of its group."""

from __future__ import annotations

import logging
from dataclasses import replace

from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.broker.tables.topics import next_version
from orbitlog.errors import StoreError
from orbitlog.formats.tables.topic_config import TopicConfig

log = logging.getLogger(__name__)


def take_office(state: BrokerState, epoch: int) -> None:
    """Make the tables those of a master of this epoch; raise `StoreError` if the store is not ready for messages.

    Name servers ignore registrations with a lower state version, such as those of a deposed master.
    """
    store = state.store
    if store.dispatched_to != store.written_to:
        raise StoreError(
            f"the log ends at {store.written_to}, but its queues at {store.dispatched_to}: queue offsets would be used"
            " twice"
        )
    _create_missing_topics(state)
    topics = state.topics
    topics.data_version = replace(next_version(topics.data_version, state.now_ms()), state_version=epoch)


def _create_missing_topics(state: BrokerState) -> None:
    """Create the topics of queues that the table lacks: the last copy of the old master's table is older than they."""
    queue_counts: dict[str, int] = {}
    for topic, queue_id in state.store.queue_keys():
        queue_counts[topic] = max(queue_counts.get(topic, 0), queue_id + 1)
    for topic, count in queue_counts.items():
        if state.topics.find(topic) is None:
            log.warning("topic %s is in the log, but not in the copied table: created with %d queues", topic, count)
            state.topics.put(TopicConfig(topic, count, count))
