"""A store on one page: what it is, and its files with their meaning."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from orbitlog.console.explorer.store_reading import store_files, store_path
from orbitlog.console.views.answers import Answer
from orbitlog.errors import FormatError, OrbitlogError
from orbitlog.formats.derived.checkpoint import CHECKPOINT, decode_checkpoint
from orbitlog.storefiles.mapped_view import mapped_view
from orbitlog.storefiles.store_files import StoreFiles

if TYPE_CHECKING:
    from orbitlog.doctor.explanation import Explanation

_ENTRIES_MAX = 500


class StoreRow(Answer, kw_only=True):
    """A store directory of this console."""

    name: str
    path: str
    problem: str | None = None
    segments: int | None = None
    queues: int | None = None
    log_bytes: int | None = None


class StoreListing(Answer, kw_only=True):
    """The store directories that the start named."""

    items: list[StoreRow]


class FileRow(Answer, kw_only=True):
    """A file or group of files of a store, and its meaning."""

    path: str
    size: int
    meaning: str
    link: str | None = None


class FactRow(Answer, kw_only=True):
    """One fact about a store."""

    name: str
    value: str


class TopicSizeRow(Answer, kw_only=True):
    """One topic of a store."""

    topic: str
    queues: int
    messages: int
    stored_bytes: int


class StoreAnswer(Answer, kw_only=True):
    """One store."""

    name: str
    path: str
    facts: list[FactRow]
    topics: list[TopicSizeRow]
    files: list[FileRow]
    checkpoint: list[FactRow]
    files_left_out: int = 0
    problems: list[str] = msgspec.field(default_factory=list)


def list_stores(stores: dict[str, Path]) -> StoreListing:
    return StoreListing(items=[_store_row(stores, name) for name in stores])


def _store_row(stores: dict[str, Path], name: str) -> StoreRow:
    path = stores[name]
    try:
        found = store_files(stores, name)
    except (OrbitlogError, OSError) as error:
        return StoreRow(name=name, path=str(path), problem=str(error))
    size = sum(segment.size_bytes for segment in found.segments)
    return StoreRow(name=name, path=str(path), segments=len(found.segments), queues=len(found.queues), log_bytes=size)


def show_store(stores: dict[str, Path], name: str) -> StoreAnswer:
    """Return what a store is; parts that cannot be read are listed as problems."""
    from orbitlog.doctor.explanation import explain  # loads numba, 80 MB that a console without stores does not need

    path = store_path(stores, name)
    found = store_files(stores, name)
    problems: list[str] = []
    facts: list[FactRow] = []
    topics: list[TopicSizeRow] = []
    try:
        explained = explain(path)
        facts = list(_facts(explained))
        topics = [
            TopicSizeRow(topic=one.topic, queues=one.queues, messages=one.messages, stored_bytes=one.stored_bytes)
            for one in explained.topics[:_ENTRIES_MAX]
        ]
    except OrbitlogError as error:
        problems.append(str(error))
    rows = list(_files(found))
    return StoreAnswer(
        name=name,
        path=str(path),
        facts=facts,
        topics=topics,
        files=rows[:_ENTRIES_MAX],
        checkpoint=_checkpoint(found, problems),
        files_left_out=max(0, len(rows) - _ENTRIES_MAX),
        problems=problems,
    )


def _facts(found: Explanation) -> Iterable[FactRow]:
    signs = f", for it has {', '.join(found.signs)}" if found.signs else ""
    values: dict[str, Any] = {
        "written by": f"a broker of {found.compat}{signs}",
        "brokers": ", ".join(found.store_hosts[:4]) or "unknown",
        "closed cleanly": "yes" if found.was_closed else "no: a broker uses it, or was killed",
        "log": f"{found.segments} segments of {found.segment_bytes} bytes, offset {found.log_start} to {found.log_end}",
        "DLedger": found.dledger,
        "index files": found.index_files,
        "groups": f"{found.groups} with committed offsets",
        "delayed": sum(found.pending_delays.values()),
        "half messages": found.pending_transactions,
        "timer messages": found.pending_timers,
    }
    for name, value in values.items():
        if value is not None:
            yield FactRow(name=name, value=str(value))


def _files(found: StoreFiles) -> Iterable[FileRow]:
    def shown(path: Path) -> str:
        try:
            return path.relative_to(found.root.resolve()).as_posix()
        except ValueError:
            return path.as_posix()

    for segment in found.segments:
        meaning = f"log segment from physical offset {segment.base}"
        yield FileRow(
            path=shown(segment.path), size=segment.size_bytes, meaning=meaning, link=f"log?start={segment.base}"
        )
    for (topic, queue_id), files in sorted(found.queues.items()):
        size = sum(file.size_bytes for file in files)
        meaning = f"ConsumeQueue: where the messages of {topic} queue {queue_id} are in the log"
        yield FileRow(path=shown(files[0].path.parent), size=size, meaning=meaning, link=f"queues/{queue_id}/{topic}")
    for number, file in enumerate(found.index_files):
        meaning = "index: messages by key and id"
        yield FileRow(path=shown(file.path), size=file.size_bytes, meaning=meaning, link=f"index/{number}")
    for file in found.config_files:
        yield FileRow(path=shown(file.path), size=file.size_bytes, meaning="configuration or offsets, as JSON")
    singles = {
        "progress of flushes; recovery starts here": found.checkpoint,
        "exists while a broker runs, or after a crash": found.abort,
        "lock of the running broker": found.lock,
        "timer wheel": found.timer_wheel,
    }
    for meaning, single in singles.items():
        if single is not None:
            yield FileRow(path=shown(single.path), size=single.size_bytes, meaning=meaning)
    for entry in found.foreign:
        yield FileRow(path=shown(entry.path), size=0, meaning=f"not part of a store: {entry.reason}")


def _checkpoint(found: StoreFiles, problems: list[str]) -> list[FactRow]:
    if found.checkpoint is None:
        return []
    try:
        with mapped_view(found.checkpoint.path) as view:
            checkpoint = decode_checkpoint(view)
    except (FormatError, OSError) as error:
        problems.append(f"checkpoint: {error}")
        return []
    return [FactRow(name=field.name, value=str(getattr(checkpoint, field.name))) for field in CHECKPOINT.fields]
