"""Config repair: replaces unreadable config files by their backups, or by what can be salvaged and inferred."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from orbitlog.doctor.repair.plan_journal import PlanJournal
from orbitlog.doctor.surveys.store_survey import queues_in_log, topics_without_config
from orbitlog.errors import FormatError
from orbitlog.formats import store_tree as tree
from orbitlog.formats.compat import Compat
from orbitlog.formats.java import utf8_encode
from orbitlog.formats.tables.config_files import config_codec
from orbitlog.formats.tables.offset_tables import CONSUMER_OFFSET, DELAY_OFFSET, LMQ_CONSUMER_OFFSET
from orbitlog.formats.tables.topic_config import TOPICS, DataVersion, TopicConfig, TopicTable
from orbitlog.storefiles.config_reading import known_topics, read_config
from orbitlog.storefiles.findings import Finding, FindingKind
from orbitlog.storefiles.store_files import StoreFiles

Queue = tuple[str, int]
_SALVAGED_BYTES_MAX = 64 * 1024 * 1024
# A table in braces, with at most one more pair inside: the attributes of a topic.
_OBJECT = re.compile(r"\{(?:[^{}]|\{[^{}]*\})*\}")
_OFFSETS = re.compile(r'"([^"\s]+@[^"\s]+)"\s*:\s*(\{[^{}]*\})')
_PAIR = re.compile(r'"?(\d{1,10})"?\s*:\s*(\d{1,19})\b(?=\s*[,}])')


def plan_config(
    journal: PlanJournal, store: StoreFiles, compat: Compat, findings: Sequence[Finding], queues: Iterable[Queue]
) -> None:
    """Plan to replace each config file that a finding is about, and to add topics and queues that only the log has."""
    topics_are_written = False
    needed = queues_in_log(queues)
    for finding in findings:
        path = Path(finding.path)
        if finding.kind == FindingKind.CONFIG_BACKUP_IN_USE:
            backup = path.with_name(path.name + tree.BACKUP_SUFFIX)
            journal.put_file(path, read_config(backup), "restored from its backup")
            # Topics that the backup lacks are added in the next round.
            topics_are_written |= path.name == TOPICS.name
            continue
        if finding.kind != FindingKind.CONFIG:
            continue
        made = rebuilt_config(path, store, compat, needed)
        if made is not None:
            journal.put_file(path, made, "rebuilt from its readable entries and from the queues")
            topics_are_written |= path.name == TOPICS.name
        else:
            # The backup as well: a Java broker does not start if both exist and are unreadable.
            for unreadable in (path, path.with_name(path.name + tree.BACKUP_SUFFIX)):
                if unreadable.exists():
                    journal.quarantine(unreadable, "is unreadable, and has no readable entry")
    without = topics_without_config(store)
    raised = [str(finding.topic) for finding in findings if finding.kind == FindingKind.QUEUE_COUNT]
    if not topics_are_written and (without or raised):
        table = known_topics(store.root) or TopicTable()
        target = store.root / tree.CONFIG / TOPICS.name
        why = "; ".join(
            f"{words} {', '.join(topics)}"
            for words, topics in (("adds", without), ("adds queues to", raised))
            if topics
        )
        journal.put_file(target, _encode_topics(table.topics, store, without, compat, needed), why)


def rebuilt_config(path: Path, store: StoreFiles, compat: Compat, needed: Mapping[str, int]) -> bytes | None:
    """Return new content for a file of config/; None if nothing can be salvaged."""
    text = read_config(path)[:_SALVAGED_BYTES_MAX].decode("utf-8", "replace")
    if path.name == TOPICS.name:
        saved = _salvaged_topics(text)
        return _encode_topics(saved, store, [topic for topic, _ in store.queues if topic not in saved], compat, needed)
    if path.name in (CONSUMER_OFFSET.name, LMQ_CONSUMER_OFFSET.name):
        entries = ",".join(f'"{key}":{value}' for key, value in _OFFSETS.findall(text))
        return _encoded(path.name, f'{{"offsetTable":{{{entries}}}}}', compat) if entries else None
    if path.name == DELAY_OFFSET.name:
        entries = ",".join(f"{level}:{value}" for level, value in _PAIR.findall(text) if 0 < int(level) <= 64)
        return _encoded(path.name, f'{{"offsetTable":{{{entries}}}}}', compat) if entries else None
    return None


def _encoded(name: str, text: str, compat: Compat) -> bytes | None:
    codec = config_codec(name)
    try:
        return codec.encode(codec.decode(utf8_encode(text)), compat)
    except FormatError:
        return None


def _salvaged_topics(text: str) -> dict[str, TopicConfig]:
    """Return the topics whose entries are complete in a damaged file."""
    saved: dict[str, TopicConfig] = {}
    for match in _OBJECT.finditer(text):
        if '"topicName"' not in match[0] or '"topicConfigTable"' in match[0]:
            continue
        try:
            table = TOPICS.decode(f'{{"topicConfigTable":{{"one":{match[0]}}}}}')
        except FormatError:
            continue
        saved |= {config.topic: config for config in table.topics.values()}
    return saved


def _encode_topics(
    known: Mapping[str, TopicConfig],
    store: StoreFiles,
    without: Iterable[str],
    compat: Compat,
    needed: Mapping[str, int],
) -> bytes:
    # Read queues only: the operator who reduced the topic decides about the number of write queues.
    topics = {
        topic: replace(config, read_queue_count=max(config.read_queue_count, needed.get(topic, 0)))
        for topic, config in known.items()
    }
    for topic in sorted(set(without)):
        count = 1 + max((queue_id for name, queue_id in store.queues if name == topic), default=0)
        count = max(count, needed.get(topic, 0))
        topics[topic] = TopicConfig(topic, count, count)
    modified_ms = max((segment.path.stat().st_mtime_ns // 1_000_000 for segment in store.segments), default=0)
    table = TopicTable(topics=topics, data_version=DataVersion(counter=len(topics), timestamp_ms=modified_ms))
    return config_codec(TOPICS.name).encode(table, compat)
