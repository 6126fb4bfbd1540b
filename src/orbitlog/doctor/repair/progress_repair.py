"""Progress repair: corrects `timercheck` and the files in which Orbitlog's broker notes its deliveries."""

from __future__ import annotations

from dataclasses import replace

from orbitlog.doctor.repair.plan_journal import PlanJournal
from orbitlog.doctor.surveys.progress_survey import Ends, latest_possible_ms, repaired_files, wrong_timer_offsets
from orbitlog.doctor.surveys.timer_survey import timer_checkpoint
from orbitlog.formats import names
from orbitlog.formats import store_tree as tree
from orbitlog.formats.compat import Compat
from orbitlog.formats.derived.timer_checkpoint import TIMER_CHECKPOINT_FILE
from orbitlog.formats.tables.config_files import config_codec
from orbitlog.storefiles.store_files import StoreFiles

_WHY = "sets positions of delivery back into the range that the log allows"


def plan_progress(journal: PlanJournal, store: StoreFiles, compat: Compat, ends: Ends, last_ms: int) -> None:
    """Plan to write each file with positions and times that are possible."""
    for name, repaired, _ in repaired_files(store, ends, latest_possible_ms(last_ms)):
        if repaired is not None:
            journal.put_file(store.root / tree.CONFIG / name, config_codec(name).encode(repaired, compat), _WHY)
    checkpoint = timer_checkpoint(store)
    if checkpoint is not None and any(wrong_timer_offsets(checkpoint, ends)):
        bounds = ends.get((names.TIMER_TOPIC, 0))
        low, high = (bounds.first, bounds.next_offset) if bounds is not None else (0, checkpoint.last_queue_offset)
        last, master = (
            max(min(noted, high), low) for noted in (checkpoint.last_queue_offset, checkpoint.master_queue_offset)
        )
        right = replace(checkpoint, last_queue_offset=max(last, 0), master_queue_offset=max(master, 0))
        data = config_codec(TIMER_CHECKPOINT_FILE).encode(right, compat)
        journal.put_file(store.root / tree.CONFIG / TIMER_CHECKPOINT_FILE, data, _WHY)
