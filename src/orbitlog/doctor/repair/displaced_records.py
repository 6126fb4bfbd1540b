"""Displaced records: valid records with the physical offset of another position; moved there, or corrected.

A record has its own physical offset, so bytes that were written to a wrong position are damage there. If a queue unit
points to the record at its position, the field is wrong; if the position in the field is damaged, it belongs there.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from orbitlog.doctor.repair.header_repair import plan_record, unit_at
from orbitlog.doctor.repair.plan_journal import PlanJournal
from orbitlog.doctor.surveys.lost_messages import LogRange
from orbitlog.formats.records.message import MAGIC_V1, MAGIC_V2, RECORD_PREFIX, Message
from orbitlog.formats.records.message_scan import read_at
from orbitlog.storefiles.mapped_view import mapped_view
from orbitlog.storefiles.store_files import StoreFiles

_RECORDS_MAX = 100_000
MAGIC = re.compile(b"|".join(re.escape(magic.to_bytes(4, "big")) for magic in (MAGIC_V1, MAGIC_V2)))
MAGIC_POSITION = RECORD_PREFIX.position("magic")


@dataclass(frozen=True, slots=True)
class Displaced:
    """A valid record at physical offset `place`, whose field has the offset `home`."""

    place: int
    message: Message

    @property
    def home(self) -> int:
        return self.message.physical_offset

    @property
    def size_bytes(self) -> int:
        return self.message.size_bytes


def plan_displaced(journal: PlanJournal, store: StoreFiles, ranges: Sequence[LogRange]) -> None:
    """Plan to correct the offset of such records, or to move them."""
    found = list(_displaced(store, ranges))
    stays = {one.place for one in found if _unit_place(store, one.message) == one.place}
    for one in found:
        if one.place in stays:
            why = f"has physical offset {one.home}, but its queue points to it here"
            plan_record(journal, store, one.message._replace(physical_offset=one.place), why)
    for one in _movable(found, ranges, stays, store):
        plan_record(journal, store, one.message, f"was at {one.place} and has this physical offset")


def _displaced(store: StoreFiles, ranges: Sequence[LogRange]) -> Iterator[Displaced]:
    """Yield the valid records of each damaged range; shifted bytes begin with the rest of another record."""
    left = _RECORDS_MAX
    for damaged in ranges:
        segment = store.segment_at(damaged.start)
        if segment is None:
            continue
        with mapped_view(segment.path) as view:
            position, end = damaged.start - segment.base, min(damaged.stop - segment.base, len(view))
            while position < end and left:
                found = read_at(view, position)
                if not isinstance(found, Message):
                    magic = MAGIC.search(view, position + MAGIC_POSITION + 1, end)
                    position = magic.start() - MAGIC_POSITION if magic is not None else end
                    continue
                if found.physical_offset != segment.base + position:
                    yield Displaced(segment.base + position, found)
                left -= 1
                position += found.size_bytes


def _movable(
    found: Sequence[Displaced], ranges: Sequence[LogRange], stays: set[int], store: StoreFiles
) -> list[Displaced]:
    """Return the records whose home is damaged and free, or becomes free: no record that stays is overwritten."""
    claims = Counter(one.home for one in found)
    starts = [damaged.start for damaged in ranges]
    moved = [
        one
        for one in found
        if one.place not in stays
        and claims[one.home] == 1
        and (number := bisect_right(starts, one.home) - 1) >= 0
        and one.home + one.size_bytes <= ranges[number].stop
        and _unit_place(store, one.message) in (None, one.home)
        and store.segment_at(one.home) is not None
    ]
    moved = _apart(sorted(moved, key=lambda one: one.home))
    while True:
        places = {one.place for one in moved}
        standing = [one for one in found if one.place not in places]
        kept = [one for one in moved if not _hits(one, standing)]
        if len(kept) == len(moved):
            return moved
        moved = kept


def _apart(ordered: list[Displaced]) -> list[Displaced]:
    """Return those whose homes do not overlap."""
    together = {
        one.place for pair in pairwise(ordered) if pair[0].home + pair[0].size_bytes > pair[1].home for one in pair
    }
    return [one for one in ordered if one.place not in together]


def _hits(one: Displaced, standing: Sequence[Displaced]) -> bool:
    """Return whether a record that stays covers the home of another; `standing` is in the order of the log."""
    number = bisect_right(standing, one.home, key=lambda other: other.place) - 1
    before = standing[number : number + 1] if number >= 0 else ()
    after = standing[number + 1 : number + 2]
    return any(other.place + other.size_bytes > one.home for other in before) or any(
        other.place < one.home + one.size_bytes for other in after
    )


def _unit_place(store: StoreFiles, message: Message) -> int | None:
    """Return the physical offset of the unit for this message, if it has the same size."""
    if not 0 <= message.queue_offset < 1 << 58:
        return None
    unit = unit_at(store, (message.topic, message.queue_id), message.queue_offset)
    return None if unit is None or unit.size_bytes != message.size_bytes else unit.physical_offset
