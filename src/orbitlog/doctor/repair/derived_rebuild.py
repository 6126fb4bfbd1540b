"""Derived rebuild: queues, index or checkpoint of one store, into a directory, or in place with a journal.

In place, everything is built in a staging directory of the store first, which a killed run leaves for the next one.
Then the wanted parts are swapped in by renames, and the old files stay in the journal until they are discarded.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

from orbitlog.doctor.repair.derived_swap import CHECKPOINT, INDEX, PARTS, QUEUES, DerivedSet, make_derived, plan_swap
from orbitlog.doctor.repair.repair_journal import RepairJournal, discard_kept, finish_interrupted
from orbitlog.doctor.surveys.log_tail import LogTail
from orbitlog.errors import StoreLayoutError
from orbitlog.formats import store_tree as tree
from orbitlog.formats.derived.checkpoint import decode_checkpoint
from orbitlog.jobs.local_runner import PhaseProgress, Runner, run_here
from orbitlog.jobs.log_splits import SPLIT_BYTES_DEFAULT
from orbitlog.jobs.rebuild.rebuild_publish import FINISHED
from orbitlog.jobs.rebuild.store_rebuild import StoreRebuild
from orbitlog.jobs.store_use import SHARED_USE, StoreUse, taken
from orbitlog.settings.store_settings import StoreSettings
from orbitlog.storefiles.confined.confined_disk import ConfinedDisk
from orbitlog.storefiles.disk import Disk, RealDisk
from orbitlog.storefiles.inferred_geometry import robust_geometry
from orbitlog.storefiles.log_references import refuse_missing_log
from orbitlog.storefiles.store_contents import REBUILDABLE, refuse_unwritable, refuse_writing
from orbitlog.storefiles.store_files import find_store_files
from orbitlog.storefiles.store_paths import StorePaths

_STAGING = "rebuild"
_PLACES = {QUEUES: tree.CONSUMEQUEUE, INDEX: tree.INDEX, CHECKPOINT: tree.CHECKPOINT}


@dataclass(frozen=True, slots=True)
class RebuildWish:
    """The parts to rebuild; `topic` limits the queues."""

    parts: frozenset[str] = frozenset(PARTS)
    topic: str | None = None

    def __post_init__(self) -> None:
        if self.topic is not None and QUEUES not in self.parts:
            raise StoreLayoutError("a topic limits the queues that are rebuilt; include the queues")


def rebuild_elsewhere(
    root: Path,
    out: Path,
    wish: RebuildWish,
    settings: StoreSettings,
    *,
    run: Runner = run_here,
    split_bytes: int = SPLIT_BYTES_DEFAULT,
    progress: PhaseProgress | None = None,
) -> StoreRebuild:
    """Rebuild the parts into a directory of their own; the store is only read."""
    result = make_derived(run, root, out, settings, split_bytes=split_bytes, progress=progress)
    if result.is_published:
        result = _unless_cut(result, root, out, settings, SHARED_USE)
        _keep_only(out, wish.parts if result.is_published else (), wish.topic)
    if not result.is_published:
        RealDisk().remove_file(out / FINISHED)
    return result


def _unless_cut(result: StoreRebuild, root: Path, out: Path, settings: StoreSettings, use: StoreUse) -> StoreRebuild:
    """Return the result of a rebuild; with findings if the log lacks its end, which shows in other files alone."""
    store = find_store_files(root, settings)
    tail = LogTail.of(store, robust_geometry(store, settings).segment_bytes, use) if result.messages else None
    if tail is None:
        return result
    last_stored_ms = decode_checkpoint((out / tree.CHECKPOINT).read_bytes()).physic_msg_timestamp_ms
    findings = tuple(tail.findings(result.log_end, last_stored_ms))
    return replace(result, findings=findings, finding_count=len(findings))


def _keep_only(out: Path, parts: Collection[str], topic: str | None) -> None:
    disk = RealDisk()
    for part in set(PARTS) - set(parts):
        place = out / _PLACES[part]
        if part == CHECKPOINT:
            disk.remove_file(place)
        else:
            disk.remove_tree(place)
    if topic is not None:
        for directory in (out / tree.CONSUMEQUEUE).iterdir():
            if directory.name != topic:
                disk.remove_tree(directory)


def rebuild_in_place(
    root: Path,
    wish: RebuildWish,
    settings: StoreSettings,
    *,
    run: Runner = run_here,
    split_bytes: int = SPLIT_BYTES_DEFAULT,
    discard_old: bool = False,
    progress: PhaseProgress | None = None,
    disk: Disk | None = None,
) -> StoreRebuild:
    """Rebuild the parts and swap them in; the old files stay in the journal, or are discarded when all is done."""
    disk = disk or ConfinedDisk(root)
    find_store_files(root, settings)
    refuse_unwritable(StorePaths.below(root))
    refuse_writing(root, except_for=REBUILDABLE)
    refuse_missing_log(StorePaths.of(root, settings), disk)
    staging = root / tree.DOCTOR / _STAGING
    with taken(root) as use:
        finish_interrupted(root, disk=disk)
        if (staging / FINISHED).exists():
            disk.remove_tree(staging)  # it was swapped in, or the log may have changed since
        result = make_derived(
            run, root, staging, settings, split_bytes=split_bytes, progress=progress, disk=disk, use=use
        )
        if result.is_published:
            result = _unless_cut(result, root, staging, settings, use)
        if result.is_published:
            journal = RepairJournal.begin(root, f"rebuild of {', '.join(sorted(wish.parts))}", disk=disk)
            made = DerivedSet.found_in(staging)
            plan_swap(journal, find_store_files(root, settings), made, parts=wish.parts, topic=wish.topic)
            journal.carry_out()
            disk.remove_tree(staging)
            if discard_old:
                discard_kept(root, disk=disk)
        else:
            disk.remove_tree(staging if any(staging.parent.glob("0*")) else staging.parent)
    return result
