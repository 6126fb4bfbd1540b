"""Store check: compares every record, queue unit and index entry and the checkpoint of whole stores with the log.

    stage 1   one task a split: magic, lengths, offsets and CRC of records, the units and index entries they ask for
    driver    splits proved by stitching, queues and keys followed through them
    stage 2   units that no message asks for, the links of each index file, and entry headers of DLedger

The log is the truth; a finding is a difference from it. Messages that a killed broker had not dispatched yet are not
damage, because the next one dispatches them: they are counted as `behind`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

from orbitlog.errors import FormatError
from orbitlog.formats import store_tree as tree
from orbitlog.formats.derived.checkpoint import CHECKPOINT_BYTES, decode_checkpoint
from orbitlog.formats.derived.derive import DeriveRules
from orbitlog.formats.derived.index_layout import INDEX_HEADER, IndexHeader, decode_header
from orbitlog.formats.derived.queue_entry import ENTRY_BYTES
from orbitlog.formats.names import LMQ_PREFIX, is_system_topic
from orbitlog.formats.records.log_format import read_log_at
from orbitlog.formats.records.message import Message
from orbitlog.jobs.check.check_entries import CheckEntriesTask, check_entries
from orbitlog.jobs.check.check_index import CheckIndexTask, check_index, rules_of_split
from orbitlog.jobs.check.check_tasks import (
    CheckedQueue,
    CheckQueuesTask,
    CheckSplitTask,
    check_queues,
    check_split,
)
from orbitlog.jobs.check.index_proof import IndexHead, prove_entries
from orbitlog.jobs.check.index_upgrade import untagged_before
from orbitlog.jobs.check.ledger_check import LedgerCheck
from orbitlog.jobs.local_runner import PhaseProgress, Runner, phase_of
from orbitlog.jobs.log_splits import LogSplit, cut_at, plan_splits
from orbitlog.jobs.missing_log import with_readable_segments
from orbitlog.jobs.rebuild.rebuild_plan import QueueEnds, order_findings
from orbitlog.jobs.resumable_reports import ReportCache
from orbitlog.jobs.segment_places import is_removed_when_empty, segment_findings
from orbitlog.jobs.split_derivation import SplitDerivation
from orbitlog.jobs.split_validation import validate_reports
from orbitlog.jobs.store_use import SHARED_USE, StoreUse
from orbitlog.jobs.topic_recreation import drop_earlier_topics, recreation_findings
from orbitlog.settings.store_settings import StoreGeometry, StoreSettings
from orbitlog.storefiles.config_reading import topics_with_batch_queues
from orbitlog.storefiles.findings import Finding, FindingKind
from orbitlog.storefiles.inferred_geometry import robust_geometry
from orbitlog.storefiles.inferred_rules import sampled_rules
from orbitlog.storefiles.log_presence import check_log_is_there
from orbitlog.storefiles.mapped_view import mapped_view
from orbitlog.storefiles.rocksdb.queue_export import with_queue_files
from orbitlog.storefiles.store_contents import CHECKABLE, refuse_reading
from orbitlog.storefiles.store_files import StoreFiles, find_store_files
from orbitlog.storefiles.store_paths import refuse_shared_log

_STATE = "orbitlog-check"
_QUEUES_IN_TASK = 64
_NO_MESSAGE = 1 << 62
# Brokers, Java's too, write the first checkpoint after so long.
_FIRST_CHECKPOINT_MS = 60_000

Queue = tuple[str, int]


@dataclass(slots=True)
class StoreCheck:
    """Figures and findings of one store; `finding_count` also counts findings beyond those that are listed."""

    store: str
    messages: int = 0
    log_bytes: int = 0
    log_end: int = 0
    queues: int = 0
    units: int = 0
    index_files: int = 0
    keys: int = 0
    units_behind: int = 0
    keys_behind: int = 0
    findings: list[Finding] = field(default_factory=list)
    finding_count: int = 0
    ends: dict[Queue, QueueEnds] = field(default_factory=dict)
    """Bounds of each queue as the log has them."""
    last_stored_ms: int = 0
    recreated_topics: list[Finding] = field(default_factory=list)
    """Topics that were deleted, or created again: nothing to repair."""

    def add(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            self.findings.append(finding)
            self.finding_count += 1

    def figures(self) -> dict[str, Any]:
        """Return the figures of the JSON object that commands print; the verdict is that of an `Examination`."""
        return {
            "messages": self.messages,
            "logBytes": self.log_bytes,
            "logEnd": self.log_end,
            "queues": self.queues,
            "units": self.units,
            "indexFiles": self.index_files,
            "keys": self.keys,
            "unitsBehind": self.units_behind,
            "keysBehind": self.keys_behind,
        }


@dataclass(slots=True)
class _Work:
    """One store on its way through the stages."""

    store: StoreFiles
    geometry: StoreGeometry
    rules: DeriveRules
    tasks: list[CheckSplitTask]
    result: StoreCheck
    use: StoreUse
    queue_root: Path
    """Queue files are below it: the store's root, or a copy of those that are in RocksDB."""
    derivations: list[SplitDerivation] = field(default_factory=list)
    heads: tuple[IndexHead, ...] = ()
    upgraded_at: int = 0
    """The physical offset before which the index has no keys for tags."""
    matched_keys: list[Any] = field(default_factory=list)
    """For each derivation, which of its keys are which entries."""
    missing: list[tuple[str, int, int, int, int]] = field(default_factory=list)
    last_present: int = -1
    """The last message whose unit is there."""
    ends: dict[Queue, QueueEnds] = field(default_factory=dict)
    index: list[CheckIndexTask] = field(default_factory=list)
    queues: list[CheckQueuesTask] = field(default_factory=list)
    ledger: LedgerCheck | None = None

    def shown(self, path: str) -> str:
        """Return the path in a finding: for a unit in RocksDB the one that its queue file would have."""
        return path.replace(str(self.queue_root), str(self.store.root), 1)

    @property
    def log_start(self) -> int:
        return self.store.segments[0].base if self.store.segments else 0

    @property
    def recovery_start(self) -> int:
        """From where on the next broker derives again: the last segment that begins before the checkpoint's times."""
        file = self.store.checkpoint
        if file is None or file.size_bytes != CHECKPOINT_BYTES:
            return self.log_start
        safe_ms = decode_checkpoint(file.path.read_bytes()).min_timestamp_ms
        for segment in reversed(self.store.segments):
            with mapped_view(segment.path) as view:
                first = read_log_at(view, 0, segment.log_format, base_physical_offset=segment.base)
            if isinstance(first, Message) and first.store_timestamp_ms <= safe_ms:
                return segment.base
        return self.log_start

    @property
    def last_may_be_empty(self) -> bool:
        """Return whether the last file of the log or of a queue may have no bytes: 5.x deletes it when it starts."""
        return is_removed_when_empty(self.store, self.rules)

    @property
    def is_in_use(self) -> bool:
        return self.use.is_in_use(self.store)

    @property
    def may_be_behind(self) -> bool:
        return self.store.abort is not None or self.is_in_use

    @property
    def derives_all(self) -> bool:
        """Whether a broker was killed before its first flush: the next one scans the whole log, and lacks nothing."""
        file = self.store.checkpoint
        if self.store.abort is None or file is None or file.size_bytes != CHECKPOINT_BYTES:
            return False
        times = decode_checkpoint(file.path.read_bytes())
        return not (times.physic_msg_timestamp_ms or times.logics_msg_timestamp_ms or times.index_msg_timestamp_ms)


