"""Log repair: restores names and sizes of segments, cuts a torn tail, fills damaged ranges.

Names and sizes come first, because they decide what is read at all; then the log, with placeholders for the messages
that are known to be lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path

from orbitlog.doctor.examination import Examination
from orbitlog.doctor.repair.displaced_records import MAGIC, MAGIC_POSITION
from orbitlog.doctor.repair.log_filling import CannotFill, Placeholder, fill
from orbitlog.doctor.repair.placeholder_places import placeholders_of, spots_of
from orbitlog.doctor.repair.plan_journal import PlanJournal
from orbitlog.doctor.repair.property_crc_repair import has_property_crc, plan_property_crcs
from orbitlog.doctor.repair.queue_order import Line
from orbitlog.doctor.surveys.lost_messages import LogRange, describe_lost
from orbitlog.formats.records.message import Message
from orbitlog.formats.records.message_scan import read_at
from orbitlog.storefiles.findings import Finding, FindingKind
from orbitlog.storefiles.mapped_view import end_of_written, holds_data, mapped_view, written_until
from orbitlog.storefiles.store_files import OffsetFile, StoreFiles

Queue = tuple[str, int]
_PLACES_TRIED = 1000
_RECORDS_SAMPLED = 20


def plan_places(journal: PlanJournal, store: StoreFiles, segment_bytes: int, foreign: Sequence[Finding]) -> None:
    """Plan to rename and resize segments, and to quarantine entries that keep brokers from starting."""
    for finding in foreign:
        journal.quarantine(Path(finding.path), "is not a file of the store, and keeps brokers from starting")
    moved = _plan_misplaced(journal, store, segment_bytes) | _plan_strays(journal, store, segment_bytes)
    for segment in store.segments:
        if segment.base not in moved and segment.size_bytes != segment_bytes:
            why = f"has {segment.size_bytes} bytes, a segment has {segment_bytes}"
            journal.resize(segment.path, segment_bytes, why)


def _plan_misplaced(journal: PlanJournal, store: StoreFiles, segment_bytes: int) -> set[int]:
    """Rename segments whose records belong to another one, if that name is free or becomes free."""
    homes = {segment.base: home for segment in store.segments if (home := _home_of(segment, segment_bytes)) is not None}
    present = {segment.base: segment for segment in store.segments}
    # Of those that overlap their neighbour, and whose name no segment can have, likewise.
    away = {base: home for base, home in homes.items() if home != base and home % segment_bytes == 0}
    belongs = _of_this_log({base for base in present if homes.get(base) == base}, set(away.values()), segment_bytes)
    movable: dict[int, int] = {}
    for base, home in sorted(away.items()):
        if home in movable.values() or homes.get(home) == home:
            why = f"holds a second copy of the segment that starts at {home}"
            journal.quarantine(present[base].path, why)
        elif home not in belongs:
            why = f"its records are of a segment at {home}, which this log does not reach: it is another log's"
            journal.quarantine(present[base].path, why)
        else:
            movable[base] = home
    # All into quarantine first, then each to its name: two files may have been swapped.
    made = {}
    displaced = {home for home in movable.values() if home in present and home not in away}
    for home in sorted(displaced):
        journal.quarantine(present[home].path, "has no readable record, and another file belongs here")
    for base, home in movable.items():
        why = f"its records belong to the segment that starts at {home}"
        made[base] = journal.quarantine(present[base].path, why)
    for base, home in movable.items():
        target = store.paths.find_segment(home, segment_bytes)
        journal.put(made[base], target, f"its records are of the segment that starts at {home}")
    return set(away) | displaced


def _of_this_log(standing: set[int], homes: set[int], segment_bytes: int) -> set[int]:
    """Return those bases that are between the segments in place, or next to them: others would leave a gap."""
    if not standing:
        return homes
    first, end = min(standing), max(standing) + segment_bytes
    taken: set[int] = set()
    while near := {home for home in homes - taken if first - segment_bytes <= home <= end}:
        taken |= near
        first, end = min(first, *near), max(end, max(near) + segment_bytes)
    return taken


def _plan_strays(journal: PlanJournal, store: StoreFiles, segment_bytes: int) -> set[int]:
    """Quarantine segments without a record whose base is invalid, or that are past a gap after the last."""
    strays = set()
    for number, segment in enumerate(store.segments):
        is_misaligned = (segment.base - store.segments[0].base) % segment_bytes != 0
        is_last = number == len(store.segments) - 1
        is_apart = is_last and number > 0 and segment.base != store.segments[number - 1].base + segment_bytes
        if _home_of(segment, segment_bytes) is None and (is_misaligned or (is_apart and not holds_data(segment.path))):
            strays.add(segment.base)
            journal.quarantine(segment.path, "has an invalid base, and no record")
    return strays


def _home_of(segment: OffsetFile, segment_bytes: int) -> int | None:
    """Return the base of a segment according to its records; None if it has none.

    The majority of the first ones decides: any of them may be damaged, and a flipped bit makes another segment's offset
    of its own. A body can contain a record of another log: a base that no segment can have counts last.
    """
    homes: Counter[int] = Counter()
    next_position = 0
    with mapped_view(segment.path) as view, view[: written_until(segment.path)] as written:
        places = [match.start() - MAGIC_POSITION for match in islice(MAGIC.finditer(written), _PLACES_TRIED)]
        for position in places:
            found = read_at(written, position) if position >= next_position else None
            if isinstance(found, Message) and found.physical_offset >= position:
                homes[found.physical_offset - position] += 1
                next_position = position + found.size_bytes
            if homes.total() == _RECORDS_SAMPLED:
                break
    named = Counter({home: count for home, count in homes.items() if home % segment_bytes == 0}) or homes
    most = max(named.values(), default=0)
    return segment.base if 0 < most <= named[segment.base] else next((one for one in named if named[one] == most), None)


def plan_log(
    journal: PlanJournal, store: StoreFiles, segment_bytes: int, found: Examination, lines: Mapping[Queue, Line]
) -> list[str]:
    """Plan to cut the tail and to fill ranges; returns what could not be repaired."""
    torn = min(
        (one.physical_offset or 0 for one in found.findings if one.kind is FindingKind.TORN_RECORD), default=None
    )
    log_end = found.check.log_end if torn is None else min(torn, found.check.log_end)
    tail = [one for one in found.ranges if one.start >= log_end]
    inner = [one for one in found.ranges if one.start < log_end]
    problems: list[str] = []
    if tail:
        _plan_cut(journal, store, segment_bytes, max(tail[0].start, log_end), what=_cut_bytes(found, log_end))
    spots = [
        spot
        for one in inner
        for spot in spots_of(one, segment_bytes)
        if not plan_property_crcs(journal, store, spot.start, spot.stop)
    ]
    placeholders, homeless = placeholders_of(store, spots, found, lines)
    for spot in spots:
        problems += _plan_fill(journal, store, segment_bytes, spot, placeholders.get(spot, []))
    if spots:
        problems += [
            f"no damaged range has room for message {one.queue_offset} of {one.topic} queue {one.queue_id}"
            for one in homeless
        ]
    return problems


def _cut_bytes(found: Examination, log_end: int) -> str:
    """Return a clause that states what is cut off at the end of the log."""
    if not any(one.kind is FindingKind.TORN_RECORD for one in found.findings):
        return "are not a record"
    lost = describe_lost([one for one in found.lost if one.physical_offset >= log_end])
    return f"have zeros in place of properties; {lost}"


def _plan_cut(journal: PlanJournal, store: StoreFiles, segment_bytes: int, end: int, *, what: str) -> None:
    """Plan to end the log at `end`: zeros after it, also in later segments.

    None of them is moved away: without it the log would lack a segment, in the middle or before the end of its queues.
    """
    for segment in store.segments:
        if segment.base + segment_bytes <= end:
            continue
        position = max(end - segment.base, 0)
        with mapped_view(segment.path) as view:
            stop = end_of_written(view, position, written_until(segment.path))
        if stop > position:
            why = f"{stop - position} bytes after the last complete record {what}"
            journal.write(segment.path, position, bytes(stop - position), why)


def _plan_fill(
    journal: PlanJournal, store: StoreFiles, segment_bytes: int, spot: LogRange, lost: Sequence[Placeholder]
) -> list[str]:
    """Plan to fill a damaged range of one segment; a missing segment is created."""
    start, stop = spot.start, spot.stop
    base = start // segment_bytes * segment_bytes
    time_ms, ends_segment = _time_near(store, spot), stop == base + segment_bytes
    with_crc = has_property_crc(store, stop) or has_property_crc(store, base)
    try:
        filling = fill(
            start, stop, lost, store_timestamp_ms=time_ms, ends_segment=ends_segment, with_property_crc=with_crc
        )
    except CannotFill as error:
        return [f"physical offset {start} to {stop}: {error}"]
    kept = f"; placeholders for {len(filling.placed)} lost messages" if filling.placed else ""
    why = f"physical offset {start} to {stop} is unreadable{kept}"
    segment = next((one for one in store.segments if one.base == base), None)
    if segment is None:
        journal.put_sparse_file(store.paths.find_segment(base, segment_bytes), filling.data, segment_bytes, why)
    else:
        journal.write(segment.path, start - base, filling.data, why)
    return [f"no room for a placeholder of {one.topic} {one.queue_id}" for one in filling.left_out]


def _time_near(store: StoreFiles, damaged: LogRange) -> int:
    """Return the store timestamp of the first message after a range."""
    for segment in store.segments:
        with mapped_view(segment.path) as view:
            position = max(damaged.stop - segment.base, 0)
            found = read_at(view, position, base_physical_offset=segment.base) if position < len(view) else None
        if isinstance(found, Message):
            return found.store_timestamp_ms
    return 0
