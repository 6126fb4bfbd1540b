"""Store survey: findings about config, topics, timer files and foreign entries, without a look at the log."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from orbitlog.doctor.surveys.pending_timers import waiting_findings
from orbitlog.doctor.surveys.timer_survey import timer_findings
from orbitlog.formats import names
from orbitlog.formats import store_tree as tree
from orbitlog.formats.derived.store_state import CONFIRMED_FILE, STATE_FILE
from orbitlog.formats.derived.timer_checkpoint import TIMER_CHECKPOINT_FILE
from orbitlog.formats.tables.config_files import CONFIG_CODECS, config_codec
from orbitlog.formats.tables.offset_tables import CONSUMER_OFFSET, ConsumerOffsets
from orbitlog.formats.tables.topic_config import TOPICS
from orbitlog.jobs.rebuild.rebuild_plan import QueueEnds
from orbitlog.storefiles.config_reading import (
    CONFIG_TABLES,
    backup_of,
    config_problem,
    is_readable,
    known_topics,
    read_config,
    stored_table,
    unread_tables,
)
from orbitlog.storefiles.findings import Finding, FindingKind
from orbitlog.storefiles.offset_files import offsets_file
from orbitlog.storefiles.rocksdb.databases import INSTALL_ADVICE
from orbitlog.storefiles.store_contents import COMPACTION_LOG
from orbitlog.storefiles.store_files import ROOT_ENTRIES, StoreFiles

# Brokers create the queues of these by themselves, with or without an entry in topics.json.
_TOPICS_WITHOUT_CONFIG = (names.LMQ_PREFIX, names.SYSTEM_TOPIC_PREFIX)
# Foreign entries that keep brokers from starting, by directory and depth.
_FOREIGN_KINDS = {(name, 1): FindingKind.FOREIGN_SEGMENT for name in ROOT_ENTRIES} | {
    (tree.COMMITLOG, 2): FindingKind.FOREIGN_SEGMENT,
    (tree.CONSUMEQUEUE, 4): FindingKind.FOREIGN_SEGMENT,
    (tree.TIMER_LOG, 2): FindingKind.FOREIGN_SEGMENT,
    (tree.LOCK, 1): FindingKind.LOCK,
}
QUEUES_MAX = 1 << 16  # more than any topic has: a queue id above is damage
_LINKS_MATTER = (
    tree.COMMITLOG,
    tree.CONSUMEQUEUE,
    tree.INDEX,
    tree.CONFIG,
    tree.CHECKPOINT,
    tree.TIMER_LOG,
    tree.TIMER_WHEEL,
)


def survey(store: StoreFiles) -> list[Finding]:
    """Return the findings from names, sizes and small files."""
    return [
        *config_findings(store.root),
        *_topic_findings(store),
        *_progress_findings(store.root),
        *timer_findings(store),
        *waiting_findings(store),
        *_foreign_findings(store),
        *_unchecked_findings(store),
        *_queue_id_findings(store),
        *_own_file_findings(store),
        *_abort_findings(store),
    ]


def config_findings(root: Path) -> Iterator[Finding]:
    """Yield findings for unreadable config files; the backup decides about the severity."""
    for name in sorted(CONFIG_CODECS):
        main, backup = root / tree.CONFIG / name, root / tree.CONFIG / (name + tree.BACKUP_SUFFIX)
        if not main.exists() and not backup.exists():
            continue
        # timercheck is written in place, and brokers do not look for a backup of it.
        backup_is_good = is_readable(backup) and name != TIMER_CHECKPOINT_FILE
        if is_readable(main):
            if backup.exists() and not backup_is_good and read_config(backup):
                yield Finding(FindingKind.CONFIG_NOTE, str(backup), "the backup is unreadable")
            continue
        if main.is_file() and not read_config(main) and not backup.exists() and name not in CONFIG_TABLES:
            continue  # a new one
        problem = _why_unread(main)
        if backup_is_good:
            # Java renames the old file before the new one: a kill in between leaves the backup alone.
            was_killed = not os.path.lexists(main) and os.path.lexists(root / tree.ABORT)
            kind = FindingKind.CONFIG_BACKUP_READ if was_killed else FindingKind.CONFIG_BACKUP_IN_USE
            yield Finding(kind, str(main), f"{problem}; its backup is readable")
        else:
            yield Finding(FindingKind.CONFIG, str(main), f"{problem}, without a readable backup")


def _why_unread(path: Path) -> str:
    if not path.is_file():
        return "is not a file" if path.exists() else "is missing"
    return config_problem(path) if read_config(path) else "is empty"


def topics_without_config(store: StoreFiles) -> list[str]:
    """Return topics with queues and without an entry in topics.json, except those that brokers add by themselves."""
    table = known_topics(store.root)
    # Brokers register a topic under the name that its entry has, not under the entry's key.
    known = {topic for topic, entry in table.topics.items() if topic == entry.topic} if table is not None else set()
    topics = {topic for (topic, _), files in store.queues.items() if files}
    return sorted(
        topic
        for topic in topics - known
        if not topic.startswith(_TOPICS_WITHOUT_CONFIG) and not names.is_system_topic(topic)
    )


def queues_in_log(queues: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Return the number of queues that each topic needs for the messages of the log, without brokers' own topics."""
    needed: dict[str, int] = {}
    for topic, queue_id in queues:
        is_brokers = topic.startswith(_TOPICS_WITHOUT_CONFIG) or names.is_system_topic(topic)
        if not is_brokers and 0 <= queue_id < QUEUES_MAX:
            needed[topic] = max(needed.get(topic, 0), queue_id + 1)
    return needed