def check_with(
    run: Runner,
    roots: Sequence[Path],
    *,
    settings: StoreSettings,
    split_bytes: int,
    state: Path | None = None,
    progress: PhaseProgress | None = None,
    use: StoreUse = SHARED_USE,
) -> list[StoreCheck]:
    """Check stores, tasks run by `run`. With `state`, a directory of its own, a killed run is taken up by the next."""
    refuse_shared_log(roots, settings)
    with ExitStack() as opened:
        works = [
            _plan(number, root, settings, split_bytes, use=use, opened=opened) for number, root in enumerate(roots)
        ]
        return _check_works(run, works, state, progress)


def _check_works(
    run: Runner, works: Sequence[_Work], state: Path | None, progress: PhaseProgress | None
) -> list[StoreCheck]:
    kept = ReportCache(None if state is None else str(state / _STATE))
    _check_splits(run, works, kept, progress)
    for work in works:
        _follow_queues(work)
        work.index = _index_tasks(work)
        work.queues = _queue_tasks(work)
    tasks: list[CheckIndexTask | CheckQueuesTask | CheckEntriesTask] = []
    for work in works:
        work.ledger = LedgerCheck.of(work.store, work.geometry.segment_bytes, work.use)
        tasks += [*work.index, *work.queues, *work.ledger.tasks]
    total = sum(split.stop - split.start for task in tasks for split in getattr(task, "splits", ()))
    phase = phase_of(progress, "comparing", total)
    reports = iter(run(kept.of(_check_derived), tasks, progress=phase, name="check: derived files"))
    for work in works:
        index_reports = [next(reports) for _ in work.index]
        for report in (*index_reports, *(next(reports) for _ in work.queues)):
            work.result.add(Finding.from_report(values) for values in report["findings"])
        if work.ledger is not None:
            work.result.add(work.ledger.findings([next(reports) for _ in work.ledger.tasks]))
        _follow_index(work, index_reports)
        work.result.add(_checkpoint_findings(work))
        work.result.findings = [
            replace(finding, store=work.result.store, path=work.shown(finding.path)) for finding in work.result.findings
        ]
    kept.forget()
    return [work.result for work in works]


