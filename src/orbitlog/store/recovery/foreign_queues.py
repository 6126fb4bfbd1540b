"""Foreign queues: refuses a store whose queues were derived from another log.

A restored directory, a disk mounted in the place of another one or a copy into the wrong store combines the queues of
one store with the log of another. Both are whole, so nothing ends early. The last units show it: at their
physical offsets the log has other messages, or the middle of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

from orbitlog.errors import FormatError, StoreLayoutError
from orbitlog.formats import names
from orbitlog.formats.derived.derive import DeriveRules, queue_units
from orbitlog.formats.derived.queue_entry import QueueEntry
from orbitlog.formats.records.message import Message
from orbitlog.formats.records.message_scan import read_at
from orbitlog.store.derived.consumequeue import ConsumeQueue
from orbitlog.store.dispatch.arrival import DamagedLog
from orbitlog.store.log.commitlog import CommitLog

if TYPE_CHECKING:
    from orbitlog.store.recovery.store_recovery import FoundStore, StoreParts

# A bit error can make one unit refer to any offset, but not two of them.
_UNITS_READ = 2
# A store with a valid state file is not surveyed: of many queues some are enough.
SAMPLED = 8


def refuse_foreign_queues(
    parts: StoreParts, found: FoundStore, end: int, damage: Sequence[DamagedLog], *, queues_max: int | None = None
) -> None:
    """Raise `StoreLayoutError` if the last units of most queues refer to messages that the log does not have.

    `end` is the end of the log. Units after it, of expired messages and in `damage` are not judged. At most
    `queues_max` queues are looked at.
    """
    judged, foreign = 0, []
    for queue in islice(parts.queues, queues_max):
        entries = [one for one in queue.last_entries(_UNITS_READ, end) if _is_judged(one, parts.log, damage)]
        parts.queues.used(queue)
        # Light queues have units of messages of other topics, and the rules may not derive them.
        if not entries or queue.topic.startswith(names.LMQ_PREFIX):
            continue
        judged += 1
        if not any(_is_in_log(parts.log, queue, entry, found.rules) for entry in entries):
            foreign.append((queue, len(entries)))
    if 2 * len(foreign) <= judged or sum(count for _, count in foreign) < _UNITS_READ:
        return
    directory = foreign[0][0].segments.directory
    raise StoreLayoutError(
        f"store not opened: {len(foreign)} of {judged} queues, the first in {directory}, refer to messages that the log"
        f" in {parts.log.segments.directory} does not have: they are of another store; put the log and the consumequeue"
        " directory of one store together, or move consumequeue and index away to derive them from this log"
    )


def _is_judged(entry: QueueEntry, log: CommitLog, damage: Sequence[DamagedLog]) -> bool:
    place = entry.physical_offset
    if entry.is_pre_blank or place < log.min_physical_offset:
        return False
    return not any(one.physical_offset <= place < one.physical_offset + one.size_bytes for one in damage)


def _is_in_log(log: CommitLog, queue: ConsumeQueue, entry: QueueEntry, rules: DeriveRules) -> bool:
    base = log.segments.base_of(entry.physical_offset)
    if not log.segments.has(base):
        return False
    view = log.segments.file(base).view()
    try:
        found = read_at(view, entry.physical_offset - base, base_physical_offset=base, check_crc=False)
    finally:
        view.release()
    if not isinstance(found, Message):
        return False
    try:
        units = queue_units(found, rules)
    except FormatError:  # one damaged field: the message itself is there
        return True
    return any((unit.topic, unit.queue_id) == (queue.topic, queue.queue_id) for unit in units)
