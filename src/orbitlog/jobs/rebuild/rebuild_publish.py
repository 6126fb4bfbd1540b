"""Rebuild publication: moves rebuilt files into place from a staging directory, after a commit.

    .orbitlog-rebuild/plan.json     what is rebuilt from what; a run with another plan starts over
    .orbitlog-rebuild/splits/…      the results of splits
    .orbitlog-rebuild/new/…         what will be published
    .orbitlog-rebuild/commit.json   all of it is complete and durable: from here on a rebuild only rolls forward
    .orbitlog-rebuild/old/…         the replaced files, until all new ones are in place

A directory is published by two renames: the old one into `old`, the new one into its place. The next run finishes one
that was killed between them, and replaced files are removed only when the last new one is in place.

The plan has a mark that only this user's key gives. A staging directory with another plan came with the store: nothing
in it is published or reused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from orbitlog.errors import StoreLayoutError
from orbitlog.formats import store_tree as tree
from orbitlog.formats.derived.derive import DeriveRules
from orbitlog.formats.derived.dispatch_marks import MARKS_FILE
from orbitlog.formats.derived.store_state import STATE_FILE
from orbitlog.jobs.rebuild.rebuild_tasks import NEW
from orbitlog.jobs.run_marks import is_own, mark_of
from orbitlog.jobs.staging import TEMPORARY, put_bytes, sync_directories
from orbitlog.settings.store_settings import StoreGeometry
from orbitlog.storefiles.confined.regular_files import read_regular
from orbitlog.storefiles.disk import Disk, RealDisk
from orbitlog.storefiles.store_files import StoreFiles

STAGING = ".orbitlog-rebuild"
FINISHED = "orbitlog-rebuild.json"
_PLAN, _COMMIT, _OLD = "plan.json", "commit.json", "old"
_MARK = "mark"
_PUBLISHED = (tree.CONSUMEQUEUE, tree.INDEX, tree.CHECKPOINT)
_PLAN_VERSION = 2


@dataclass(frozen=True, slots=True)
class Target:
    """Where the derived files of one store go: into the store itself, or elsewhere."""

    store: StoreFiles
    out: Path
    is_in_place: bool
    geometry: StoreGeometry
    rules: DeriveRules
    disk: Disk = field(default_factory=RealDisk)

    @property
    def staging(self) -> Path:
        return self.out / STAGING

    def plan(self, *, split_bytes: int, check_crc: bool) -> dict[str, Any]:
        """Return everything that decides the result: a later run with the same plan may continue."""
        layout = self.geometry.index_layout
        return {
            "version": _PLAN_VERSION,
            "store": str(self.store.root.resolve()),
            "segments": log_identities(self.store),
            "segmentBytes": self.geometry.segment_bytes,
            "queueFileBytes": self.geometry.queue_file_bytes,
            "indexLayout": [layout.slot_count, layout.entry_count],
            "compat": self.rules.compat.name,
            "delaysMs": list(self.rules.delay_levels.delays_ms),
            "multiDispatch": self.rules.multi_dispatch,
            "splitBytes": split_bytes,
            "checkCrc": check_crc,
        }


def log_identities(store: StoreFiles) -> list[list[Any]]:
    """Return names, sizes and times of the segments, which differ if the log has changed."""
    found = [(segment.path.name, segment.path.stat()) for segment in store.segments]
    if store.dledger_member is not None:  # decides how much of the log is committed
        checkpoint = store.root / store.dledger_member / tree.CHECKPOINT
        found += [(checkpoint.name, checkpoint.stat())] if checkpoint.is_file() else []
    return [[name, status.st_size, status.st_mtime_ns] for name, status in found]


def check_output(target: Target) -> None:
    """Refuse a directory that holds anything but a rebuild."""
    if target.is_in_place or not target.out.exists():
        return
    if not target.out.is_dir():
        raise StoreLayoutError(f"{target.out} is a file; give a directory for the derived files")
    if (target.out / tree.COMMITLOG).exists():
        raise StoreLayoutError(f"{target.out} holds a commitlog; to replace its derived files use --in-place")
    names = {path.name for path in target.out.iterdir()}
    if names and not names & {STAGING, FINISHED}:
        raise StoreLayoutError(f"{target.out} is not empty; give a new directory, nothing is ever overwritten")


def finished_report(target: Target, plan: dict[str, Any]) -> dict[str, Any] | None:
    """Return the report of a rebuild that was finished before with the very same plan."""
    if target.is_in_place:
        return None
    finished = _read_json(target.out / FINISHED)
    if finished is None or (target.staging / _COMMIT).exists():
        return None
    if finished.get("plan") != plan:
        raise StoreLayoutError(f"{target.out} holds another rebuild's files; give a new directory")
    target.disk.remove_tree(target.staging)
    report: dict[str, Any] = finished["report"]
    return report


def roll_forward(disk: Disk, out: Path, store: StoreFiles, *, is_in_place: bool) -> dict[str, Any] | None:
    """Finish the publication of a committed run; returns its plan and report.

    Call this before sizes and rules are inferred from derived files: in the middle of a publication some of them are
    not in place. If the log has changed since, the old files are put back instead.
    """
    staging = out / STAGING
    plan, committed = _own_plan(staging), _read_json(staging / _COMMIT)
    if plan is not None and committed is not None and plan["segments"] == log_identities(store):
        publish(disk, out, is_in_place=is_in_place)
        return {"plan": plan, "report": committed["report"]}
    if (staging / _OLD).is_dir():
        _put_back(disk, out)
        disk.remove_tree(staging)
    return None


def _put_back(disk: Disk, out: Path) -> None:
    for name in _PUBLISHED:
        old = out / STAGING / _OLD / name
        if old.exists() and not (out / name).exists():
            disk.move(old, out / name)
    # Before the staging directory is removed: after a power cut the old files must be under one of both names.
    disk.sync_directory(out)


def take_up(target: Target, plan: dict[str, Any]) -> None:
    """Prepare the staging directory: what a run with the same plan left is used, anything else is removed."""
    staging = target.staging
    if _own_plan(staging) != plan:
        target.disk.remove_tree(staging)
        marked = {**plan, _MARK: mark_of(plan)}
        put_bytes(target.disk, staging / _PLAN, orjson.dumps(marked), staging / TEMPORARY)


def commit(target: Target, plan: dict[str, Any], report: dict[str, Any]) -> None:
    """Commit everything in `new`, and publish it."""
    staging, disk = target.staging, target.disk
    _sync_names(disk, staging / NEW)
    if not target.is_in_place:
        finished = orjson.dumps({"plan": plan, "report": report})
        put_bytes(disk, staging / NEW / FINISHED, finished, staging / TEMPORARY)
    names = sorted(path.name for path in (staging / NEW).iterdir())
    # Every name in `new` is durable before the commit file: from then on a run publishes them without a look.
    disk.sync_directory(staging / NEW)
    put_bytes(disk, staging / _COMMIT, orjson.dumps({"names": names, "report": report}), staging / TEMPORARY)
    disk.sync_directory(staging)
    publish(disk, target.out, is_in_place=target.is_in_place)


def _sync_names(disk: Disk, new: Path) -> None:
    """Make all names durable but those of queue files, which the tasks that gave them have synced."""
    parts = [path for path in new.iterdir() if path.is_dir()]
    # The parents of the staging directory as well: a commit file below an unsynced name would be lost with it.
    sync_directories(disk, [*(new / tree.CONSUMEQUEUE).iterdir(), *parts, new, new.parent, new.parent.parent])


def publish(disk: Disk, out: Path, *, is_in_place: bool) -> None:
    """Move everything that was committed into its place; may be interrupted and repeated at any point."""
    staging = out / STAGING
    found = _read_json(staging / _COMMIT)
    assert found is not None
    new, old = staging / NEW, staging / _OLD
    disk.make_directory(old)
    if is_in_place:
        # They are about files that are replaced; without them a store scans its files when it is opened.
        for name in (STATE_FILE, MARKS_FILE):
            disk.remove_file(out / name)
    for name in _in_order(found["names"]):
        if not (new / name).exists():
            continue  # an interrupted run published it
        place = out / name
        if place.exists():
            disk.move(place, _free_name(old / name))
        disk.move(new / name, place)
    # Both ends of the renames, before the old files go: every replacement is durable then.
    sync_directories(disk, [out, new, old])
    disk.remove_tree(old)
    disk.remove_file(staging / _COMMIT)
    disk.sync_directory(staging)
    disk.remove_tree(staging)
    disk.sync_directory(out)


def _free_name(path: Path) -> Path:
    number = 1
    wanted = path
    while wanted.exists():
        number += 1
        wanted = path.with_name(f"{path.name}.{number}")
    return wanted


def _in_order(names: Sequence[str]) -> list[str]:
    """Sort names: the checkpoint after queues and index, which it covers, the report of the finished run last.

    Other names are left out: a rebuild writes none, and a name must not point out of the directory.
    """
    return [name for name in (*_PUBLISHED, FINISHED) if name in names]


def _own_plan(staging: Path) -> dict[str, Any] | None:
    """Return the plan of a staging directory; None if it is missing, or if another user or machine wrote it."""
    found = _read_json(staging / _PLAN)
    if found is None:
        return None
    mark = found.pop(_MARK, None)
    return found if is_own(found, mark) else None


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        found = orjson.loads(read_regular(path))
    except (FileNotFoundError, orjson.JSONDecodeError):
        return None
    return found if isinstance(found, dict) else None