def _plan(
    number: int, root: Path, settings: StoreSettings, split_bytes: int, *, use: StoreUse, opened: ExitStack
) -> _Work:
    store = with_readable_segments(find_store_files(root, settings))
    if store.paths.is_configured:
        check_log_is_there(store)
    refuse_reading(root, except_for=CHECKABLE)
    geometry, rules = robust_geometry(store, settings), sampled_rules(store, settings)
    store, queue_root = opened.enter_context(with_queue_files(store, geometry.queue_file_bytes))
    splits = plan_splits(
        store, geometry.segment_bytes, split_bytes=split_bytes, store_number=number, until=use.confirmed_to(store)
    )
    has_ext_queues = any(store.ext_queues.values())
    heads = tuple(IndexHead(str(file.path), _header_of(file.path)) for file in store.index_files)
    layout, queue_file_bytes = geometry.index_layout, geometry.queue_file_bytes
    batch_topics, upgraded_at = topics_with_batch_queues(store), untagged_before(store, settings, rules)
    tasks = [
        CheckSplitTask(
            split,
            str(queue_root),
            rules_of_split(split, rules, upgraded_at),
            queue_file_bytes,
            has_ext_queues,
            heads,
            layout,
            batch_topics,
        )
        for split in cut_at(splits, upgraded_at)
    ]
    result = StoreCheck(str(root))
    return _Work(store, geometry, rules, tasks, result, use, queue_root, heads=heads, upgraded_at=upgraded_at)


def _header_of(path: Path) -> IndexHeader:
    """Read the header of an index file; an invalid one counts as empty, and is checked later."""
    with path.open("rb") as opened:
        try:
            return decode_header(opened.read(INDEX_HEADER.size_bytes))
        except FormatError:
            return IndexHeader()


def _check_splits(run: Runner, works: Sequence[_Work], kept: ReportCache, progress: PhaseProgress | None) -> None:
    tasks = [task for work in works for task in work.tasks]
    phase = phase_of(progress, "reading", sum(task.split.stop - task.split.start for task in tasks))
    reports = run(kept.of(check_split), tasks, progress=phase, name="check: log")
    proved = validate_reports(reports, tasks, lambda again: run(kept.of(check_split), again, name="check: prove"))
    start = 0
    for work in works:
        stop = start + len(work.tasks)
        result = work.result
        result.log_bytes = sum(task.split.stop - task.split.start for task in work.tasks)
        empty_last = work.last_may_be_empty
        result.add(segment_findings(work.store, work.geometry.segment_bytes, last_may_be_empty=empty_last))
        for report in proved[start:stop]:
            if report is not None:
                derivation = SplitDerivation.from_report(report)
                work.derivations.append(derivation)
                work.matched_keys.append(report["matched_keys"])
                work.missing += [tuple(run_of_units) for run_of_units in report["missing"]]
                work.last_present = max(work.last_present, report["last_present"])
                result.units += report["units_seen"]
                result.messages += derivation.walk.message_count
                if derivation.walk.message_count:
                    result.log_end = derivation.walk.split.base + derivation.walk.next_position
        start = stop