def queue_count_findings(store: StoreFiles, ends: Mapping[tuple[str, int], QueueEnds]) -> Iterator[Finding]:
    """Yield findings for topics with fewer read queues than the log has messages for.

    Operators reduce the queues of a topic after consumers have emptied them: then the finding is a note.
    """
    table = known_topics(store.root)
    for topic, needed in sorted(queues_in_log(ends).items()) if table is not None else ():
        known = table.topics.get(topic) if table is not None else None
        if known is None or known.read_queue_count >= needed:
            continue
        reason = f"has {known.read_queue_count} queues to read for {topic}, the log has messages up to {needed}"
        hidden = {queue_id: end.next_offset for (name, queue_id), end in ends.items() if name == topic}
        hidden = {queue_id: end for queue_id, end in hidden.items() if queue_id >= known.read_queue_count}
        kind = FindingKind.QUEUE_COUNT_CONSUMED if _is_consumed(store.root, topic, hidden) else FindingKind.QUEUE_COUNT
        yield Finding(kind, str(store.root / tree.CONFIG / TOPICS.name), reason, topic=topic)


def _is_consumed(root: Path, topic: str, ends: Mapping[int, int]) -> bool:
    """Return whether the topic has consumer groups, and each of them has consumed the given queues."""
    path = root / tree.CONFIG / CONSUMER_OFFSET.name
    table = config_codec(path.name).decode(read_config(path)) if is_readable(path) else None
    offsets = table.offsets.items() if isinstance(table, ConsumerOffsets) else ()
    groups = [queues for key, queues in offsets if key.topic == topic]
    return bool(groups) and all(queues.get(queue_id, 0) >= end for queues in groups for queue_id, end in ends.items())


def _topic_findings(store: StoreFiles) -> Iterator[Finding]:
    without = topics_without_config(store)
    topics_path = store.root / tree.CONFIG / TOPICS.name
    if without and not topics_path.exists() and known_topics(store.root) is None:
        yield Finding(
            FindingKind.CONFIG, str(topics_path), f"is missing, though there are queues of {len(without)} topics"
        )
        return
    for topic in without:
        path = store.root / tree.CONSUMEQUEUE / topic
        yield Finding(FindingKind.TOPIC, str(path), "topics.json has no entry for this topic", topic=topic)


