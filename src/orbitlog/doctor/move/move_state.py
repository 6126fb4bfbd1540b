"""State that moves with a store: pending messages, tables, queues of earlier brokers; the same for both directions."""

from __future__ import annotations

from collections.abc import Iterator

from orbitlog.doctor.explanation import Explanation
from orbitlog.doctor.move.move_rows import MoveRow, changes, note
from orbitlog.doctor.surveys.pending_messages import PendingMessages
from orbitlog.doctor.surveys.store_survey import topics_without_config
from orbitlog.doctor.surveys.stored_tables import read_offsets, read_table
from orbitlog.formats import names
from orbitlog.formats import store_tree as tree
from orbitlog.formats.tables.offset_tables import CONSUMER_OFFSET, LMQ_CONSUMER_OFFSET
from orbitlog.formats.tables.topic_config import TOPICS
from orbitlog.storefiles.config_reading import known_topics
from orbitlog.storefiles.offset_files import OffsetsFile
from orbitlog.storefiles.store_files import StoreFiles

_GROUPS_NAMED = 5


def pending_rows(found: Explanation, pending: PendingMessages, *, has_timers_and_pop: bool = True) -> Iterator[MoveRow]:
    """Yield a note for each kind of message that is not delivered yet, or what is lost in a broker of 4.9."""
    if found.pending_delays:
        count = sum(found.pending_delays.values())
        yield note("delayed messages", f"{count} delayed messages are pending and are delivered when they are due")
    if found.pending_transactions:
        yield note(
            "half messages",
            f"{found.pending_transactions} half messages are not checked yet; their producers are asked after the move",
        )
    timers = f"{_at_least(pending)}{pending.timers} timer messages are pending"
    if pending.timers and has_timers_and_pop:
        yield note("timer messages", f"{timers} and are delivered when they are due")
    elif pending.timers:
        yield _lost("timer messages", f"{timers}: Java 4.9 has no timer messages and never delivers them")
    if pending.popped and has_timers_and_pop:
        yield note("POP messages in flight", f"{popped_sentence(pending)}; they are redelivered if not acknowledged")
    elif pending.popped:
        yield _lost(
            "POP messages in flight", f"{popped_sentence(pending)}: Java 4.9 has no POP and never delivers them"
        )


def _lost(kind: str, sentence: str) -> MoveRow:
    return changes(kind, sentence, next_step="consume them before the move, or move to Java 5.5")


def popped_sentence(pending: PendingMessages) -> str:
    """Return a clause that counts POP messages in flight by group."""
    groups = [f"{count} of group {group}" for group, count in sorted(pending.popped.items())]
    more = f" and {len(groups) - _GROUPS_NAMED} more groups" if len(groups) > _GROUPS_NAMED else ""
    total = sum(pending.popped.values())
    return f"{_at_least(pending)}{total} POP messages are in flight ({', '.join(groups[:_GROUPS_NAMED])}{more})"


def _at_least(pending: PendingMessages) -> str:
    return "" if pending.is_complete else "at least "


def table_rows(store: StoreFiles) -> Iterator[MoveRow]:
    """Yield what follows from tables that are missing."""
    yield from _topic_table_rows(store)
    groups = _group_count(store)
    if groups and not any(offset_count(store, file) for file in (CONSUMER_OFFSET, LMQ_CONSUMER_OFFSET)):
        yield changes(
            "consumer offsets",
            f"{CONSUMER_OFFSET.name} has no offset, though the store has retry topics of {groups} consumer groups:"
            " they start over",
            path=store.root / tree.CONFIG / CONSUMER_OFFSET.name,
            next_step=f"restore {CONSUMER_OFFSET.name}, or set the groups with `orbitlog offsets reset` after the move",
        )


def _topic_table_rows(store: StoreFiles) -> Iterator[MoveRow]:
    without = topics_without_config(store)
    path = store.root / tree.CONFIG / TOPICS.name
    if without and read_table(store.root, TOPICS) is None:
        yield changes(
            "topic table",
            f"{TOPICS.name} is missing or unreadable: clients are answered that {len(without)} topics do not exist",
            path=path,
            next_step=f"restore {TOPICS.name}, or run `orbitlog doctor repair {store.root}`",
        )
    elif without:
        yield changes(
            "topic table",
            f"{TOPICS.name} lacks {len(without)} topics that have queues ({', '.join(without[:_GROUPS_NAMED])}):"
            " clients are answered that they do not exist",
            path=path,
            next_step=f"run `orbitlog doctor repair {store.root}`, or delete the queues if the topics were deleted",
        )


def offset_count(store: StoreFiles, file: OffsetsFile) -> int:
    """Return how many committed offsets a table has; 0 if it is missing or unreadable."""
    table = read_offsets(store.root, file)
    return 0 if table is None else sum(len(offsets) for key, offsets in table.offsets.items() if key.group)


def _group_count(store: StoreFiles) -> int:
    table = known_topics(store.root)
    return sum(topic.startswith(names.RETRY_PREFIX) for topic in table.topics) if table is not None else 0
