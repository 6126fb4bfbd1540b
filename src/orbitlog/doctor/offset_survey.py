"""Committed offsets that no queue can have: told, and brought back between the bounds of their queues.

A number below zero, or behind the end of a queue whose messages the log has, comes from damage, from a table that was
copied from another broker, or from a log that lost its tail. Queues of which the log has no message are not judged:
nobody knows how far they were.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from orbitlog.doctor.rebuild_plan import QueueEnds
from orbitlog.doctor.repair_journal import RepairJournal
from orbitlog.doctor.store_survey import is_readable, read_config
from orbitlog.doctor.store_use import is_in_use
from orbitlog.formats import store_tree as tree
from orbitlog.formats.compat import Compat
from orbitlog.formats.config_files import config_codec
from orbitlog.formats.offset_tables import CONSUMER_OFFSET, ConsumerOffsets, TopicGroup
from orbitlog.store.findings import Finding
from orbitlog.store.store_files import StoreFiles

if TYPE_CHECKING:
    from orbitlog.doctor.examination import Examination

_FINDINGS_MAX = 100
Ends = Mapping[tuple[str, int], QueueEnds]


def offset_findings(store: StoreFiles, ends: Ends) -> Iterator[Finding]:
    """Name offsets that cannot be; of very many only the first. A running broker's table is its own business."""
    table = None if is_in_use(store) else _table(store)
    if table is None:
        return
    path = str(store.root / tree.CONFIG / CONSUMER_OFFSET.name)
    for number, (key, queue_id, queue_offset, right) in enumerate(_wrong(table, ends)):
        if number == _FINDINGS_MAX:
            return
        problem = f"{queue_offset} cannot be" if queue_offset < 0 else f"{queue_offset} lies behind its end, {right}"
        reason = f"the offset of group {key.group} in queue {queue_id} of {key.topic}: {problem}"
        yield Finding("offset", path, reason, topic=key.topic, queue_id=queue_id, queue_offset=queue_offset)


def plan_offsets(journal: RepairJournal, store: StoreFiles, compat: Compat, found: Examination) -> None:
    """Plan to write the table with each offset between the bounds of its queue: where a broker sends consumers, too."""
    if not any(finding.kind == "offset" for finding in found.findings):
        return
    table = _table(store)
    if table is None:
        return
    offsets = {key: dict(queues) for key, queues in table.offsets.items()}
    for key, queue_id, _, right in _wrong(table, found.check.ends):
        offsets[key][queue_id] = right
    target = store.root / tree.CONFIG / CONSUMER_OFFSET.name
    made = config_codec(CONSUMER_OFFSET.name).encode(replace(table, offsets=offsets), compat)
    journal.put_file(target, made, "offsets lie between the bounds of their queues")


def _table(store: StoreFiles) -> ConsumerOffsets | None:
    path = store.root / tree.CONFIG / CONSUMER_OFFSET.name
    if not is_readable(path):
        return None
    table = config_codec(path.name).decode(read_config(path))
    assert isinstance(table, ConsumerOffsets)
    return table


def _wrong(table: ConsumerOffsets, ends: Ends) -> Iterator[tuple[TopicGroup, int, int, int]]:
    """Yield group, queue, its offset, and what it should be."""
    for key, queues in table.offsets.items():
        for queue_id, queue_offset in queues.items():
            bounds = ends.get((key.topic, queue_id))
            if queue_offset < 0:
                yield key, queue_id, queue_offset, bounds.first if bounds is not None else 0
            elif bounds is not None and queue_offset > bounds.next_offset:
                yield key, queue_id, queue_offset, bounds.next_offset
