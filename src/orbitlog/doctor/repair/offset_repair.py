"""Offset repair: sets offsets of consumer groups and delay levels back between the bounds of their queues."""

from __future__ import annotations

from dataclasses import replace

from orbitlog.doctor.examination import Examination
from orbitlog.doctor.repair.plan_journal import PlanJournal
from orbitlog.doctor.surveys.offset_survey import usable_table, wrong_levels, wrong_offsets
from orbitlog.formats import store_tree as tree
from orbitlog.formats.compat import Compat
from orbitlog.formats.tables.config_files import config_codec
from orbitlog.formats.tables.offset_tables import DELAY_OFFSET, ConsumerOffsets, DelayOffsets
from orbitlog.storefiles.findings import FindingKind
from orbitlog.storefiles.offset_files import offsets_file
from orbitlog.storefiles.store_files import StoreFiles

_WHY = "sets offsets back between the bounds of their queues"


def plan_offsets(journal: PlanJournal, store: StoreFiles, compat: Compat, found: Examination) -> None:
    """Plan to write the tables with each offset between the bounds of its queue, where brokers send consumers to."""
    if not any(finding.kind is FindingKind.OFFSET for finding in found.findings):
        return
    ends = found.check.ends
    table_name = offsets_file(store.root).name
    table = usable_table(store, table_name, ConsumerOffsets)
    offsets = {key: dict(queues) for key, queues in table.offsets.items()} if table is not None else {}
    if table is not None and (wrong := list(wrong_offsets(table, ends))):
        for key, queue_id, _, right in wrong:
            offsets[key][queue_id] = right
        _plan_table(journal, store, compat, table_name, replace(table, offsets=offsets))
    delays = usable_table(store, DELAY_OFFSET.name, DelayOffsets)
    if delays is not None and (levels := list(wrong_levels(store, delays, ends, found.check.last_stored_ms))):
        right_offsets = dict(delays.offsets) | {level: right for level, _, right in levels}
        _plan_table(journal, store, compat, DELAY_OFFSET.name, replace(delays, offsets=right_offsets))


def _plan_table(
    journal: PlanJournal, store: StoreFiles, compat: Compat, name: str, table: ConsumerOffsets | DelayOffsets
) -> None:
    journal.put_file(store.root / tree.CONFIG / name, config_codec(name).encode(table, compat), _WHY)