def _follow_queues(work: _Work) -> None:
    """Follow queues through the splits, and separate units that are missing from units that are not dispatched yet."""
    result = work.result
    recreations = drop_earlier_topics(work.store, work.derivations, use=work.use)
    for derivation in work.derivations:
        result.findings += derivation.findings
        result.finding_count += derivation.finding_count
    work.ends, disorder = order_findings(work.derivations)
    result.recreated_topics = recreation_findings(work.store, recreations.begins, recreations.deleted_topics)
    result.ends = work.ends
    result.queues = len(work.ends)
    result.keys = sum(derivation.key_count for derivation in work.derivations)
    result.last_stored_ms = max((derivation.last_timestamp_ms for derivation in work.derivations), default=0)
    result.add(disorder)
    derived_from = work.recovery_start
    derived_nothing = work.derives_all and not any(work.store.queues.values())
    missing = (
        units
        for units in work.missing
        if units[4] >= recreations.begins.get(units[:2], 0) and units[:2] not in recreations.deleted
    )
    with_files = {topic for (topic, _), files in work.store.queues.items() if files}
    for queue, first, count, physical_offset in _joined(missing):
        is_at_end = first + count == work.ends[queue].next_offset
        base = first * ENTRY_BYTES // work.geometry.queue_file_bytes * work.geometry.queue_file_bytes
        path = work.queue_root / tree.queue_directory(*queue) / tree.offset_file_name(base)
        # Dispatch follows the log: a file that it had not created yet is for messages after all that it had dispatched.
        is_behind = -1 < work.last_present < physical_offset or work.is_in_use
        is_behind |= path.exists() and physical_offset >= derived_from
        is_behind |= derived_nothing
        if is_at_end and is_behind and work.may_be_behind:
            result.units_behind += count
            continue
        reason = f"{count} messages of the log have no unit" if path.exists() else f"is missing, with {count} units"
        if queue[0] not in with_files and not is_system_topic(queue[0]):
            # A deleted directory looks like that of a topic without messages since it was created again.
            reason += "; so are all queues of this topic, as after it was deleted and created again"
        position = first * ENTRY_BYTES - base if path.exists() else None
        kind = FindingKind.QUEUE_UNIT if path.exists() else FindingKind.QUEUE_FILE
        result.add(
            [Finding(kind, str(path), reason, position, count, topic=queue[0], queue_id=queue[1], queue_offset=first)]
        )


def _joined(missing: Iterable[tuple[str, int, int, int, int]]) -> list[tuple[Queue, int, int, int]]:
    """Join runs of units that follow each other; the physical offset is that of the first."""
    joined: list[tuple[Queue, int, int, int]] = []
    for topic, queue_id, first, count, physical_offset in sorted(missing):
        if joined and joined[-1][0] == (topic, queue_id) and joined[-1][1] + joined[-1][2] == first:
            joined[-1] = (*joined[-1][:2], joined[-1][2] + count, joined[-1][3])
        else:
            joined.append(((topic, queue_id), first, count, physical_offset))
    return joined


def _queue_tasks(work: _Work) -> list[CheckQueuesTask]:
    queues = []
    for (topic, queue_id), files in work.store.queues.items():
        if topic.startswith(LMQ_PREFIX) and not work.rules.multi_dispatch:
            continue  # the settings do not enable light queues
        ends = work.ends.get((topic, queue_id), QueueEnds(_NO_MESSAGE, _NO_MESSAGE))
        named = tuple((str(file.path), file.base, file.size_bytes) for file in files)
        queues.append(CheckedQueue(topic, queue_id, named, ends.first, ends.next_offset))
    groups = [tuple(queues[start : start + _QUEUES_IN_TASK]) for start in range(0, len(queues), _QUEUES_IN_TASK)]
    # An empty log has no record that shows its start.
    log_start = work.log_start if work.result.messages else _NO_MESSAGE
    return [
        CheckQueuesTask(group, work.geometry.queue_file_bytes, log_start, work.last_may_be_empty) for group in groups
    ]


def _index_tasks(work: _Work) -> list[CheckIndexTask]:
    """Return a task for each index file with the splits of its messages; none if the log is damaged."""
    if any(finding.kind in (FindingKind.RECORD, FindingKind.SEGMENT) for finding in work.result.findings):
        return []
    with_messages = [derivation for derivation in work.derivations if derivation.walk.message_count]
    splits = [replace(derivation.walk.split, first=derivation.walk.first) for derivation in with_messages]
    key_ends = list(accumulate(derivation.key_count for derivation in with_messages))
    first_keys = [0, *accumulate(derivation.key_count for derivation in work.derivations)][:-1]
    proofs = prove_entries(work.heads, list(zip(first_keys, work.matched_keys, strict=True)))
    tasks: list[CheckIndexTask] = []
    before: str | None = None
    for head, proof in zip(work.heads, proofs, strict=True):
        chosen, keys_before = _splits_between(splits, key_ends, head.header)
        layout, path = work.geometry.index_layout, head.path
        tasks.append(
            CheckIndexTask(
                path,
                before,
                layout,
                work.rules,
                chosen,
                keys_before,
                work.log_start,
                proof,
                work.upgraded_at,
                may_be_empty=work.store.abort is not None and head is work.heads[-1],
            )
        )
        before = path
    work.result.index_files = len(tasks)
    return tasks


