"""Queues as the log has them: which messages keep their places, which say a wrong queue offset, what is left out.

The messages of a queue are in the log in the order of their queue offsets. A message that breaks the order has a wrong
offset; one that is left out must have lain in a damaged range between its neighbours, and there must have been room for
it. So the heaviest chain of messages that can be true is taken for true, and the others are given the offsets between.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from orbitlog.doctor.surveys.lost_messages import LogRange
from orbitlog.formats.derived.derive import DeriveRules
from orbitlog.jobs.log_splits import plan_splits
from orbitlog.jobs.split_derivation import derive_split
from orbitlog.kernels.arrays import np, npt
from orbitlog.settings.store_settings import StoreGeometry
from orbitlog.storefiles.store_files import StoreFiles

_RECORD_BYTES_MIN = 92
_RUNS_MAX = 2000
_NEAR = 100
_FREE_MAX = 2000
Queue = tuple[str, int]
Places = npt.NDArray[np.int64]


class Run(NamedTuple):
    """Messages whose queue offsets follow each other, from `first` on, at these physical offsets."""

    first: int
    places: Places

    @property
    def end(self) -> int:
        return self.first + len(self.places)


class Gap(NamedTuple):
    """Queue offsets that a queue leaves out, and the physical offsets between which their messages were."""

    first: int
    stop: int
    after: int
    before: int


@dataclass(slots=True)
class Line:
    """Order of a queue: gaps, and by physical offset the queue offsets that messages should have."""

    gaps: list[Gap] = field(default_factory=list)
    moved: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Room:
    """Where messages can have been lost: damaged ranges, and messages that may belong to other queues than they say."""

    ranges: tuple[LogRange, ...]
    strangers: tuple[int, ...] = ()

    def between(self, after: int, before: int) -> int:
        """Count the messages that can have been lost between two physical offsets."""
        spans = (min(one.stop, before) - max(one.start, after) for one in self.ranges)
        fitting = sum(span // _RECORD_BYTES_MIN for span in spans if span > 0)
        return fitting + sum(after < place < before for place in self.strangers)


def read_runs(
    store: StoreFiles, geometry: StoreGeometry, rules: DeriveRules, queues: Collection[Queue]
) -> dict[Queue, list[Run]]:
    """Read the messages of some queues from the log."""
    found: dict[Queue, list[Run]] = {queue: [] for queue in queues}
    for split in plan_splits(store, geometry.segment_bytes, split_bytes=geometry.segment_bytes):
        derivation, units, _ = derive_split(split, rules, queue_file_bytes=geometry.queue_file_bytes, check_crc=True)
        for part in derivation.slices:
            runs = found.get(derivation.queues[part.queue])
            if runs is None:
                continue
            places = units["physical_offset"][part.place : part.place + part.unit_count].astype(np.int64)
            if runs and runs[-1].end == part.first:
                runs[-1] = Run(runs[-1].first, np.concatenate((runs[-1].places, places)))
            else:
                runs.append(Run(part.first, places))
    return found


def solve_order(runs: Sequence[Run], room: Room, *, log_start: int) -> Line | None:
    """Return the right order of a queue; None if it is ambiguous."""
    chain = _heaviest_chain(runs, room, has_beginning=log_start == 0) if len(runs) <= _RUNS_MAX else []
    if not chain:
        return None
    line = Line()
    edges = [None, *chain, None]
    for left, right in pairwise(edges):
        inside = runs[0 if left is None else left + 1 : len(runs) if right is None else right]
        # Several that agree are not damage: the topic was created again, or messages are lost.
        if any(len(run.places) > 1 for run in inside):
            return None
        after = -1 if left is None else int(runs[left].places[-1])
        before = None if right is None else int(runs[right].places[0])
        stated = [(int(place), run.first + at) for run in inside for at, place in enumerate(run.places)]
        begin = 0 if left is None else runs[left].end
        # So may they have before the last message, if it is only a little ahead.
        if right is None and any(begin < said < begin + _NEAR for _, said in stated):
            return None
        if left is None and log_start > 0 and right is not None:
            begin = max(runs[right].first - len(stated), 0)
        stop = begin + len(stated) if right is None else runs[right].first
        if not _settle(line, stated, room, begin, stop, after, before):
            return None
    return line


def _heaviest_chain(runs: Sequence[Run], room: Room, *, has_beginning: bool) -> list[int]:
    """Return the numbers of runs that can all be true and hold the most messages."""
    best: list[tuple[int, int | None]] = []
    counts = [0, *np.cumsum([len(run.places) for run in runs]).tolist()]
    for number, run in enumerate(runs):
        is_first = run.first >= 0
        if is_first and has_beginning:
            is_first = run.first <= counts[number] + room.between(-1, int(run.places[0]))
        weight, before = (len(run.places), None) if is_first else (-1, None)
        for earlier in range(number):
            total = best[earlier][0] + len(run.places)
            left_out = run.first - runs[earlier].end
            if best[earlier][0] < 0 or left_out < 0 or total <= weight:
                continue
            between = counts[number] - counts[earlier + 1]
            if left_out <= between + room.between(int(runs[earlier].places[-1]), int(run.places[0])):
                weight, before = total, earlier
        best.append((weight, before))
    last: int | None = max(range(len(runs)), key=lambda number: best[number][0], default=None)
    chain: list[int] = []
    while last is not None and best[last][0] > 0:
        chain.insert(0, last)
        last = best[last][1]
    return chain


def _settle(  # noqa: PLR0917
    line: Line, stated: Sequence[tuple[int, int]], room: Room, begin: int, stop: int, after: int, before: int | None
) -> bool:
    """Give the messages between two true ones their offsets, and note what is left out; False if they are too many."""
    if len(stated) > stop - begin:
        return False
    chosen = _choose(stated, begin, stop, room, after, before)
    edges = [(begin - 1, after), *zip(chosen, (place for place, _ in stated), strict=True)]
    if before is not None:
        edges.append((stop, before))
    for (left, left_place), (right, right_place) in pairwise(edges):
        if right - left > 1:
            line.gaps.append(Gap(left + 1, right, left_place, right_place))
    line.moved |= {place: right for (place, said), right in zip(stated, chosen, strict=True) if right != said}
    return True


def _choose(  # noqa: PLR0917
    stated: Sequence[tuple[int, int]], begin: int, stop: int, room: Room, after: int, before: int | None
) -> list[int]:
    """Choose rising offsets between two bounds: with room for what is lost, and near to what was stated, in bits."""
    free = stop - begin
    if len(stated) == free or free > _FREE_MAX:
        return list(range(begin, begin + len(stated)))
    # By offset of the message before: how many bits differ so far, and the offsets that were chosen.
    options: dict[int, tuple[int, list[int]]] = {begin - 1: (0, [])}
    place_before = after
    for number, (place, said) in enumerate(stated):
        fits = room.between(place_before, place)
        following: dict[int, tuple[int, list[int]]] = {}
        for offset_before, (cost, chosen) in options.items():
            last = stop - (len(stated) - number)
            for queue_offset in range(offset_before + 1, min(offset_before + 1 + fits, last) + 1):
                total = cost + ((queue_offset ^ said) & ((1 << 64) - 1)).bit_count()
                if queue_offset not in following or total < following[queue_offset][0]:
                    following[queue_offset] = (total, [*chosen, queue_offset])
        options, place_before = following, place
    if before is not None:
        fits = room.between(place_before, before)
        options = {last: found for last, found in options.items() if stop - 1 - last <= fits} or options
    return min(options.values(), default=(0, list(range(begin, begin + len(stated)))))[1]


def gaps_of(lines: dict[Queue, Line]) -> Iterator[tuple[Queue, Gap]]:
    for queue, line in lines.items():
        for gap in line.gaps:
            yield queue, gap
