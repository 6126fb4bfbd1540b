"""Store examination: the one verdict about log, derived files and small files, each finding with its meaning."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from orbitlog.doctor.diagnosis import Diagnosis, diagnose
from orbitlog.doctor.finding_kinds import MEANINGS, Severity
from orbitlog.doctor.repair.repair_journal import interrupted, unreadable_journals
from orbitlog.doctor.surveys.expired_messages import retired_findings
from orbitlog.doctor.surveys.log_tail import LogTail
from orbitlog.doctor.surveys.lost_messages import (
    LOST_RANGES,
    LogRange,
    LostMessage,
    damaged_ranges,
    describe_lost,
    describe_units,
    find_lost,
)
from orbitlog.doctor.surveys.offset_survey import offset_findings
from orbitlog.doctor.surveys.progress_survey import progress_findings
from orbitlog.doctor.surveys.store_survey import queue_count_findings, survey
from orbitlog.formats import store_tree as tree
from orbitlog.jobs.check.store_check import StoreCheck, check_with
from orbitlog.jobs.local_runner import PhaseProgress, Runner, run_here
from orbitlog.jobs.log_splits import SPLIT_BYTES_DEFAULT
from orbitlog.jobs.missing_log import MissingPart, missing_parts, with_readable_segments
from orbitlog.jobs.store_use import SHARED_USE, StoreUse
from orbitlog.settings.store_settings import StoreSettings
from orbitlog.storefiles.findings import Finding, FindingKind
from orbitlog.storefiles.inferred_geometry import robust_geometry
from orbitlog.storefiles.store_contents import IN_ROCKSDB, find_obstacles
from orbitlog.storefiles.store_files import StoreFiles, find_store_files


@dataclass(frozen=True, slots=True)
class Examination:
    """The verdict about one store: `doctor check` and `pipeline check` both print it."""

    check: StoreCheck
    diagnoses: tuple[Diagnosis, ...]
    ranges: tuple[LogRange, ...]
    lost: tuple[LostMessage, ...]
    missing: tuple[MissingPart, ...] = ()
    """Parts of the log that are not in the store, or cannot be read."""

    @property
    def is_sound(self) -> bool:
        """Return whether there is nothing to repair: no error and no warning."""
        return not self.problems

    @property
    def problems(self) -> list[Diagnosis]:
        """Return the diagnoses that make a store unsound."""
        return [diagnosis for diagnosis in self.diagnoses if diagnosis.severity is not Severity.NOTE]

    @property
    def findings(self) -> list[Finding]:
        return [diagnosis.finding for diagnosis in self.diagnoses]

    @property
    def unlisted_count(self) -> int:
        """Return how many findings about log and derived files are counted only, for there are very many."""
        return self.check.finding_count - len(self.check.findings)

    def summary(self) -> dict[str, Any]:
        """Return the JSON object that ends the output of `doctor check`."""
        counts = {severity.value: 0 for severity in Severity}
        for diagnosis in self.diagnoses:
            counts[diagnosis.severity.value] += 1
        return self._verdict() | {"lostMessages": len(self.lost), "severities": counts}

    def as_object(self) -> dict[str, Any]:
        """Return the JSON object that `pipeline check` prints: figures, verdict, and what makes the store unsound."""
        return self._verdict() | {"findings": [diagnosis.as_object() for diagnosis in self.problems]}

    def _verdict(self) -> dict[str, Any]:
        counted = {"findingCount": len(self.problems) + self.unlisted_count}
        return {"store": self.check.store, "sound": self.is_sound, **self.check.figures(), **counted}


def examine(
    root: Path,
    *,
    settings: StoreSettings | None = None,
    split_bytes: int = SPLIT_BYTES_DEFAULT,
    run: Runner = run_here,
    progress: PhaseProgress | None = None,
    use: StoreUse = SHARED_USE,
) -> Examination:
    """Check one store. Reads only; beside a running broker it reads up to the offset that the broker confirms."""
    given = settings or StoreSettings()
    return examine_with(run, [root], settings=given, split_bytes=split_bytes, progress=progress, use=use)[0]


def examine_with(
    run: Runner,
    roots: Sequence[Path],
    *,
    settings: StoreSettings,
    split_bytes: int,
    state: Path | None = None,
    progress: PhaseProgress | None = None,
    use: StoreUse = SHARED_USE,
) -> list[Examination]:
    """Check stores, tasks run by `run`; `state` is a directory with which a killed run is continued by the next."""
    checks = check_with(run, roots, settings=settings, split_bytes=split_bytes, state=state, progress=progress, use=use)
    return [_examined(root, checked, settings, use) for root, checked in zip(roots, checks, strict=True)]


def _examined(root: Path, checked: StoreCheck, settings: StoreSettings, use: StoreUse) -> Examination:
    whole = find_store_files(root, settings)
    segment_bytes = robust_geometry(whole, settings).segment_bytes
    end = whole.segments[-1].base + segment_bytes if whole.segments else 0
    points_past_end = any(
        one.kind == FindingKind.QUEUE_UNIT and (one.physical_offset or 0) >= end for one in checked.findings
    )
    missing = missing_parts(whole, segment_bytes, reads_queues=points_past_end, use=use)
    store = with_readable_segments(whole)
    tail = LogTail.of(store, segment_bytes, use) if checked.messages and not missing else None
    if tail is not None:
        checked.add(tail.findings(checked.log_end, checked.last_stored_ms))
    ranges = damaged_ranges(checked.findings)
    lost = find_lost(store, ranges)
    found = [*_log_findings(checked, lost), *_missing(store, checked, use), *_survey_findings(store, checked)]
    found += [*queue_count_findings(store, checked.ends), *_offset_findings(store, checked, use)]
    found += progress_findings(store, checked.ends, checked.last_stored_ms, use)
    found += [*checked.recreated_topics, *retired_findings(store, checked), *_behind(checked)]
    found = [*_missing_findings(store, missing), *(one for one in found if not _is_explained(one, missing))]
    found.sort(key=lambda one: MEANINGS[one.kind].rank)
    is_replicated = any(whole.dledger_segments.values())
    in_rocksdb = any(obstacle.content in IN_ROCKSDB for obstacle in find_obstacles(root))
    diagnoses = tuple(
        diagnose(
            finding,
            str(root),
            is_log_complete=not missing,
            is_log_damaged=any(MEANINGS[one.kind].stops_rebuild for one in found),
            is_replicated=is_replicated,
            is_in_rocksdb=in_rocksdb,
        )
        for finding in found
    )
    return Examination(checked, diagnoses, tuple(ranges), tuple(lost), tuple(missing))


def _survey_findings(store: StoreFiles, checked: StoreCheck) -> Iterator[Finding]:
    """Yield what the files besides the log show; topics.json lacks a topic whose queue outlived its deletion."""
    outlived = {finding.topic for finding in checked.recreated_topics}
    outlived -= {topic for (topic, _), ends in checked.ends.items() if ends.first == 0}
    for finding in survey(store):
        if finding.kind != FindingKind.TOPIC or finding.topic not in outlived:
            yield finding


def _missing_findings(store: StoreFiles, missing: Sequence[MissingPart]) -> Iterator[Finding]:
    """Yield the parts of the log that are missing, with the messages that queues have units for."""
    for part in missing:
        inside = find_lost(store, [LogRange(part.offsets.start, part.offsets.stop)] if part.offsets else [])
        units = f"; {describe_units(inside)}" if part.offsets else ""
        yield replace(part.finding, reason=part.finding.reason + units)


def _is_explained(finding: Finding, missing: Sequence[MissingPart]) -> bool:
    """Return whether a missing part of the log is the cause of a finding."""
    if finding.kind == FindingKind.SEGMENT:
        return any(finding.physical_offset in part.offsets for part in missing)
    return finding.path in {part.finding.path for part in missing if part.finding.kind == FindingKind.LINK}


def _log_findings(checked: StoreCheck, lost: list[LostMessage]) -> Iterator[Finding]:
    """Yield the findings of the check, with the lost messages of damaged ranges."""
    for finding in checked.findings:
        start = finding.physical_offset
        if finding.kind in LOST_RANGES and start is not None and finding.count:
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


def _missing(store: StoreFiles, checked: StoreCheck, use: StoreUse) -> Iterator[Finding]:
    """Yield findings for files that are missing, and for the doctor's own journals."""
    if checked.keys > checked.keys_behind and not store.index_files:
        reason = f"no index file exists, though the log has {checked.keys} keys; messageIndexEnable=false leaves none"
        yield Finding(FindingKind.INDEX, str(store.root / tree.INDEX), reason, count=checked.keys)
    if checked.messages and store.checkpoint is None and not use.is_in_use(store):
        yield Finding(FindingKind.CHECKPOINT, str(store.root / tree.CHECKPOINT), "is missing")
    if os.path.lexists(store.root / tree.DOCTOR) and not (store.root / tree.DOCTOR).is_dir():
        yield Finding(FindingKind.JOURNAL, str(store.root / tree.DOCTOR), "has the name of the doctor's directory")
    broken = list(unreadable_journals(store.root))
    for place in broken:
        yield Finding(FindingKind.JOURNAL, str(place), "is not a valid repair journal, or has no valid progress")
    for place in interrupted(store.root) if not broken else ():
        yield Finding(FindingKind.REPAIR, str(place), "a repair was interrupted here")


def _offset_findings(store: StoreFiles, checked: StoreCheck, use: StoreUse) -> Iterator[Finding]:
    """Yield invalid offsets; those of a topic that was created again date from before.

    Brokers of 4.9 keep the offsets of a topic that they delete, later ones remove them some seconds after it.
    """
    created_again = {finding.topic for finding in checked.recreated_topics}
    for finding in offset_findings(store, checked.ends, checked.last_stored_ms, use):
        yield replace(finding, kind=FindingKind.EARLIER_LIFE) if finding.topic in created_again else finding


def _behind(checked: StoreCheck) -> Iterator[Finding]:
    if checked.units_behind or checked.keys_behind:
        reason = f"{checked.units_behind} queue units and {checked.keys_behind} keys are not derived yet"
        yield Finding(FindingKind.BEHIND, checked.store, reason, count=checked.units_behind + checked.keys_behind)
