"""Rebuild ConsumeQueue, IndexFile and checkpoint of whole stores from their logs.

    stage 1   one task a split: queue units sorted by queue and hashes of keys into a staged file
    driver    splits proved by stitching, queues followed through them, keys summed up
    stage 2   queue files put together from slices, each index file from the keys of its range
    driver    everything synced and published by renames

The files are byte for byte those that a broker writes while it runs. A log that is damaged is not rebuilt from: its
findings are the result. A run that was killed is taken up by the next one with the same arguments.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from orbitlog.errors import StoreLayoutError, StoreLocked
from orbitlog.formats import store_tree as tree
from orbitlog.formats.derived.checkpoint import CHECKPOINT, Checkpoint, decode_checkpoint, encode_checkpoint
from orbitlog.formats.derived.dispatch_marks import LEASE_LOCK_FILE
from orbitlog.jobs.local_runner import PhaseProgress, Runner, phase_of
from orbitlog.jobs.log_splits import WalkedSplit, plan_splits
from orbitlog.jobs.missing_log import refuse_incomplete_log
from orbitlog.jobs.rebuild.index_tasks import IndexPiece, IndexTask, build_index, index_header, pieces_of, write_piece
from orbitlog.jobs.rebuild.rebuild_plan import assemble_tasks, index_tasks, order_findings, queue_files
from orbitlog.jobs.rebuild.rebuild_publish import (
    STAGING,
    Target,
    check_output,
    commit,
    finished_report,
    roll_forward,
    take_up,
)
from orbitlog.jobs.rebuild.rebuild_tasks import (
    NEW,
    AssembleTask,
    DeriveTask,
    assemble,
    derive,
)
from orbitlog.jobs.segment_places import is_removed_when_empty, segment_findings
from orbitlog.jobs.split_derivation import SplitDerivation
from orbitlog.jobs.split_validation import validate_reports
from orbitlog.jobs.staging import TEMPORARY, put_bytes
from orbitlog.jobs.store_use import SHARED_USE, StoreUse
from orbitlog.jobs.topic_recreation import drop_earlier_topics
from orbitlog.settings.store_settings import StoreSettings
from orbitlog.storefiles.confined.store_links import refuse_links
from orbitlog.storefiles.disk import Disk, RealDisk
from orbitlog.storefiles.findings import Finding
from orbitlog.storefiles.inferred_geometry import robust_geometry
from orbitlog.storefiles.inferred_rules import sampled_rules
from orbitlog.storefiles.log_presence import check_log_is_there
from orbitlog.storefiles.store_contents import DERIVABLE, REBUILDABLE, refuse_writing
from orbitlog.storefiles.store_files import StoreFiles, find_store_files
from orbitlog.storefiles.store_paths import refuse_shared_log

_REPLICA_FIELDS = ("master_flushed_physical_offset", "confirm_physical_offset")


@dataclass(frozen=True, slots=True)
class StoreRebuild:
    """What became of one store: figures, or the findings for which nothing was published."""

    store: str
    out: str
    messages: int = 0
    log_bytes: int = 0
    queues: int = 0
    queue_files: int = 0
    index_files: int = 0
    keys: int = 0
    log_end: int = 0
    resumed_splits: int = 0
    was_finished: bool = False
    findings: tuple[Finding, ...] = ()
    finding_count: int = 0

    @property
    def is_published(self) -> bool:
        return not self.finding_count

    def as_object(self) -> dict[str, Any]:
        """Return the JSON object that the command prints."""
        return {
            "store": self.store,
            "out": self.out,
            "published": self.is_published,
            "messages": self.messages,
            "logBytes": self.log_bytes,
            "logEnd": self.log_end,
            "queues": self.queues,
            "queueFiles": self.queue_files,
            "indexFiles": self.index_files,
            "keys": self.keys,
            "resumedSplits": self.resumed_splits,
            "wasFinished": self.was_finished,
            "findingCount": self.finding_count,
            "findings": [finding.as_object() for finding in self.findings],
        }


_Build = IndexTask | IndexPiece | AssembleTask


@dataclass(slots=True)
class _Work:
    """One store on its way through the stages."""

    number: int
    target: Target
    plan: dict[str, Any]
    tasks: list[DeriveTask]
    use: StoreUse
    derivations: list[SplitDerivation] = field(default_factory=list)
    index: list[IndexTask] = field(default_factory=list)
    queues: list[AssembleTask] = field(default_factory=list)
    resumed_splits: int = 0
    queue_count: int = 0


def rebuild_with(
    run: Runner,
    roots: Sequence[Path],
    *,
    out: Path | None,
    settings: StoreSettings,
    split_bytes: int,
    check_crc: bool = True,
    index_writers: int = 1,
    accept_lost_segments: bool = False,
    progress: PhaseProgress | None = None,
    disk: Disk | None = None,
    use: StoreUse = SHARED_USE,
) -> list[StoreRebuild]:
    """Rebuild stores, tasks run by `run`: into `out` (of several: into a directory of its name in it), or in place.

    `index_writers` may write an index file at once, if they are all on this machine and end before `run` does.
    Raises `StoreLayoutError` if a part of the log is a link, unreadable or missing at its end, unless no file
    of it exists and `accept_lost_segments` gives it up.
    """
    for root in roots:
        store = find_store_files(root, settings)
        # Logs of several DLedger members are no log at all to what follows.
        refuse_rebuilding(store, is_in_place=out is None)
        segment_bytes = robust_geometry(store, settings).segment_bytes
        refuse_incomplete_log(store, segment_bytes, accept_lost_segments=accept_lost_segments, use=use)
    disk = disk or RealDisk()
    done: dict[int, StoreRebuild] = {}
    with ExitStack() as locks:
        works: list[_Work] = []
        refuse_shared_log(roots, settings)
        for number, (root, place) in enumerate(_places(roots, out)):
            target, earlier = _prepare(disk, root, place, settings, locks, is_in_place=out is None)
            plan = target.plan(split_bytes=split_bytes, check_crc=check_crc)
            report = finished_report(target, plan)
            if report is None and earlier is not None and earlier["plan"] == plan:
                report = earlier["report"]
            if report is not None:
                done[number] = _report_of(target, report)
            else:
                take_up(target, plan)
                works.append(_plan_work(number, target, plan, use, split_bytes=split_bytes, check_crc=check_crc))
        _derive_all(run, works, disk, progress)
        sound = []
        for work in works:
            findings, count = _findings(work)
            if count:
                done[work.number] = _refused(work, findings, count)
            else:
                sound.append(work)
        _put_together(run, sound, index_writers, disk, progress)
        for work in sound:
            done[work.number] = _publish(work)
    return [done[number] for number in sorted(done)]


def _places(roots: Sequence[Path], out: Path | None) -> Iterator[tuple[Path, Path]]:
    """Pair each store with the directory that its derived files go to."""
    names: dict[str, Path] = {}
    for root in roots:
        name = root.resolve().name
        if out is not None and len(roots) > 1 and name in names:
            raise StoreLayoutError(f"{root} and {names[name]} have the same name; rebuild them one by one")
        names[name] = root
        yield root, root if out is None else out if len(roots) == 1 else out / name


def _prepare(
    disk: Disk, root: Path, place: Path, settings: StoreSettings, locks: ExitStack, *, is_in_place: bool
) -> tuple[Target, dict[str, Any] | None]:
    """Lock a store, finish the publication of an earlier run, and only then infer sizes and rules from its files."""
    store = find_store_files(root, settings)
    refuse_rebuilding(store, is_in_place=is_in_place)
    if is_in_place:
        refuse_links(store.paths, place / STAGING)
        locks.callback(disk.lock_file(place / tree.LOCK, tree.LOCK_CONTENT).release)
        if disk.lock_holder(place / LEASE_LOCK_FILE) is not None:
            raise StoreLocked(f"{place} is being dispatched by another process; stop it first")
    earlier = roll_forward(disk, place, store, is_in_place=is_in_place)
    store = find_store_files(root, settings)
    target = Target(store, place, is_in_place, robust_geometry(store, settings), sampled_rules(store, settings), disk)
    check_output(target)
    return target, earlier


def refuse_rebuilding(store: StoreFiles, *, is_in_place: bool = True) -> None:
    """Raise `StoreLayoutError` if derived files of this store cannot be rebuilt from its log."""
    refuse_writing(store.root, except_for=REBUILDABLE if is_in_place else DERIVABLE)
    check_log_is_there(store)
    if any(store.ext_queues.values()):
        raise StoreLayoutError(f"{store.root} has extension queues, whose units a rebuild does not make")


def _plan_work(
    number: int, target: Target, plan: dict[str, Any], use: StoreUse, *, split_bytes: int, check_crc: bool
) -> _Work:
    until = None if target.is_in_place else use.confirmed_to(target.store)
    geometry = target.geometry
    splits = plan_splits(
        target.store, geometry.segment_bytes, split_bytes=split_bytes, store_number=number, until=until
    )
    tasks = [
        DeriveTask(split, str(target.staging), target.rules, geometry.queue_file_bytes, check_crc) for split in splits
    ]
    return _Work(number, target, plan, tasks, use)


def _derive_all(run: Runner, works: Sequence[_Work], disk: Disk, progress: PhaseProgress | None) -> None:
    """Derive the splits of all stores; re-derive those that started inside a record."""
    tasks = [task for work in works for task in work.tasks]
    phase = phase_of(progress, "scanning", sum(task.split.stop - task.split.start for task in tasks))
    on_disk = partial(derive, disk=disk)
    reports = run(on_disk, tasks, progress=phase, name="rebuild: scan")
    proved = validate_reports(reports, tasks, lambda again: run(on_disk, again, name="rebuild: prove"))
    found = [
        SplitDerivation(WalkedSplit(task.split, None, task.split.start, 0))
        if report is None
        else SplitDerivation.from_report(report)
        for task, report in zip(tasks, proved, strict=True)
    ]
    start = 0
    for work in works:
        stop = start + len(work.tasks)
        work.tasks, work.derivations = tasks[start:stop], found[start:stop]
        work.resumed_splits = sum(bool(report["is_resumed"]) for report in reports[start:stop])
        start = stop


def _findings(work: _Work) -> tuple[list[Finding], int]:
    """Return the findings because of which nothing can be rebuilt from the log, in the order of the log."""
    target = work.target
    empty_last = is_removed_when_empty(target.store, target.rules)
    findings = segment_findings(target.store, target.geometry.segment_bytes, last_may_be_empty=empty_last)
    count = len(findings)
    drop_earlier_topics(work.target.store, work.derivations, is_rebuild=True, use=work.use)
    for derivation in work.derivations:
        findings += derivation.findings
        count += derivation.finding_count
    ends, disorder = order_findings(work.derivations)
    work.queue_count = len(ends)
    return findings + disorder, count + len(disorder)


def _put_together(
    run: Runner, works: Sequence[_Work], index_writers: int, disk: Disk, progress: PhaseProgress | None
) -> None:
    """Build index files and queue files of all stores in one job, the longest tasks first."""
    for work in works:
        target, staging = work.target, str(work.target.staging)
        files = queue_files(work.tasks, work.derivations)
        work.index = index_tasks(work.tasks, work.derivations, target.geometry.index_layout, staging)
        work.queues = assemble_tasks(files, staging, target.geometry.queue_file_bytes)
    index = [task for work in works for task in work.index]
    builds: list[_Build] = [task for work in works for task in work.queues]
    phase = phase_of(progress, "building", sum(task.log_bytes for task in index))
    with ExitStack() as shared:
        for task in index:
            # With as many files as writers each writes its own, and none has to read another's keys.
            builds += shared.enter_context(pieces_of(task, -(-index_writers // len(index)), disk=disk)) or (task,)
        run(partial(_build, disk=disk), builds, progress=phase, name="rebuild: build", cost=lambda task: task.cost)


def _build(task: _Build, *, disk: Disk) -> dict[str, Any]:
    match task:
        case IndexTask():
            return build_index(task, disk=disk)
        case IndexPiece():
            return write_piece(task, disk=disk)
        case AssembleTask():
            return assemble(task, disk=disk)


def _publish(work: _Work) -> StoreRebuild:
    target = work.target
    new = target.staging / NEW
    target.disk.make_directory(new / tree.CONSUMEQUEUE, durable=False)
    complete_until_ms = _name_index_files(work)
    with_messages = [derivation for derivation in work.derivations if derivation.walk.message_count]
    if with_messages:
        last = with_messages[-1]
        end = log_end([derivation.walk for derivation in work.derivations])
        checkpoint = replace(
            _old_checkpoint(target.store, end),
            physic_msg_timestamp_ms=last.last_timestamp_ms,
            logics_msg_timestamp_ms=last.last_timestamp_ms,
            index_msg_timestamp_ms=complete_until_ms,
            logics_physical_offset=last.last_physical_offset,
        )
        raw = encode_checkpoint(checkpoint, target.rules.compat)
        temporary = target.staging / TEMPORARY
        put_bytes(target.disk, new / tree.CHECKPOINT, raw, temporary, modified_ms=last.last_timestamp_ms)
    result = StoreRebuild(
        store=str(target.store.root),
        out=str(target.out),
        messages=sum(derivation.walk.message_count for derivation in with_messages),
        log_bytes=sum(task.split.stop - task.split.start for task in work.tasks),
        queues=work.queue_count,
        queue_files=sum(len(task.files) for task in work.queues),
        index_files=len(work.index),
        keys=sum(derivation.key_count for derivation in with_messages),
        log_end=log_end([derivation.walk for derivation in work.derivations]),
        resumed_splits=work.resumed_splits,
    )
    commit(target, work.plan, result.as_object())
    return result


def _name_index_files(work: _Work) -> int:
    """Name index files after the time of their first message; return until when they are complete.

    Brokers set the time to the end of the last but one. After a crash it is the end of the last: Java's broker removes
    every index file that ends later than its checkpoint, and indexes only the last segments. These files are durable.
    """
    directory = work.target.staging / NEW / tree.INDEX
    disk = work.target.disk
    disk.make_directory(directory, durable=False)
    made_at, complete_until_ms = datetime.min, 0
    complete = len(work.index) - (work.target.store.abort is None)
    for number, task in enumerate(work.index):
        header = index_header(task)
        made_at = tree.index_file_time(header.begin_timestamp_ms, made_at)
        named = directory / tree.index_file_name(made_at)
        end_ms = header.end_timestamp_ms
        file = disk.open_plain(task.target)
        file.set_modified(end_ms * 1_000_000)
        file.close()
        if not named.exists():
            disk.link_file(task.target, named)  # keeps the number as well: a run after a kill here looks for that
        if number < complete:
            complete_until_ms = max(complete_until_ms, end_ms)
    return complete_until_ms


def _old_checkpoint(store: StoreFiles, end: int) -> Checkpoint:
    """Return the store's checkpoint: its fields about replicas stay, unless they are invalid."""
    if store.checkpoint is None or store.checkpoint.size_bytes < CHECKPOINT.size_bytes:
        return Checkpoint()
    with store.checkpoint.path.open("rb") as file:
        found = decode_checkpoint(file.read(CHECKPOINT.size_bytes))  # of a file that may be of any size
    wrong = {name: 0 for name in _REPLICA_FIELDS if not 0 <= getattr(found, name) <= end}
    return replace(found, **wrong)


def log_end(walks: Sequence[WalkedSplit]) -> int:
    """Return the physical offset after the last record."""
    with_messages = [walk for walk in walks if walk.message_count]
    return with_messages[-1].split.base + with_messages[-1].next_position if with_messages else 0


def _refused(work: _Work, findings: list[Finding], count: int) -> StoreRebuild:
    return StoreRebuild(
        store=str(work.target.store.root), out=str(work.target.out), findings=tuple(findings), finding_count=count
    )


def _report_of(target: Target, earlier: dict[str, Any]) -> StoreRebuild:
    return StoreRebuild(
        store=str(target.store.root),
        out=str(target.out),
        messages=earlier["messages"],
        log_bytes=earlier["logBytes"],
        queues=earlier["queues"],
        queue_files=earlier["queueFiles"],
        index_files=earlier["indexFiles"],
        keys=earlier["keys"],
        log_end=earlier["logEnd"],
        resumed_splits=earlier["resumedSplits"],
        was_finished=True,
    )