def _progress_findings(root: Path) -> Iterator[Finding]:
    """Yield a finding if the table of committed offsets is missing, though retry topics show that there were groups."""
    path = root / tree.CONFIG / offsets_file(root).name
    table = known_topics(root)
    if path.exists() or backup_of(path).exists() or stored_table(path) is not None or table is None:
        return
    groups = sum(topic.startswith(names.RETRY_PREFIX) for topic in table.topics)
    if groups:
        reason = f"is missing, and so is its backup, though {groups} consumer groups were here"
        yield Finding(FindingKind.PROGRESS_UNKNOWN, str(path), reason)


def _foreign_findings(store: StoreFiles) -> Iterator[Finding]:
    for entry in store.foreign:
        is_below = entry.path.is_relative_to(store.root)
        # In a CommitLog directory outside the root an entry is what it would be in commitlog/.
        parts = entry.path.relative_to(store.root).parts if is_below else (tree.COMMITLOG, entry.path.name)
        if parts[0] in _LINKS_MATTER and entry.path.is_symlink() and entry.path.exists():
            # Its target is a part of the store that was not checked, and must not be taken for missing.
            yield Finding(FindingKind.LINK, str(entry.path), entry.reason)
            continue
        kind = _FOREIGN_KINDS.get((parts[0], len(parts)), FindingKind.LAYOUT)
        if parts[0] == tree.INDEX and len(parts) == 2 and tree.parse_index_file_name(parts[1]) is not None:
            kind = FindingKind.FOREIGN_SEGMENT  # other names in this directory are ignored
        if kind is FindingKind.LAYOUT and len(parts) == 1 and entry.path.is_dir() and any(entry.path.iterdir()):
            # A store of another kind for example: brokers may need it.
            yield Finding(FindingKind.UNCHECKED, str(entry.path), "is a directory that Orbitlog does not read")
        else:
            yield Finding(kind, str(entry.path), entry.reason)


def _unchecked_findings(store: StoreFiles) -> Iterator[Finding]:
    """Yield findings for batch queues, compacted messages and tables in RocksDB that were not read."""
    for directory in unread_tables(store.root):
        yield Finding(FindingKind.UNCHECKED, str(directory), f"has tables in RocksDB, not read: {INSTALL_ADVICE}")
    for topic in sorted({topic for topic, _ in store.batch_queues}):
        path = store.root / tree.BATCH_CONSUMEQUEUE / topic
        yield Finding(FindingKind.UNCHECKED, str(path), "is a batch queue, which Orbitlog does not read", topic=topic)

    compacted = store.root / COMPACTION_LOG
    for directory in sorted(compacted.iterdir()) if compacted.is_dir() else ():
        reason = "has messages of a compacted topic, which Orbitlog does not read"
        yield Finding(FindingKind.UNCHECKED, str(directory), reason, topic=directory.name)


def _queue_id_findings(store: StoreFiles) -> Iterator[Finding]:
    """Yield findings for empty directories of invalid queue ids; files in others are compared with the log."""
    for (topic, queue_id), files in store.queues.items():
        if not 0 <= queue_id < QUEUES_MAX and not files:
            path = store.root / tree.CONSUMEQUEUE / topic / str(queue_id)
            yield Finding(FindingKind.LAYOUT, str(path), "is empty, and not a valid queue id")


def _own_file_findings(store: StoreFiles) -> Iterator[Finding]:
    """Yield findings for entries that have the names of Orbitlog's own files, and are not files."""
    for name in (STATE_FILE, CONFIRMED_FILE):
        path = store.root / name
        if os.path.lexists(path) and not path.is_file():
            yield Finding(FindingKind.FOREIGN_SEGMENT, str(path), "is not a file: Orbitlog's broker does not start")


def _abort_findings(store: StoreFiles) -> Iterator[Finding]:
    if store.abort is not None:
        yield Finding(FindingKind.ABORT, str(store.abort.path), "exists: a broker is running, or was killed")