def _splits_between(
    splits: Sequence[LogSplit], key_ends: Sequence[int], header: IndexHeader
) -> tuple[tuple[LogSplit, ...], int]:
    """Return the splits with the messages of an index file, and the number of keys before them."""
    begin, end = header.begin_physical_offset, header.end_physical_offset
    wanted = [
        number
        for number, split in enumerate(splits)
        if split.base + split.stop > begin and split.base + (split.first or 0) <= end
    ]
    if not wanted:
        return (), 0
    return tuple(splits[wanted[0] : wanted[-1] + 1]), key_ends[wanted[0] - 1] if wanted[0] else 0


def _follow_index(work: _Work, reports: Sequence[dict[str, Any]]) -> None:
    """Follow the keys of the log through the index files: none may be left out between two of them."""
    if work.derives_all and not work.store.index_files:
        work.result.keys_behind = work.result.keys
    if not work.index or any(finding.kind == FindingKind.INDEX for finding in work.result.findings):
        return
    expected: int | None = None
    for task, report in zip(work.index, reports, strict=True):
        first = report["first_key"]
        if first is None:
            continue
        is_first_of_log = expected is None and task.before is None and first > 0
        if is_first_of_log or (expected is not None and first + report["repeated"] != expected):
            reason = f"begins with key {first} of the log, the file before it ends before key {expected or 0}"
            work.result.add([Finding(FindingKind.INDEX, task.path, reason, count=abs(first - (expected or 0)))])
        expected = first + report["key_count"]
    left = work.result.keys - (expected or 0)
    if left and work.may_be_behind:
        work.result.keys_behind = left
    elif left:
        path = work.index[-1].path
        work.result.add(
            [Finding(FindingKind.INDEX, path, f"the last {left} keys of the log are in no index file", count=left)]
        )


def _check_derived(task: CheckIndexTask | CheckQueuesTask | CheckEntriesTask) -> dict[str, Any]:
    if isinstance(task, CheckQueuesTask):
        return check_queues(task)
    if isinstance(task, CheckEntriesTask):
        return check_entries(task)
    return check_index(task) | {"scanned_bytes": sum(split.stop - split.start for split in task.splits)}


def _checkpoint_findings(work: _Work) -> list[Finding]:
    """Return findings for fields of the checkpoint that the log contradicts."""
    file = work.store.checkpoint
    if file is None:
        return []
    path = str(file.path)
    if file.size_bytes != CHECKPOINT_BYTES:
        if not work.result.messages:
            return []  # nothing to come back to, and brokers give it its size
        return [
            Finding(FindingKind.CHECKPOINT, path, f"has {file.size_bytes} bytes, a checkpoint has {CHECKPOINT_BYTES}")
        ]
    checkpoint = decode_checkpoint(file.path.read_bytes())
    last_ms = work.result.last_stored_ms
    findings = []
    # That of a broker that was killed in its first minute has no times either.
    is_young = work.store.abort is not None and last_ms - _first_stored_ms(work.store) < _FIRST_CHECKPOINT_MS
    says_nothing = checkpoint.physic_msg_timestamp_ms == checkpoint.logics_msg_timestamp_ms == 0
    if says_nothing and work.result.messages and not is_young and not work.is_in_use:
        findings.append("has no times: after the next crash a broker would read the whole log")
    for name in ("physic_msg_timestamp_ms", "logics_msg_timestamp_ms", "index_msg_timestamp_ms"):
        said = getattr(checkpoint, name)
        if said > last_ms and work.result.messages and not work.is_in_use:
            findings.append(f"{name} is {said}, the last message of the log was stored at {last_ms}")
        elif said < 0:
            findings.append(f"{name} is {said}, which is invalid")
    for name in ("master_flushed_physical_offset", "confirm_physical_offset", "logics_physical_offset"):
        said = getattr(checkpoint, name)
        if said > work.result.log_end and not work.is_in_use:
            findings.append(f"{name} is {said}, the log ends at {work.result.log_end}")
    return [Finding(FindingKind.CHECKPOINT, path, reason) for reason in findings]


def _first_stored_ms(store: StoreFiles) -> int:
    """Return when the first message of a log was stored; 0 if it is unreadable, or was deleted."""
    if not store.segments or store.segments[0].base:
        return 0
    with mapped_view(store.segments[0].path) as view:
        first = read_log_at(view, 0, store.segments[0].log_format)
    return first.store_timestamp_ms if isinstance(first, Message) else 0
