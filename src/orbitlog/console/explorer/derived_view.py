"""Derived files of a store: units of a ConsumeQueue, and header, slots and entries of an index file."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from orbitlog.console.explorer.store_reading import store_files
from orbitlog.console.views.answers import Answer, ConsoleError, NoQuery
from orbitlog.settings.store_settings import StoreSettings
from orbitlog.storefiles.index_walk import IndexWalk
from orbitlog.storefiles.mapped_view import mapped_view
from orbitlog.storefiles.queue_walk import QueueWalk
from orbitlog.storefiles.store_inference import infer_index_layout, infer_queue_file_bytes

_DAMAGES_SHOWN = 50


class UnitQuery(NoQuery, kw_only=True):
    """Where to start."""

    start: Annotated[int, Meta(ge=0, description="Queue offset or entry number")] = 0
    limit: Annotated[int, Meta(ge=1, le=500)] = 100


class UnitRow(Answer, kw_only=True):
    """One unit of a queue; the tags code has 64 bits, so it is text."""

    queue_offset: int
    physical_offset: int
    size: int
    tags_code: str
    is_filler: bool


class QueueAnswer(Answer, kw_only=True):
    """Units of one queue."""

    store: str
    topic: str
    queue_id: int
    files: int
    items: list[UnitRow]
    damage: list[str]
    next: int | None


class IndexRow(Answer, kw_only=True):
    """One entry of an index file: its slot, and the entry before it in the chain of that slot."""

    number: int
    slot: int
    key_hash: int
    physical_offset: int
    time_diff_seconds: int
    previous_entry: int


class IndexAnswer(Answer, kw_only=True):
    """One index file."""

    store: str
    file: str
    files: int
    number: int
    slots: int
    capacity: int
    keys: int
    used_slots: int
    begin: int | None
    end: int | None
    items: list[IndexRow]
    problems: list[str]
    next: int | None


def show_queue(stores: dict[str, Path], name: str, place: tuple[str, int], query: UnitQuery) -> QueueAnswer:
    """Return units of a queue; topic and queue are looked up in the list of the store's files."""
    found = store_files(stores, name)
    topic, queue_id = place
    files = found.queues.get((topic, queue_id))
    if files is None:
        raise ConsoleError(404, f"the store has no queue {queue_id} of the topic {topic[:130]}")
    everything = [file for one in found.queues.values() for file in one]
    file_bytes = infer_queue_file_bytes(everything, StoreSettings())
    walk = QueueWalk(files, file_bytes, start=query.start)
    rows = [
        UnitRow(
            queue_offset=queue_offset,
            physical_offset=unit.physical_offset,
            size=unit.size_bytes,
            tags_code=str(unit.tags_code),
            is_filler=unit.is_pre_blank,
        )
        for queue_offset, unit in islice(walk.units(), query.limit)
    ]
    following = rows[-1].queue_offset + 1 if len(rows) == query.limit else None
    damage = [str(damage) for damage in walk.damage[:_DAMAGES_SHOWN]]
    return QueueAnswer(
        store=name, topic=topic, queue_id=queue_id, files=len(files), items=rows, damage=damage, next=following
    )


def show_index(stores: dict[str, Path], name: str, number: int, query: UnitQuery) -> IndexAnswer:
    """Return entries of the index file with this number in the list of files."""
    found = store_files(stores, name)
    if not 0 <= number < len(found.index_files):
        raise ConsoleError(404, f"the store has {len(found.index_files)} index files, numbered from 0")
    file = found.index_files[number]
    layout = infer_index_layout(found.index_files, StoreSettings())
    if layout is None:
        raise ConsoleError(404, "the index files have different sizes, so the number of their slots is unknown")
    with mapped_view(file.path) as view:
        walk = IndexWalk(view, layout)
        entries = list(walk.entries())
        problems, header = list(walk.problems), walk.header
    rows = [
        IndexRow(
            number=at,
            slot=entry.key_hash % layout.slot_count,
            key_hash=entry.key_hash,
            physical_offset=entry.physical_offset,
            time_diff_seconds=entry.time_diff_seconds,
            previous_entry=entry.previous_entry,
        )
        for at, entry in entries
        if at >= query.start
    ]
    shown = rows[: query.limit]
    return IndexAnswer(
        store=name,
        file=file.path.name,
        files=len(found.index_files),
        number=number,
        slots=layout.slot_count,
        capacity=layout.capacity,
        keys=header.key_count,
        used_slots=header.hash_slot_count,
        begin=header.begin_timestamp_ms or None,
        end=header.end_timestamp_ms or None,
        items=shown,
        problems=problems[:_DAMAGES_SHOWN],
        next=shown[-1].number + 1 if len(rows) > len(shown) else None,
    )
