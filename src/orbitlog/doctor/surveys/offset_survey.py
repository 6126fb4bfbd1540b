"""Offset survey: committed offsets of consumer groups and delay levels that are outside of their queues.

An offset below zero, or past the end of a queue with messages in the log, comes from damage, from a table that was
copied from another broker, or from a log that lost its tail. Queues without a message in the log are not judged:
their ends are unknown.

Consumers continue at the end. Pending messages must not be skipped: a delay level continues with the first message that
was not due when the log was last written to, and transaction checks start over, because op messages record the ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import TypeVar

from orbitlog.formats import names
from orbitlog.formats import store_tree as tree
from orbitlog.formats.derived.queue_entry import ENTRY_BYTES
from orbitlog.formats.java import LONG_MAX
from orbitlog.formats.tables.config_files import config_codec
from orbitlog.formats.tables.offset_tables import DELAY_OFFSET, ConsumerOffsets, DelayOffsets, TopicGroup
from orbitlog.jobs.rebuild.rebuild_plan import QueueEnds
from orbitlog.jobs.split_derivation import UNIT
from orbitlog.jobs.store_use import SHARED_USE, StoreUse
from orbitlog.kernels.arrays import np
from orbitlog.storefiles.config_reading import is_readable, read_config
from orbitlog.storefiles.findings import Finding, FindingKind
from orbitlog.storefiles.mapped_view import mapped_view
from orbitlog.storefiles.offset_files import offsets_file
from orbitlog.storefiles.store_files import OffsetFile, StoreFiles

_FINDINGS_MAX = 100
_SLACK_MS = 60_000
_NO_TIME_MS = 1 << 40
T = TypeVar("T")
Ends = Mapping[tuple[str, int], QueueEnds]


def offset_findings(store: StoreFiles, ends: Ends, last_ms: int, use: StoreUse = SHARED_USE) -> Iterator[Finding]:
    """Yield findings for invalid offsets, at most 100; none while a broker runs, which has newer ones in memory."""
    if use.is_in_use(store):
        return
    table_name = offsets_file(store.root).name
    committed = usable_table(store, table_name, ConsumerOffsets)
    wrong = wrong_offsets(committed, ends) if committed is not None else iter(())
    for key, queue_id, queue_offset, right in islice(wrong, _FINDINGS_MAX):
        whose = f"group {key.group} in queue {queue_id} of {key.topic}"
        yield _finding(store, table_name, whose, (key.topic, queue_id), queue_offset, right)
    delays = usable_table(store, DELAY_OFFSET.name, DelayOffsets)
    for level, queue_offset, right in wrong_levels(store, delays, ends, last_ms) if delays is not None else ():
        queue = (names.SCHEDULE_TOPIC, level - 1)
        yield _finding(store, DELAY_OFFSET.name, f"delay level {level}", queue, queue_offset, right)


def _finding(  # noqa: PLR0917
    store: StoreFiles, name: str, whose: str, queue: tuple[str, int], queue_offset: int, right: int
) -> Finding:
    problem = f"{queue_offset} is negative" if queue_offset < 0 else f"{queue_offset} is past its end"
    problem += f"; it continues at {right}"
    return Finding(
        FindingKind.OFFSET,
        str(store.root / tree.CONFIG / name),
        f"the offset of {whose}: {problem}",
        topic=queue[0],
        queue_id=queue[1],
        queue_offset=queue_offset,
    )


def usable_table(store: StoreFiles, name: str, kind: type[T]) -> T | None:
    path = store.root / tree.CONFIG / name
    if not is_readable(path):
        return None
    table = config_codec(name).decode(read_config(path))
    assert isinstance(table, kind)
    return table


def wrong_levels(store: StoreFiles, table: DelayOffsets, ends: Ends, last_ms: int) -> Iterator[tuple[int, int, int]]:
    """Yield delay level, its offset, and what it should be."""
    for level, queue_offset in table.offsets.items():
        queue = (names.SCHEDULE_TOPIC, level - 1)
        bounds = ends.get(queue)
        if queue_offset < 0:
            yield level, queue_offset, bounds.first if bounds is not None else 0
        elif bounds is not None and queue_offset > bounds.next_offset:
            waiting = _first_waiting(store.queues.get(queue, ()), bounds.first, last_ms)
            yield level, queue_offset, min(waiting, bounds.next_offset)


def _first_waiting(files: Iterable[OffsetFile], first: int, last_ms: int) -> int:
    """Return the queue offset of the first message of a delay level that cannot have been delivered.

    What is delivered is appended to the log: it is not due later than the last message there was stored.
    """
    for file in files:
        with mapped_view(file.path) as view:
            units = np.frombuffer(view, UNIT, len(view) // ENTRY_BYTES)
            due_ms, sizes = units["tags_code"].astype(np.int64), units["size_bytes"].astype(np.int64)
            del units
        queue_offsets = file.base // ENTRY_BYTES + np.arange(len(sizes))
        has_due_time = due_ms > _NO_TIME_MS  # else the due time is unknown
        waits = (sizes > 0) & (queue_offsets >= first) & (~has_due_time | (due_ms > last_ms - _SLACK_MS))
        if waits.any():
            return int(queue_offsets[waits][0])
    return LONG_MAX


def wrong_offsets(table: ConsumerOffsets, ends: Ends) -> Iterator[tuple[TopicGroup, int, int, int]]:
    """Yield group, queue, its offset, and what it should be."""
    checks = {key: queues for key, queues in table.offsets.items() if _is_check(key)}
    is_check_wrong = any(_is_past_end(key, queue, ends) for key, queues in checks.items() for queue in queues.items())
    for key, queues in table.offsets.items():
        for queue_id, queue_offset in queues.items():
            bounds = ends.get((key.topic, queue_id))
            first, end = (bounds.first, bounds.next_offset) if bounds is not None else (0, LONG_MAX)
            if queue_offset < 0 or (_is_check(key) and is_check_wrong and queue_offset != first):
                yield key, queue_id, queue_offset, first
            elif queue_offset > end:
                yield key, queue_id, queue_offset, end


def _is_check(key: TopicGroup) -> bool:
    """Return whether an offset is one of the two cursors of transaction checks, which belong together."""
    return key.group == names.TRANSACTION_GROUP and key.topic in (names.HALF_TOPIC, names.OP_HALF_TOPIC)


def _is_past_end(key: TopicGroup, queue: tuple[int, int], ends: Ends) -> bool:
    bounds = ends.get((key.topic, queue[0]))
    return bounds is not None and queue[1] > bounds.next_offset
