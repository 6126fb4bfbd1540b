"""Lost messages: what a damaged range of the log contained, according to the queues.

A ConsumeQueue unit has offset and size of its message, so queues know which messages the log has lost: topic, queue,
queue offset and physical offset.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from orbitlog.formats.derived.queue_entry import ENTRY_BYTES
from orbitlog.formats.java import INT_MAX, LONG_MAX
from orbitlog.formats.names import LMQ_PREFIX
from orbitlog.jobs.split_derivation import UNIT
from orbitlog.kernels.arrays import np
from orbitlog.storefiles.findings import Finding, FindingKind
from orbitlog.storefiles.mapped_view import mapped_view, written_until
from orbitlog.storefiles.store_files import StoreFiles

_TOPICS_NAMED_MAX = 5
LOST_RANGES = frozenset((FindingKind.RECORD, FindingKind.SEGMENT, FindingKind.TORN_RECORD))
"""Kinds of findings that are a range of the log whose messages are lost."""


@dataclass(frozen=True, slots=True, order=True)
class LogRange:
    """Bytes of the log that hold no record, as physical offsets."""

    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class LostMessage:
    """A message that a queue unit points to and the log does not have."""

    physical_offset: int
    size_bytes: int
    topic: str
    queue_id: int
    queue_offset: int


def damaged_ranges(findings: Iterable[Finding]) -> list[LogRange]:
    """Return the damaged ranges of the log from findings, joined if they touch."""
    found = sorted(
        LogRange(finding.physical_offset, finding.physical_offset + finding.count)
        for finding in findings
        if finding.kind in LOST_RANGES and finding.physical_offset is not None and finding.count > 0
    )
    joined: list[LogRange] = []
    for one in found:
        if joined and one.start <= joined[-1].stop:
            joined[-1] = LogRange(joined[-1].start, max(joined[-1].stop, one.stop))
        else:
            joined.append(one)
    return joined


def find_lost(store: StoreFiles, ranges: Sequence[LogRange]) -> list[LostMessage]:
    """Return the messages of queue units in the ranges, in the order of the log; `ranges` do not overlap."""
    if not ranges:
        return []
    starts = np.array([one.start for one in ranges], np.int64)
    stops = np.array([min(one.stop, LONG_MAX) for one in ranges], np.int64)
    lost: list[LostMessage] = []
    for (topic, queue_id), files in store.queues.items():
        if topic.startswith(LMQ_PREFIX):
            continue  # its units point to records of other topics
        for file in files:
            lost += _lost_of_file(file.path, topic, queue_id, file.base, starts, stops)
    return sorted(lost, key=lambda message: (message.physical_offset, message.topic, message.queue_id))


def _lost_of_file(  # noqa: PLR0917
    path: Path, topic: str, queue_id: int, base: int, starts: np.ndarray, stops: np.ndarray
) -> list[LostMessage]:
    end = written_until(path)
    with mapped_view(path) as view:
        count = min(end, len(view)) // ENTRY_BYTES
        units = np.frombuffer(view, UNIT, count)
        offsets = units["physical_offset"].astype(np.int64)
        sizes = units["size_bytes"].astype(np.int64)
        del units
    place = np.searchsorted(starts, offsets, side="right") - 1
    inside = (place >= 0) & (offsets + sizes <= stops[place]) & (sizes > 0) & (sizes < INT_MAX)
    first = base // ENTRY_BYTES
    return [
        LostMessage(int(offsets[row]), int(sizes[row]), topic, queue_id, first + row)
        for row in np.flatnonzero(inside).tolist()
    ]


def describe_lost(lost: Sequence[LostMessage]) -> str:
    """Return a phrase with the number of messages by topic."""
    if not lost:
        return "no queue has a unit for it"
    counts = Counter(message.topic for message in lost)
    queues = {(message.topic, message.queue_id) for message in lost}
    noun = "message" if len(lost) == 1 else "messages"
    return f"{len(lost)} {noun} of {len(queues)} queues lost: {named_topics(counts)}"


def describe_units(units: Sequence[LostMessage], where: str = "in it") -> str:
    """Return a phrase with the number of messages by topic, for a part of the log that is missing."""
    if not units:
        return f"no queue has a unit for a message {where}"
    counts = Counter(message.topic for message in units)
    return f"queues have units for {len(units)} messages {where}: {named_topics(counts)}"


def named_topics(counts: Counter[str]) -> str:
    """Return the topics with most messages, and the number of others."""
    named = ", ".join(f"{count} of {topic}" for topic, count in counts.most_common(_TOPICS_NAMED_MAX))
    more = len(counts) - _TOPICS_NAMED_MAX
    return named + (f" and {more} more topics" if more > 0 else "")
