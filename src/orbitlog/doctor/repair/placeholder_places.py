"""Placeholder places: which messages a damaged range contained, and where their placeholders go.

Headers, queue units and gaps show them. A placeholder goes to the offset of its message, if that is known; else into a
damaged range between its neighbours, if there is room. Room is counted in placeholders without properties:
`log_filling` leaves those out if they do not fit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from orbitlog.doctor.examination import Examination
from orbitlog.doctor.repair.log_filling import Placeholder, placeholder_bytes_min
from orbitlog.doctor.repair.queue_order import Gap, Line
from orbitlog.doctor.surveys.lost_messages import LogRange
from orbitlog.errors import FormatError
from orbitlog.formats.records.flags import enters_queue
from orbitlog.formats.records.message import decode_message
from orbitlog.formats.records.message_scan import BLANK_BYTES
from orbitlog.formats.records.properties import KEYS, TAGS, UNIQ_KEY
from orbitlog.storefiles.mapped_view import mapped_view
from orbitlog.storefiles.store_files import StoreFiles

_SAVED_PROPERTIES = (KEYS, TAGS, UNIQ_KEY)
_GAP_MAX = 100_000
Queue = tuple[str, int]
Known = Mapping[tuple[str, int, int], Placeholder]


def spots_of(damaged: LogRange, segment_bytes: int) -> Iterator[LogRange]:
    """Cut a range where segments end: no record goes over that."""
    start = damaged.start
    while start < damaged.stop:
        stop = min(start // segment_bytes * segment_bytes + segment_bytes, damaged.stop)
        yield LogRange(start, stop)
        start = stop


def placeholders_of(
    store: StoreFiles, spots: Sequence[LogRange], found: Examination, lines: Mapping[Queue, Line]
) -> tuple[dict[LogRange, list[Placeholder]], list[Placeholder]]:
    """Return the messages of each spot, and those for which there is no room."""
    known: dict[tuple[str, int, int], Placeholder] = {}
    for one in _from_headers(store, spots):
        known[one.topic, one.queue_id, one.queue_offset] = one
    for lost in found.lost:
        key = (lost.topic, lost.queue_id, lost.queue_offset)
        known.setdefault(key, Placeholder(*key, lost.physical_offset))
    missing = {
        queue: {offset for gap in line.gaps for offset in range(gap.first, min(gap.stop, gap.first + _GAP_MAX))}
        for queue, line in lines.items()
    }
    table = _Table(spots)
    settled: dict[tuple[str, int, int], LogRange] = {}
    for one in _believable(known, missing, found):
        home = next((spot for spot in spots if spot.start <= one.physical_offset < spot.stop), None)
        if home is not None:
            settled[one.topic, one.queue_id, one.queue_offset] = home
            table.put(home, one)
    homeless: list[Placeholder] = []
    for queue, line in lines.items():
        for gap in line.gaps:
            homeless += table.put_gap(queue, gap, settled)
    return table.placed, homeless


class _Table:
    """Spots with what was put into them, and how much room is left."""

    def __init__(self, spots: Sequence[LogRange]) -> None:
        self._spots = spots
        self._free = {spot: spot.stop - spot.start - BLANK_BYTES for spot in spots}
        self.placed: dict[LogRange, list[Placeholder]] = defaultdict(list)

    def put(self, spot: LogRange, one: Placeholder) -> None:
        self.placed[spot].append(one)
        self._free[spot] -= placeholder_bytes_min(one.topic)

    def put_gap(
        self, queue: Queue, gap: Gap, settled: Mapping[tuple[str, int, int], LogRange]
    ) -> Iterable[Placeholder]:
        """Put what a queue leaves out into spots, the last message first; yields those that find no room."""
        between = [spot for spot in reversed(self._spots) if spot.start > gap.after and spot.start < gap.before]
        needed = placeholder_bytes_min(queue[0])
        for queue_offset in islice(range(gap.stop - 1, gap.first - 1, -1), _GAP_MAX):
            home = settled.get((*queue, queue_offset))
            if home is not None:
                between = [spot for spot in between if spot.start <= home.start]
                continue
            while between and self._free[between[0]] < needed:
                del between[0]
            one = Placeholder(*queue, queue_offset, between[0].start if between else 0)
            if between:
                self.put(between[0], one)
            else:
                yield one


def _believable(known: Known, missing: Mapping[Queue, set[int]], found: Examination) -> Iterable[Placeholder]:
    """Yield those that fit what the log has of their queue: in a gap, or joined to its beginning or its end.

    A queue file can be damaged as well, or be another queue's.
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


def _from_headers(store: StoreFiles, ranges: Iterable[LogRange]) -> Iterable[Placeholder]:
    """Yield the messages of which only the body is damaged: their headers and properties can be read."""
    for damaged in ranges:
        segment = store.segment_at(damaged.start)
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
