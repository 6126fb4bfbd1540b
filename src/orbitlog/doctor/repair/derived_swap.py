"""Derived files made anew and brought into a store by a journal: queue by queue, the index, the checkpoint last."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from orbitlog.doctor.finding_kinds import DerivedPart
from orbitlog.doctor.repair.repair_journal import RepairJournal
from orbitlog.formats import store_tree as tree
from orbitlog.formats.derived import checkpoint
from orbitlog.formats.derived.dispatch_marks import MARKS_FILE
from orbitlog.formats.derived.index_layout import INDEX_HEADER
from orbitlog.formats.derived.store_state import STATE_FILE
from orbitlog.jobs.local_runner import PhaseProgress, Runner
from orbitlog.jobs.log_splits import SPLIT_BYTES_DEFAULT
from orbitlog.jobs.rebuild.store_rebuild import StoreRebuild, rebuild_with
from orbitlog.jobs.staging import TEMPORARY, put_bytes
from orbitlog.settings.store_settings import StoreSettings
from orbitlog.storefiles.store_files import StoreFiles, find_index_files, find_queues

QUEUES, INDEX, CHECKPOINT = DerivedPart.QUEUES, DerivedPart.INDEX, DerivedPart.CHECKPOINT
PARTS = tuple(DerivedPart)
Queue = tuple[str, int]
_TIME_BYTES = 8
_INDEX_END = INDEX_HEADER.position("end_timestamp_ms")


def make_derived(
    run: Runner,
    root: Path,
    out: Path,
    settings: StoreSettings,
    *,
    split_bytes: int = SPLIT_BYTES_DEFAULT,
    accept_lost_segments: bool = False,
    progress: PhaseProgress | None = None,
) -> StoreRebuild:
    """Derive everything from the log into a directory of its own."""
    (result,) = rebuild_with(
        run,
        [root],
        out=out,
        settings=settings,
        split_bytes=split_bytes,
        accept_lost_segments=accept_lost_segments,
        progress=progress,
    )
    return result


def plan_swap(
    journal: RepairJournal,
    store: StoreFiles,
    made: Path,
    *,
    parts: Collection[str],
    queues: Collection[Queue] | None = None,
    topic: str | None = None,
    vouches_for_index: bool = False,
) -> None:
    """Plan to bring in what was made: all queues, or those named, or those of a topic.

    A queue of which the log has no message stays, unless it is named: it knows up to where its offsets were used.
    The checkpoint is as a broker writes it; or it `vouches_for_index`, its last file too, whatever happens next.
    """
    root = store.root
    for name in (STATE_FILE, MARKS_FILE):
        if (root / name).exists():
            journal.set_aside(root / name, "vouches for files that are replaced")
    if QUEUES in parts:
        new = find_queues(made / tree.CONSUMEQUEUE)
        for topic_path in sorted({(root / tree.queue_directory(*queue)).parent for queue in new}):
            if os.path.lexists(topic_path) and not topic_path.is_dir():
                journal.set_aside(topic_path, "is in the place of a topic's queues")
        for queue in sorted(new):
            if (queues is None or queue in queues) and (topic is None or queue[0] == topic):
                directory = tree.queue_directory(*queue)
                journal.replace(made / directory, root / directory, "made again from the log")
        for queue in sorted(set(queues or ()) - new.keys()):
            directory = root / tree.queue_directory(*queue)
            if directory.exists():
                journal.set_aside(directory, "the log has no message of this queue")
    if vouches_for_index:
        _vouch_for_index(journal, made)
    _plan_index_and_checkpoint(journal, store, made, parts)


def _vouch_for_index(journal: RepairJournal, made: Path) -> None:
    """Let the checkpoint that was made say that the index is complete: Java's broker may be killed any time."""
    path = made / tree.CHECKPOINT
    ends = [_index_end(file.path) for file in find_index_files(made / tree.INDEX)]
    if ends and path.exists():
        put_bytes(path, _with_index_time(path.read_bytes(), max(ends)), journal.place / TEMPORARY)


def _index_end(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(INDEX_HEADER.size_bytes)[_INDEX_END : _INDEX_END + _TIME_BYTES]


def _with_index_time(raw: bytes, index_time: bytes) -> bytes:
    until = checkpoint.CHECKPOINT.position("index_msg_timestamp_ms")
    return raw[:until] + index_time + raw[until + _TIME_BYTES :]


def _plan_index_and_checkpoint(journal: RepairJournal, store: StoreFiles, made: Path, parts: Collection[str]) -> None:
    root = store.root
    if INDEX in parts:
        journal.replace(made / tree.INDEX, root / tree.INDEX, "made again from the log")
        if CHECKPOINT not in parts:
            _plan_index_time(journal, store, made)
    if CHECKPOINT in parts and (made / tree.CHECKPOINT).exists():
        journal.replace(made / tree.CHECKPOINT, root / tree.CHECKPOINT, "made again from the log")
    elif CHECKPOINT in parts and os.path.lexists(root / tree.CHECKPOINT):
        journal.set_aside(root / tree.CHECKPOINT, "tells of messages, and the log has none")


def _plan_index_time(journal: RepairJournal, store: StoreFiles, made: Path) -> None:
    """Let the checkpoint that stands say of the index what the new one says, and nothing else: queues may be behind."""
    new, old = made / tree.CHECKPOINT, store.checkpoint
    if not new.exists() or old is None or old.size_bytes != checkpoint.CHECKPOINT_BYTES:
        return
    # A Java broker that was killed removes the index files of which it does not.
    until = checkpoint.CHECKPOINT.position("index_msg_timestamp_ms")
    raw = old.path.read_bytes()
    told = _with_index_time(raw, new.read_bytes()[until : until + _TIME_BYTES])
    if told != raw:
        journal.put_file(old.path, told, "says that the index is complete")
