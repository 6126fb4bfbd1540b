"""What to do about a damaged log: files brought to their place and size, a torn tail cut, damaged ranges filled.

Three rounds at most, each planned from a new look at the store: names and sizes first, for they decide what is read at
all; then the log, with placeholders for the messages that are known to be lost; last everything that is derived.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from orbitlog.doctor.examination import Examination
from orbitlog.doctor.header_repair import QueueJumps
from orbitlog.doctor.log_filling import CannotFill, Placeholder, fill
from orbitlog.doctor.lost_messages import LogRange
from orbitlog.doctor.repair_journal import RepairJournal
from orbitlog.errors import FormatError
from orbitlog.formats import names
from orbitlog.formats import store_tree as tree
from orbitlog.formats.flags import enters_queue
from orbitlog.formats.message import Message, decode_message
from orbitlog.formats.message_scan import read_at
from orbitlog.formats.properties import KEYS, TAGS, UNIQ_KEY
from orbitlog.store.findings import Finding
from orbitlog.store.mapped_view import end_of_written, holds_data, mapped_view, written_until
from orbitlog.store.store_files import OffsetFile, StoreFiles

_SAVED_PROPERTIES = (KEYS, TAGS, UNIQ_KEY)
_BEFORE_MAX = 100_000
Queue = tuple[str, int]


def plan_places(journal: RepairJournal, store: StoreFiles, segment_bytes: int, foreign: Sequence[Finding]) -> None:
    """Bring segments to their place and size, and what only is in the way aside."""
    for finding in foreign:
        journal.set_aside(Path(finding.path), "is none of the store's files and keeps brokers from starting")
    moved = _plan_misplaced(journal, store, segment_bytes) | _plan_strays(journal, store, segment_bytes)
    for segment in store.segments:
        if segment.base not in moved and segment.size_bytes != segment_bytes:
            why = f"has {segment.size_bytes} bytes, a segment has {segment_bytes}"
            journal.resize(segment.path, segment_bytes, why)


def _plan_misplaced(journal: RepairJournal, store: StoreFiles, segment_bytes: int) -> set[int]:
    """Rename segments whose records say that they belong elsewhere, if that place is free or becomes so."""
    homes = {segment.base: home for segment in store.segments if (home := _home_of(segment)) is not None}
    present = {segment.base: segment for segment in store.segments}
    # Of those that overlap their neighbour, and whose name no segment can have, likewise.
    away = {base: home for base, home in homes.items() if home != base and home % segment_bytes == 0}
    belongs = _of_this_log(set(present) - set(away), sorted(away.values()), segment_bytes)
    movable: dict[int, int] = {}
    for base, home in sorted(away.items()):
        if home in movable.values() or (home in present and home not in away):
            why = f"holds a second copy of the segment that starts at {home}"
            journal.set_aside(present[base].path, why)
        elif home not in belongs:
            why = f"its records say that it starts at {home}, where this log has nothing: it is another log's"
            journal.set_aside(present[base].path, why)
        else:
            movable[base] = home
    # All aside first, then each to its place: two files may have been swapped.
    made = {}
    for base, home in movable.items():
        why = f"its records belong to the segment that starts at {home}"
        journal.set_aside(present[base].path, why)
        made[base] = journal.root / str(journal.steps[-1].to)
    for base, home in movable.items():
        target = store.root / tree.COMMITLOG / tree.offset_file_name(home)
        journal.put(made[base], target, f"its records say that it starts at {home}")
    return set(away)


def _of_this_log(standing: set[int], homes: Sequence[int], segment_bytes: int) -> set[int]:
    """Return those places that lie between the segments that stand, or next to them: others would leave a hole."""
    if not standing:
        return set(homes)
    first, end = min(standing), max(standing) + segment_bytes
    taken = set()
    for home in homes:
        if first - segment_bytes <= home <= end:
            taken.add(home)
            end = max(end, home + segment_bytes)
    return taken


def _plan_strays(journal: RepairJournal, store: StoreFiles, segment_bytes: int) -> set[int]:
    """Set segments aside that hold no record of their own and lie where none can be, or apart behind the last."""
    strays = set()
    for number, segment in enumerate(store.segments):
        is_misaligned = (segment.base - store.segments[0].base) % segment_bytes != 0
        is_last = number == len(store.segments) - 1
        is_apart = is_last and number > 0 and segment.base != store.segments[number - 1].base + segment_bytes
        if _home_of(segment) is None and (is_misaligned or (is_apart and not holds_data(segment.path))):
            strays.add(segment.base)
            journal.set_aside(segment.path, "lies where no segment can be, and holds no record")
    return strays


def _home_of(segment: OffsetFile) -> int | None:
    """Return the physical offset of a segment's first byte as its first record has it; None where there is none."""
    with mapped_view(segment.path) as view:
        found = read_at(view, 0) if len(view) else None
    return found.physical_offset if isinstance(found, Message) else None


