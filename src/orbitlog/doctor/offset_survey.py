"""Offsets of groups and of delay levels that no queue can have: told, and brought back between their queues' bounds.

A number below zero, or behind the end of a queue whose messages the log has, comes from damage, from a table that was
copied from another broker, or from a log that lost its tail. Queues of which the log has no message are not judged:
nobody knows how far they were.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from orbitlog.doctor.rebuild_plan import QueueEnds
from orbitlog.doctor.repair_journal import RepairJournal
from orbitlog.doctor.store_survey import is_readable, read_config
from orbitlog.doctor.store_use import is_in_use
from orbitlog.formats import names
from orbitlog.formats import store_tree as tree
from orbitlog.formats.compat import Compat
from orbitlog.formats.config_files import config_codec
from orbitlog.formats.offset_tables import CONSUMER_OFFSET, DELAY_OFFSET, ConsumerOffsets, DelayOffsets, TopicGroup
from orbitlog.store.findings import Finding
from orbitlog.store.store_files import StoreFiles

if TYPE_CHECKING:
    from orbitlog.doctor.examination import Examination

_FINDINGS_MAX = 100
T = TypeVar("T")
Ends = Mapping[tuple[str, int], QueueEnds]


def offset_findings(store: StoreFiles, ends: Ends) -> Iterator[Finding]:
    """Name offsets that cannot be; of very many only the first. A running broker's table is its own business."""
    if is_in_use(store):
        return
    committed = _table(store, CONSUMER_OFFSET.name, ConsumerOffsets)
    wrong = _wrong(committed, ends) if committed is not None else iter(())
    for key, queue_id, queue_offset, right in islice(wrong, _FINDINGS_MAX):
        whose = f"group {key.group} in queue {queue_id} of {key.topic}"
        yield _finding(store, CONSUMER_OFFSET.name, whose, (key.topic, queue_id), queue_offset, right)
    delays = _table(store, DELAY_OFFSET.name, DelayOffsets)
    for level, queue_offset, right in _wrong_levels(delays, ends) if delays is not None else ():
        queue = (names.SCHEDULE_TOPIC, level - 1)
        yield _finding(store, DELAY_OFFSET.name, f"delay level {level}", queue, queue_offset, right)


def _finding(  # noqa: PLR0917
    store: StoreFiles, name: str, whose: str, queue: tuple[str, int], queue_offset: int, right: int
) -> Finding:
    problem = f"{queue_offset} cannot be" if queue_offset < 0 else f"{queue_offset} lies behind its end, {right}"
    return Finding(
        "offset",
        str(store.root / tree.CONFIG / name),
        f"the offset of {whose}: {problem}",
        topic=queue[0],
        queue_id=queue[1],
        queue_offset=queue_offset,
    )


def plan_offsets(journal: RepairJournal, store: StoreFiles, compat: Compat, found: Examination) -> None:
    """Plan to write the table with each offset between the bounds of its queue: where a broker sends consumers, too."""
    if not any(finding.kind == "offset" for finding in found.findings):
        return
    ends, why = found.check.ends, "offsets lie between the bounds of their queues"
    table = _table(store, CONSUMER_OFFSET.name, ConsumerOffsets)
    offsets = {key: dict(queues) for key, queues in table.offsets.items()} if table is not None else {}
    if table is not None and (wrong := list(_wrong(table, ends))):
        for key, queue_id, _, right in wrong:
            offsets[key][queue_id] = right
        _plan_table(journal, store, compat, CONSUMER_OFFSET.name, replace(table, offsets=offsets), why)
    delays = _table(store, DELAY_OFFSET.name, DelayOffsets)
    if delays is not None and (levels := {level: right for level, _, right in _wrong_levels(delays, ends)}):
        made = replace(delays, offsets=dict(delays.offsets) | levels)
        _plan_table(journal, store, compat, DELAY_OFFSET.name, made, why)


def _plan_table(  # noqa: PLR0917
    journal: RepairJournal,
    store: StoreFiles,
    compat: Compat,
    name: str,
    table: ConsumerOffsets | DelayOffsets,
    why: str,
) -> None:
    journal.put_file(store.root / tree.CONFIG / name, config_codec(name).encode(table, compat), why)


def _table(store: StoreFiles, name: str, kind: type[T]) -> T | None:
    path = store.root / tree.CONFIG / name
    if not is_readable(path):
        return None
    table = config_codec(name).decode(read_config(path))
    assert isinstance(table, kind)
    return table


def _wrong_levels(table: DelayOffsets, ends: Ends) -> Iterator[tuple[int, int, int]]:
    """Yield delay level, its offset, and what it should be."""
    for level, queue_offset in table.offsets.items():
        bounds = ends.get((names.SCHEDULE_TOPIC, level - 1))
        if queue_offset < 0:
            yield level, queue_offset, bounds.first if bounds is not None else 0
        elif bounds is not None and queue_offset > bounds.next_offset:
            yield level, queue_offset, bounds.next_offset


def _wrong(table: ConsumerOffsets, ends: Ends) -> Iterator[tuple[TopicGroup, int, int, int]]:
    """Yield group, queue, its offset, and what it should be."""
    for key, queues in table.offsets.items():
        for queue_id, queue_offset in queues.items():
            bounds = ends.get((key.topic, queue_id))
            if queue_offset < 0:
                yield key, queue_id, queue_offset, bounds.first if bounds is not None else 0
            elif bounds is not None and queue_offset > bounds.next_offset:
                yield key, queue_id, queue_offset, bounds.next_offset
