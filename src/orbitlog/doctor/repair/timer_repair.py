"""Timer repair: quarantines timer files of 5.x, which brokers rebuild.

Pending messages are in the log, under the timer topic; no other file records which of them were delivered. So a repair
quarantines the files, and a Java broker reads that topic from its beginning: delivered messages are delivered once
more, and none is lost. The wheel alone is less: brokers rebuild it from the timer log.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from orbitlog.doctor.repair.plan_journal import PlanJournal
from orbitlog.doctor.surveys.timer_survey import is_wheel_rebuilt, timer_checkpoint
from orbitlog.formats import store_tree as tree
from orbitlog.formats.derived.timer_checkpoint import TIMER_CHECKPOINT_FILE
from orbitlog.storefiles.findings import Finding
from orbitlog.storefiles.store_files import StoreFiles


def plan_timers(journal: PlanJournal, store: StoreFiles, findings: Sequence[Finding]) -> None:
    """Quarantine the wheel, which brokers rebuild from the timer log, or all files, which they rebuild from the log."""
    wheel = store.root / tree.TIMER_WHEEL
    if all(finding.path == str(wheel) for finding in findings) and is_wheel_rebuilt(store, timer_checkpoint(store)):
        if os.path.lexists(wheel):
            journal.quarantine(wheel, "brokers rebuild it from the timer log")
        return
    why = "brokers rebuild it from the timer topic, and redeliver messages that were delivered already"
    for path in (wheel, store.root / tree.TIMER_LOG, store.root / tree.CONFIG / TIMER_CHECKPOINT_FILE):
        if os.path.lexists(path):
            journal.quarantine(path, why)
