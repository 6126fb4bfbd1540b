"""A store examined: its log, everything derived, its small files; each finding with what it means."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from orbitlog.doctor.diagnosis import Diagnosis, Severity, diagnose
from orbitlog.doctor.log_splits import SPLIT_BYTES_DEFAULT
from orbitlog.doctor.lost_messages import LogRange, LostMessage, damaged_ranges, describe_lost, find_lost
from orbitlog.doctor.offset_survey import offset_findings
from orbitlog.doctor.progress_survey import progress_findings
from orbitlog.doctor.repair_journal import interrupted, unreadable_journals
from orbitlog.doctor.retired_messages import retired_findings
from orbitlog.doctor.store_check import StoreCheck, check_with
from orbitlog.doctor.store_survey import queue_count_findings, survey
from orbitlog.doctor.store_use import is_in_use
from orbitlog.doctor.tasks_here import PhaseProgress, Runner, run_here
from orbitlog.formats import store_tree as tree
from orbitlog.store.findings import Finding
from orbitlog.store.store_contents import refuse_reading
from orbitlog.store.store_files import StoreFiles, find_store_files
from orbitlog.store.store_paths import where_else
from orbitlog.store.store_settings import StoreSettings


@dataclass(frozen=True, slots=True)
class Examination:
    """What a store is found to be."""

    check: StoreCheck
    diagnoses: tuple[Diagnosis, ...]
    ranges: tuple[LogRange, ...]
    lost: tuple[LostMessage, ...]

    @property
    def is_sound(self) -> bool:
        """Tell whether there is nothing to mend."""
        return all(diagnosis.severity is Severity.NOTE for diagnosis in self.diagnoses)

    @property
    def findings(self) -> list[Finding]:
        return [diagnosis.finding for diagnosis in self.diagnoses]

    def summary(self) -> dict[str, Any]:
        """Return the JSON object that ends the command's output."""
        told = self.check.as_object()
        del told["findings"]
        counts = {severity.value: 0 for severity in Severity}
        for diagnosis in self.diagnoses:
            counts[diagnosis.severity.value] += 1
        return told | {"sound": self.is_sound, "lostMessages": len(self.lost), "severities": counts}


def examine(
    root: Path,
    *,
    settings: StoreSettings | None = None,
    split_bytes: int = SPLIT_BYTES_DEFAULT,
    run: Runner = run_here,
    progress: PhaseProgress | None = None,
) -> Examination:
    """Check one store. Reads only; beside a running broker it reads as far as that confirms its log."""
    settings = settings or StoreSettings()
    store = find_store_files(root, settings)
    refuse_reading(root)
    checked = check_with(run, [root], settings=settings, split_bytes=split_bytes, progress=progress)[0]
    ranges = damaged_ranges(checked.findings)
    lost = find_lost(store, ranges)
    found = [*_log_findings(checked, lost), *_missing(store, checked), *survey(store)]
    found += [*queue_count_findings(store, checked.ends), *offset_findings(store, checked.ends, checked.last_stored_ms)]
    found += progress_findings(store, checked.ends, checked.last_stored_ms)
    found += [*checked.lives, *retired_findings(store, checked), *_behind(checked)]
    diagnoses = tuple(diagnose(finding, str(root)) for finding in found)
    return Examination(checked, diagnoses, tuple(ranges), tuple(lost))


def _log_findings(checked: StoreCheck, lost: list[LostMessage]) -> Iterator[Finding]:
    """Yield what the check found, with the messages that are lost where the log is damaged."""
    for finding in checked.findings:
        if finding.kind == "config":
            continue  # the survey says more
        start = finding.physical_offset
        if finding.kind in ("record", "segment") and start is not None and finding.count:
            inside = [one for one in lost if start <= one.physical_offset < start + finding.count]
            topics = sorted({one.topic for one in inside})
            yield replace(
                finding,
                reason=f"{finding.reason}; {describe_lost(inside)}",
                topic=topics[0] if len(topics) == 1 else None,
                store=None,
            )
        else:
            yield replace(finding, store=None)


def _missing(store: StoreFiles, checked: StoreCheck) -> Iterator[Finding]:
    """Name what is not there at all."""
    if store.queues and not store.segments and not store.dledger_segments:
        reason = f"no segment is there, though there are {len(store.queues)} queues; {where_else(store.paths)}"
        yield Finding("log", store.paths.shown, reason)
    if checked.keys and not store.index_files:
        reason = f"no index file is there, though the log has {checked.keys} keys"
        yield Finding("index", str(store.root / tree.INDEX), reason, count=checked.keys)
    if checked.messages and store.checkpoint is None and not is_in_use(store):
        yield Finding("checkpoint", str(store.root / tree.CHECKPOINT), "is missing")
    if os.path.lexists(store.root / tree.DOCTOR) and not (store.root / tree.DOCTOR).is_dir():
        yield Finding("journal", str(store.root / tree.DOCTOR), "is in the place of the doctor's directory")
    broken = list(unreadable_journals(store.root))
    for place in broken:
        yield Finding("journal", str(place), "is no journal of a repair, or does not say how far that came")
    for place in interrupted(store.root) if not broken else ():
        yield Finding("repair", str(place), "a repair was interrupted here")


def _behind(checked: StoreCheck) -> Iterator[Finding]:
    if checked.units_behind or checked.keys_behind:
        reason = f"{checked.units_behind} queue units and {checked.keys_behind} keys are not derived yet"
        yield Finding("behind", checked.store, reason, count=checked.units_behind + checked.keys_behind)