def plan_log(journal: RepairJournal, store: StoreFiles, segment_bytes: int, found: Examination) -> list[str]:
    """Cut the tail, fill ranges; returns what could not be mended."""
    log_end = found.check.log_end
    tail = [one for one in found.ranges if one.start >= log_end]
    inner = [one for one in found.ranges if one.start < log_end]
    problems: list[str] = []
    if tail:
        _plan_cut(journal, store, segment_bytes, max(tail[0].start, log_end))
    placeholders = _placeholders(store, inner, found)
    for one in inner:
        problems += _plan_fill(journal, store, segment_bytes, one, placeholders.get(one, []))
    return problems


def _plan_cut(journal: RepairJournal, store: StoreFiles, segment_bytes: int, end: int) -> None:
    """Let the log end at `end`: zeros behind it, and no segment that holds none of it."""
    for segment in store.segments:
        if segment.base >= end and segment.base > store.segments[0].base:
            if holds_data(segment.path):
                journal.set_aside(segment.path, "lies behind the end of the log and holds no record")
            continue
        if segment.base + segment_bytes <= end:
            continue
        position = max(end - segment.base, 0)
        with mapped_view(segment.path) as view:
            stop = end_of_written(view, position, written_until(segment.path))
        if stop > position:
            why = f"{stop - position} bytes behind the last whole record are no record"
            journal.write(segment.path, position, bytes(stop - position), why)


def _plan_fill(
    journal: RepairJournal, store: StoreFiles, segment_bytes: int, damaged: LogRange, lost: Sequence[Placeholder]
) -> list[str]:
    """Fill one range, segment by segment; a segment that is missing is made."""
    problems = []
    present = {segment.base: segment for segment in store.segments}
    base = damaged.start // segment_bytes * segment_bytes
    time_ms = _time_near(store, damaged)
    while base < damaged.stop:
        start, stop = max(damaged.start, base), min(damaged.stop, base + segment_bytes)
        inside = [one for one in lost if start <= one.physical_offset < stop]
        ends_segment = stop == base + segment_bytes
        try:
            filling = fill(start, stop, inside, store_timestamp_ms=time_ms, ends_segment=ends_segment)
        except CannotFill as error:
            problems.append(f"physical offset {start} to {stop}: {error}")
            base += segment_bytes
            continue
        kept = f"; placeholders for {len(filling.placed)} lost messages" if filling.placed else ""
        why = f"physical offset {start} to {stop} could not be read{kept}"
        segment = present.get(base)
        if segment is None:
            made = journal.new / f"{len(journal.steps)}-segment"
            with made.open("xb") as file:
                file.write(filling.data)
                file.truncate(segment_bytes)
            journal.put(made, store.root / tree.COMMITLOG / tree.offset_file_name(base), why)
        else:
            journal.write(segment.path, start - base, filling.data, why)
        problems += [f"no room for a placeholder of {one.topic} {one.queue_id}" for one in filling.left_out]
        base += segment_bytes
    return problems


def _time_near(store: StoreFiles, damaged: LogRange) -> int:
    """Return the store time of the first message behind a range."""
    for segment in store.segments:
        with mapped_view(segment.path) as view:
            position = max(damaged.stop - segment.base, 0)
            found = read_at(view, position, base_physical_offset=segment.base) if position < len(view) else None
        if isinstance(found, Message):
            return found.store_timestamp_ms
    return 0


def _placeholders(
    store: StoreFiles, ranges: Sequence[LogRange], found: Examination
) -> dict[LogRange, list[Placeholder]]:
    """Say of each range which messages it held: as headers, queue units and gaps in the queues tell."""
    missing = _missing_offsets(found)
    known: dict[tuple[str, int, int], Placeholder] = {}
    for one in _from_headers(store, ranges):
        known[one.topic, one.queue_id, one.queue_offset] = one
    for lost in found.lost:
        key = (lost.topic, lost.queue_id, lost.queue_offset)
        known.setdefault(key, Placeholder(*key, lost.physical_offset))
    table: dict[LogRange, list[Placeholder]] = defaultdict(list)
    for one in _believable(known, missing, found):
        home = next((each for each in ranges if each.start <= one.physical_offset < each.stop), None)
        if home is not None:
            table[home].append(one)
    for home, one in _from_gaps(ranges, missing, known):
        table[home].append(one)
    if ranges and store.segments[0].base == 0:
        for one in _before_the_first(found, known):
            table[ranges[0]].append(replace(one, physical_offset=ranges[0].start))
    return table


