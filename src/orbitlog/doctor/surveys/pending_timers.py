"""Messages that wait for their moment, held against the timer log: which of them a Java broker would pass over.

Java puts every message of the timer topic on its wheel once: `timercheck` has the offset up to which it did. A pending
message before that offset must have a unit in the timer log; one without is never delivered.
"""

from __future__ import annotations

from collections.abc import Iterator

from orbitlog.doctor.surveys.timer_survey import timer_checkpoint, units_of
from orbitlog.errors import FormatError
from orbitlog.formats import names
from orbitlog.formats import store_tree as tree
from orbitlog.formats.derived.queue_entry import ENTRY_BYTES
from orbitlog.formats.derived.timer_checkpoint import TimerCheckpoint
from orbitlog.formats.records import timer_message
from orbitlog.formats.records.message import Message
from orbitlog.formats.records.message_scan import read_at
from orbitlog.jobs.split_derivation import UNIT
from orbitlog.kernels.arrays import np, npt
from orbitlog.kernels.row_dtypes import PLACE_DTYPE, places_of
from orbitlog.storefiles.findings import Finding, FindingKind
from orbitlog.storefiles.mapped_view import mapped_view, written_until
from orbitlog.storefiles.store_files import OffsetFile, StoreFiles

# Messages without a unit that are read, the newest first: most were delivered, and their units deleted.
_MESSAGES_MAX = 20_000
Places = npt.NDArray[np.void]


def waiting_findings(store: StoreFiles) -> Iterator[Finding]:
    """Yield a finding for pending messages without a unit in the timer log."""
    checkpoint = timer_checkpoint(store)
    files = store.queues.get((names.TIMER_TOPIC, 0), ())
    if checkpoint is None or not files:
        return
    known = np.unique(np.concatenate([np.zeros(0, PLACE_DTYPE), *map(units_of, store.timer_log)]))
    left, forgotten = _MESSAGES_MAX, 0
    for file in reversed(files):
        without = _not_among(_passed(file, checkpoint.last_queue_offset), known)[::-1][:left]
        left -= len(without)
        forgotten += sum(_still_waits(store, int(place), checkpoint) for place, _ in without)
    if forgotten:
        reason = f"has no units for {forgotten} messages that wait"
        yield Finding(FindingKind.TIMER, str(store.root / tree.TIMER_LOG), reason, count=forgotten)


def _passed(file: OffsetFile, queue_offset: int) -> Places:
    """Return place and size of the messages before an offset to which a file of the timer queue leads."""
    count = min(file.size_bytes, written_until(file.path)) // ENTRY_BYTES
    with mapped_view(file.path) as view:
        units = np.frombuffer(view, UNIT, min(count, max(queue_offset - file.base // ENTRY_BYTES, 0)))
        places = places_of(units["physical_offset"], units["size_bytes"])
        del units
    return places[places["size_bytes"] > 0]


def _not_among(places: Places, known: Places) -> Places:
    """Return the rows that are not in a sorted table."""
    both, inverse = np.unique(np.concatenate([known, places]), return_inverse=True)
    is_known = np.zeros(len(both), np.bool_)
    is_known[inverse[: len(known)]] = True
    return places[~is_known[inverse[len(known) :]]]


def _still_waits(store: StoreFiles, physical_offset: int, checkpoint: TimerCheckpoint) -> bool:
    """Return whether a message is readable, and due after the last second that Java has processed."""
    segment = store.segment_at(physical_offset)
    if segment is None:
        return False
    with mapped_view(segment.path) as view:
        message = read_at(view, physical_offset - segment.base, base_physical_offset=segment.base)
    if not isinstance(message, Message) or message.topic != names.TIMER_TOPIC:
        return False
    try:
        due_ms = timer_message.stored_due_ms(message.properties, message.store_timestamp_ms)
    except (FormatError, KeyError):
        return False
    wake_ms = timer_message.wake_ms(due_ms, message.store_timestamp_ms)
    return wake_ms > checkpoint.last_read_time_ms + timer_message.PRECISION_MS
