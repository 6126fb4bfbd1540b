"""Store explanation: versions, topics, times and pending messages, from little more than queues and config.

Topic sizes are sums over queue units, and over the messages after the last one that a queue has a unit for: only that
part of the log is read. Growth is that of the log between its first and last record.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from orbitlog.errors import FormatError
from orbitlog.formats import names
from orbitlog.formats import store_tree as tree
from orbitlog.formats.delay_levels import DelayLevels
from orbitlog.formats.derived.derive import DeriveRules
from orbitlog.formats.derived.queue_entry import ENTRY_BYTES
from orbitlog.formats.derived.timer_checkpoint import TIMER_CHECKPOINT_FILE, TimerCheckpoint
from orbitlog.formats.java import INT_MAX
from orbitlog.formats.records.log_format import read_log_at
from orbitlog.formats.records.message import Message
from orbitlog.formats.records.message_scan import read_at
from orbitlog.formats.tables.config_files import config_codec
from orbitlog.formats.tables.offset_tables import DELAY_OFFSET, ConsumerOffsets, DelayOffsets, TopicGroup
from orbitlog.jobs.log_splits import LogSplit, plan_splits
from orbitlog.jobs.split_derivation import UNIT, derive_split
from orbitlog.kernels.arrays import np
from orbitlog.settings.retention_policy import RetentionPolicy
from orbitlog.settings.store_settings import StoreGeometry, StoreSettings
from orbitlog.storefiles.config_reading import read_config, unread_tables
from orbitlog.storefiles.inferred_geometry import robust_geometry
from orbitlog.storefiles.inferred_rules import sampled_compat
from orbitlog.storefiles.mapped_view import mapped_view, written_until
from orbitlog.storefiles.offset_files import offsets_file
from orbitlog.storefiles.rocksdb.databases import refuse_without_binding
from orbitlog.storefiles.rocksdb.queue_export import with_queue_files
from orbitlog.storefiles.store_contents import IN_ROCKSDB, READABLE, refuse_reading
from orbitlog.storefiles.store_files import OffsetFile, StoreFiles, find_store_files
from orbitlog.storefiles.store_inference import infer_rules, signs_of_5x
from orbitlog.storefiles.store_log import committed_end, uncommitted_tail

_DAY_MS = 86_400_000
_SIGNS_MAX = 3


@dataclass(slots=True)
class TopicSize:
    """A topic according to its queues."""

    topic: str
    queues: int = 0
    messages: int = 0
    stored_bytes: int = 0


@dataclass(slots=True)
class Explanation:
    """One screen about one store."""

    store: str
    compat: str
    signs: list[str]
    segment_bytes: int
    segments: int
    log_start: int
    log_end: int
    first_ms: int | None = None
    last_ms: int | None = None
    store_hosts: list[str] = field(default_factory=list)
    was_closed: bool = True
    topics: list[TopicSize] = field(default_factory=list)
    not_in_queues: int = 0
    """Messages after the last one that a queue has a unit for; `topics` has them as well."""
    index_files: int = 0
    retention: RetentionPolicy = field(default_factory=RetentionPolicy)
    groups: int = 0
    pending_delays: dict[int, int] = field(default_factory=dict)
    pending_transactions: int = 0
    pending_timers: int = 0
    dledger: str | None = None
    """The DLedger directory that the log is in, or continues in, and entries after the committed one."""

    @property
    def log_bytes(self) -> int:
        return self.log_end - self.log_start

    @property
    def bytes_per_day(self) -> int | None:
        """Growth of the log in bytes a day between its first and last message; None if both have the same time."""
        if self.first_ms is None or self.last_ms is None or self.last_ms <= self.first_ms:
            return None
        return int(self.log_bytes * _DAY_MS / (self.last_ms - self.first_ms))

    def as_object(self) -> dict[str, Any]:
        """Return the JSON object that the command prints."""
        return {
            "store": self.store,
            "compat": self.compat,
            "signs": self.signs,
            "segmentBytes": self.segment_bytes,
            "segments": self.segments,
            "logStart": self.log_start,
            "logEnd": self.log_end,
            "firstMs": self.first_ms,
            "lastMs": self.last_ms,
            "storeHosts": self.store_hosts,
            "wasClosed": self.was_closed,
            "bytesPerDay": self.bytes_per_day,
            "retentionHours": self.retention.reserved_hours,
            "indexFiles": self.index_files,
            "groups": self.groups,
            "pendingDelays": {str(level): count for level, count in self.pending_delays.items()},
            "pendingTransactions": self.pending_transactions,
            "pendingTimers": self.pending_timers,
            "dledger": self.dledger,
            "notInQueues": self.not_in_queues,
            "topics": [
                {"topic": one.topic, "queues": one.queues, "messages": one.messages, "storedBytes": one.stored_bytes}
                for one in self.topics
            ],
        }


def explain(root: Path, settings: StoreSettings | None = None) -> Explanation:
    """Explain a store; reads its queues, and the log after the last message that they have."""
    settings = settings or StoreSettings()
    store = find_store_files(root, settings)
    refuse_reading(root, except_for=READABLE | IN_ROCKSDB)
    for directory in unread_tables(root):
        refuse_without_binding(directory)
    geometry = robust_geometry(store, settings)
    with with_queue_files(store, geometry.queue_file_bytes) as (readable, _):
        return _explained(readable, geometry, settings)


def _explained(store: StoreFiles, geometry: StoreGeometry, settings: StoreSettings) -> Explanation:
    found = Explanation(
        str(store.root),
        sampled_compat(store, settings).name,
        list(dict.fromkeys(signs_of_5x(store)))[:_SIGNS_MAX],
        geometry.segment_bytes,
        len(store.segments),
        store.segments[0].base if store.segments else 0,
        store.segments[0].base if store.segments else 0,
        was_closed=store.abort is None,
        index_files=len(store.index_files),
        retention=settings.retention,
    )
    _explain_log(found, store)
    end = committed_end(store)
    _explain_dledger(found, store, end)
    rules = infer_rules(store, settings)
    ends = _explain_topics(found, store, list(_splits(store, end)), geometry.queue_file_bytes, rules)
    _explain_pending(found, store, ends, rules.delay_levels)
    return found


def _explain_log(found: Explanation, store: StoreFiles) -> None:
    for segment in store.segments:
        with mapped_view(segment.path) as view:
            first = read_log_at(view, 0, segment.log_format, base_physical_offset=segment.base, check_crc=False)
        if isinstance(first, Message):
            found.first_ms = first.store_timestamp_ms if found.first_ms is None else found.first_ms
            found.last_ms = first.store_timestamp_ms
            found.log_end = first.physical_offset + first.size_bytes
            host = str(first.store_host)
            if host not in found.store_hosts:
                found.store_hosts.append(host)


def _splits(store: StoreFiles, end: int | None) -> list[LogSplit]:
    """Return one split for each segment, each of the size that its file has: those of DLedger may have another."""
    size_bytes = max((segment.size_bytes for segment in store.segments), default=0)
    return plan_splits(store, size_bytes, split_bytes=max(size_bytes, 1), until=end)


def _explain_dledger(found: Explanation, store: StoreFiles, end: int | None) -> None:
    tail = uncommitted_tail(store, end)
    found.dledger = store.dledger_member if tail is None else f"{store.dledger_member}; not read: {tail}"
    files_end = max((segment.base + segment.size_bytes for segment in store.segments), default=0)
    if end is not None and end > files_end:
        found.dledger = (
            f"{store.dledger_member}; the log ends before its committed end, physical offset {end}: files are missing"
        )


def _explain_topics(
    found: Explanation, store: StoreFiles, splits: Sequence[LogSplit], queue_file_bytes: int, rules: DeriveRules
) -> dict[tuple[str, int], int]:
    """Sum up the units of each queue, and those that the end of the log would give; returns the end offset of each."""
    sizes: dict[tuple[str, int], TopicSize] = {key: TopicSize(key[0], queues=1) for key in store.queues}
    ends: dict[tuple[str, int], int] = {}
    last: tuple[int, int] = (0, 0)
    for key, files in store.queues.items():
        for file in files:
            for count, size_bytes, end, physical_offset, record_bytes in _units_of(file, found.log_start):
                sizes[key].messages += count
                sizes[key].stored_bytes += size_bytes
                ends[key] = max(ends.get(key, 0), end)
                last = max(last, (physical_offset, record_bytes))
    for key, count, size_bytes, end, unit in _units_after(sum(last), splits, queue_file_bytes, rules):
        size = sizes.setdefault(key, TopicSize(key[0], queues=1))
        size.messages += count
        size.stored_bytes += size_bytes
        ends[key] = max(ends.get(key, 0), end)
        last = max(last, unit)
        found.not_in_queues += count
    topics: dict[str, TopicSize] = {}
    for (name, _), size in sizes.items():
        topic = topics.setdefault(name, TopicSize(name))
        topic.queues += size.queues
        topic.messages += size.messages
        topic.stored_bytes += size.stored_bytes
    found.topics = sorted(topics.values(), key=lambda one: (-one.stored_bytes, one.topic))
    _explain_last(found, store, last)
    return ends


def _units_after(
    start: int, splits: Sequence[LogSplit], queue_file_bytes: int, rules: DeriveRules
) -> Iterator[tuple[tuple[str, int], int, int, int, tuple[int, int]]]:
    """Yield units of the log from a physical offset on: queue, count, bytes, end offset, and the last of them."""
    for split in splits:
        first = max(start - split.base, 0)
        if first >= split.stop:
            continue
        derivation, units, _ = derive_split(
            replace(split, start=first, first=first), rules, queue_file_bytes=queue_file_bytes, check_crc=False
        )
        for one in derivation.slices:
            sizes = units["size_bytes"][one.place : one.place + one.unit_count]
            last = one.last_physical_offset, int(sizes[-1])
            yield derivation.queues[one.queue], one.unit_count, int(sizes.sum()), one.first + one.unit_count, last


def _units_of(file: OffsetFile, log_start: int) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield messages and bytes of a queue file's units, their end offset, and offset and size of the last."""
    end = written_until(file.path)
    with mapped_view(file.path) as view:
        units = np.frombuffer(view, UNIT, min(end, len(view)) // ENTRY_BYTES)
        offsets, sizes = units["physical_offset"].astype(np.int64), units["size_bytes"].astype(np.int64)
        del units
    is_unit = (sizes > 0) & (sizes < INT_MAX)
    rows = np.flatnonzero(is_unit)
    if len(rows):
        kept = is_unit & (offsets >= log_start)
        row = int(rows[-1])
        behind = file.base // ENTRY_BYTES + row + 1
        yield int(kept.sum()), int(sizes[kept].sum()), behind, int(offsets[row]), int(sizes[row])


def _explain_last(found: Explanation, store: StoreFiles, last: tuple[int, int]) -> None:
    """Set the end of the store's time range from the last message that a queue points to."""
    physical_offset, size_bytes = last
    for segment in store.segments:
        if segment.base <= physical_offset < segment.base + segment.size_bytes:
            with mapped_view(segment.path) as view:
                message = read_at(
                    view, physical_offset - segment.base, base_physical_offset=segment.base, check_crc=False
                )
            if isinstance(message, Message):
                found.last_ms = message.store_timestamp_ms
                found.log_end = max(found.log_end, physical_offset + size_bytes)


def _explain_pending(
    found: Explanation, store: StoreFiles, ends: dict[tuple[str, int], int], levels: DelayLevels
) -> None:
    offsets = _config(store, offsets_file(store.root).name)
    consumed = offsets.offsets if isinstance(offsets, ConsumerOffsets) else {}
    found.groups = len({key.group for key in consumed if key.group})
    delays = _config(store, DELAY_OFFSET.name)
    delivered = delays.offsets if isinstance(delays, DelayOffsets) else {}
    for level in range(1, levels.max_level + 1):
        waiting = ends.get((names.SCHEDULE_TOPIC, level - 1), 0) - delivered.get(level, 0)
        if waiting > 0:
            found.pending_delays[level] = waiting
    half = consumed.get(TopicGroup(names.HALF_TOPIC, names.TRANSACTION_GROUP), {})
    found.pending_transactions = max(ends.get((names.HALF_TOPIC, 0), 0) - half.get(0, 0), 0)
    timer = _config(store, TIMER_CHECKPOINT_FILE)
    taken_in = timer.last_queue_offset if isinstance(timer, TimerCheckpoint) else 0
    found.pending_timers = max(ends.get((names.TIMER_TOPIC, 0), 0) - taken_in, 0)


def _config(store: StoreFiles, name: str) -> object | None:
    raw = read_config(store.root / tree.CONFIG / name)
    try:
        return config_codec(name).decode(raw) if raw else None
    except FormatError:
        return None