def _from_gaps(
    ranges: Sequence[LogRange],
    missing: Mapping[Queue, Mapping[int, int]],
    known: Mapping[tuple[str, int, int], Placeholder],
) -> Iterable[tuple[LogRange, Placeholder]]:
    """Yield what queues leave out and nothing else tells, each with the last range before the message that follows it.

    Of several gaps of a queue only the first can lie in a range: before the others comes a message that is there.
    """
    for (topic, queue_id), offsets in missing.items():
        nearest: dict[LogRange, int] = {}
        for queue_offset, before in sorted(offsets.items()):
            home = next((each for each in reversed(ranges) if each.start < before), None)
            if home is None or nearest.setdefault(home, before) != before:
                continue
            if (topic, queue_id, queue_offset) not in known:
                yield home, Placeholder(topic, queue_id, queue_offset, home.start)


def _believable(
    known: Mapping[tuple[str, int, int], Placeholder], missing: Mapping[Queue, Mapping[int, int]], found: Examination
) -> Iterable[Placeholder]:
    """Yield those that fit what the log has of their queue: in a gap, or joined to its beginning or its end.

    A queue file can be damaged, too, or be another queue's.
    """
    by_queue: dict[Queue, dict[int, Placeholder]] = defaultdict(dict)
    for (topic, queue_id, queue_offset), one in known.items():
        by_queue[topic, queue_id][queue_offset] = one
    for queue, offered in by_queue.items():
        ends = found.check.ends.get(queue)
        first, following = (ends.first, ends.next_offset) if ends else (min(offered), min(offered))
        accepted = {queue_offset for queue_offset in offered if queue_offset in missing.get(queue, ())}
        while following in offered:
            accepted.add(following)
            following += 1
        while first - 1 in offered:
            first -= 1
            accepted.add(first)
        yield from (offered[queue_offset] for queue_offset in sorted(accepted))


def _before_the_first(found: Examination, known: Mapping[tuple[str, int, int], Placeholder]) -> Iterable[Placeholder]:
    """Yield what a queue must have held before its first message, where the log still has its beginning.

    Java takes units that only fill room for messages of the log's first segment, and then skips that segment.
    """
    for (topic, queue_id), ends in found.check.ends.items():
        if not topic.startswith(names.LMQ_PREFIX):
            for queue_offset in range(min(ends.first, _BEFORE_MAX)):
                if (topic, queue_id, queue_offset) not in known:
                    yield Placeholder(topic, queue_id, queue_offset, 0)


def _missing_offsets(found: Examination) -> dict[Queue, dict[int, int]]:
    """Return the offsets that queues leave out, each with a physical offset before which it must have lain.

    A queue that falls back somewhere is left out: then a jump is a wrong offset rather than a gap.
    """
    missing: dict[Queue, dict[int, int]] = defaultdict(dict)
    jumps = QueueJumps(found.check.findings)
    for queue, queue_offset, finding in jumps.left_out():
        if queue in jumps.falls:
            continue
        before = finding.physical_offset
        if before is None:
            base = tree.parse_offset_file_name(Path(finding.path).name) or 0
            before = base + Path(finding.path).stat().st_size
        missing[queue][queue_offset] = before
    return missing


def _from_headers(store: StoreFiles, ranges: Iterable[LogRange]) -> Iterable[Placeholder]:
    """Yield the messages of which only the body is damaged: their headers and properties can be read."""
    for damaged in ranges:
        segment = next((one for one in store.segments if one.base <= damaged.start < one.base + one.size_bytes), None)
        if segment is None:
            continue
        with mapped_view(segment.path) as view:
            position = damaged.start - segment.base
            while position < min(damaged.stop - segment.base, len(view)):
                try:
                    message = decode_message(view, position, physical_offset=segment.base + position, check_crc=False)
                except FormatError:
                    break
                if enters_queue(message.sys_flag):
                    saved = {name: message.properties[name] for name in _SAVED_PROPERTIES if name in message.properties}
                    yield Placeholder(
                        message.topic, message.queue_id, message.queue_offset, message.physical_offset, saved
                    )
                position += message.size_bytes
