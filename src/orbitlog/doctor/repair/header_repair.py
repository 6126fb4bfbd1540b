"""Header repair: corrects record fields that no checksum covers, from queue units.

A flipped bit in a topic, a queue id or a queue offset leaves a readable record in the wrong queue: its own queue has a
gap, and another one a message too many.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from itertools import chain
from pathlib import Path

from orbitlog.doctor.repair.plan_journal import PlanJournal
from orbitlog.formats.derived.queue_entry import ENTRY_BYTES, QueueEntry, decode_entry
from orbitlog.formats.records.flags import TransactionType, enters_queue, with_transaction_type
from orbitlog.formats.records.message import Message, encode_message
from orbitlog.formats.records.message_scan import read_at
from orbitlog.formats.records.properties import TRANSACTION_PREPARED
from orbitlog.formats.records.property_crc import ends_with_crc, seal_record
from orbitlog.jobs.check.store_check import StoreCheck
from orbitlog.storefiles.findings import Finding, FindingKind
from orbitlog.storefiles.mapped_view import mapped_view
from orbitlog.storefiles.store_files import StoreFiles

OFFSETS_MAX = 100_000
_UNITS_SAMPLED = 1000
_STRANGERS_MAX = 3
Queue = tuple[str, int]


class QueueJumps:
    """Queue offsets that are left out, and those that fall back, from findings about queue order."""

    def __init__(self, findings: Iterable[Finding]) -> None:
        self.jumps: dict[Queue, list[Finding]] = defaultdict(list)
        self.falls: dict[Queue, list[Finding]] = defaultdict(list)
        for finding in findings:
            if finding.kind != FindingKind.QUEUE_ORDER or finding.topic is None or finding.queue_id is None:
                continue
            if finding.queue_offset is None or finding.previous_queue_offset is None:
                continue
            is_jump = finding.queue_offset == finding.previous_queue_offset + 1 + finding.count
            table = self.jumps if is_jump else self.falls
            table[finding.topic, finding.queue_id].append(finding)

    def left_out(self) -> Iterator[tuple[Queue, int, Finding]]:
        """Yield queue offsets that a queue leaves out, each with the finding about the message after it."""
        for queue, findings in self.jumps.items():
            for finding in findings:
                assert finding.queue_offset is not None
                first = finding.queue_offset - finding.count
                for queue_offset in range(first, min(finding.queue_offset, first + OFFSETS_MAX)):
                    yield queue, queue_offset, finding

    def before_falls(self) -> Iterator[tuple[Queue, int]]:
        """Yield the queue offset before each that a queue falls back to: the message before may have a wrong one."""
        for queue, findings in self.falls.items():
            for finding in findings:
                if finding.queue_offset:
                    yield queue, finding.queue_offset - 1


def plan_headers(journal: PlanJournal, store: StoreFiles, check: StoreCheck) -> None:
    """Plan to correct records whose fields contradict the unit that points to them."""
    found = check.findings
    jumps = QueueJumps(found)
    log_has_its_beginning = bool(store.segments) and store.segments[0].base == 0
    odd = {
        queue
        for queue, ends in check.ends.items()
        if queue not in store.queues or (log_has_its_beginning and ends.first > 0)
    }
    odd |= jumps.jumps.keys() | jumps.falls.keys()
    repaired: set[int] = set()
    left_out = ((queue, queue_offset) for queue, queue_offset, _ in jumps.left_out())
    reliable: dict[Queue, bool] = {}
    for queue, queue_offset in chain(left_out, jumps.before_falls(), _stray_units(found)):
        if queue not in reliable:
            reliable[queue] = _is_reliable(store, queue)
        right = _corrected_by_unit(store, queue, queue_offset, odd) if reliable[queue] else None
        if right is not None and right.physical_offset not in repaired:
            repaired.add(right.physical_offset)
            why = f"is message {queue_offset} of {queue[0]} queue {queue[1]}, according to its unit"
            plan_record(journal, store, right, why)


def _stray_units(findings: Iterable[Finding]) -> Iterator[tuple[Queue, int]]:
    """Yield queue and queue offset of units that point to records of other queues or offsets."""
    for one in findings:
        if one.kind == FindingKind.QUEUE_UNIT and one.is_stray_unit and one.topic is not None:
            assert one.queue_id is not None
            assert one.queue_offset is not None
            for queue_offset in range(one.queue_offset, one.queue_offset + min(one.count, OFFSETS_MAX)):
                yield (one.topic, one.queue_id), queue_offset


def _is_reliable(store: StoreFiles, queue: Queue) -> bool:
    """Return whether a queue's files are its own: if most units point to messages of other queues, they are not."""
    agreeing = disagreeing = 0
    files = store.queues.get(queue, ())
    for file in files:
        count = file.size_bytes // ENTRY_BYTES
        for number in range(0, count, max(count * len(files) // _UNITS_SAMPLED, 1)):
            unit = _decoded(file.path, number * ENTRY_BYTES)
            message = None if unit is None else message_at(store, unit.physical_offset)
            if unit is None or message is None or message.size_bytes != unit.size_bytes:
                continue
            own = (message.topic, message.queue_id, message.queue_offset)
            if own == (*queue, file.base // ENTRY_BYTES + number):
                agreeing += 1
            else:
                disagreeing += 1
    return disagreeing <= max(agreeing, _STRANGERS_MAX)


def _corrected_by_unit(store: StoreFiles, queue: Queue, queue_offset: int, odd: Collection[Queue]) -> Message | None:
    """Return the message that a unit points to with corrected fields; None if it is not that unit's.

    The log is right if its messages form a complete queue: files of two queues may have been swapped. And a message
    with a unit in its own queue is right, and the other unit wrong.
    """
    unit = unit_at(store, queue, queue_offset)
    message = None if unit is None else message_at(store, unit.physical_offset)
    if unit is None or message is None or message.size_bytes != unit.size_bytes:
        return None
    if (message.topic, message.queue_id) not in odd:
        return None
    if not enters_queue(message.sys_flag) and message.queue_offset == queue_offset and message.topic == queue[0]:
        # No checksum covers flags, and units point only to messages that enter queues.
        is_of_transaction = message.properties.get(TRANSACTION_PREPARED) == "true"
        kind = TransactionType.COMMIT if is_of_transaction else TransactionType.NONE
        return message._replace(sys_flag=with_transaction_type(message.sys_flag, kind))
    own = unit_at(store, (message.topic, message.queue_id), message.queue_offset)
    if own is not None and own.physical_offset == message.physical_offset:
        return None
    right = message._replace(topic=queue[0], queue_id=queue[1], queue_offset=queue_offset)
    return right if len(right.topic.encode()) == len(message.topic.encode()) else None


def plan_record(journal: PlanJournal, store: StoreFiles, right: Message, why: str) -> None:
    """Plan to write a corrected record of the same size, with a new property CRC."""
    segment = store.segment_at(right.physical_offset)
    assert segment is not None
    record = encode_message(right)
    if ends_with_crc(right.properties_raw):
        record = seal_record(record)
    journal.write(segment.path, right.physical_offset - segment.base, record, why)


def unit_at(store: StoreFiles, queue: Queue, queue_offset: int) -> QueueEntry | None:
    """Return the unit of a queue offset from the queue files, if it is valid."""
    byte = queue_offset * ENTRY_BYTES
    for file in store.queues.get(queue, ()):
        if file.base <= byte and byte + ENTRY_BYTES <= file.base + file.size_bytes:
            return _decoded(file.path, byte - file.base)
    return None


def _decoded(path: Path, position: int) -> QueueEntry | None:
    with path.open("rb") as file:
        file.seek(position)
        raw = file.read(ENTRY_BYTES)
    # An invalid unit proves nothing.
    is_possible = len(raw) == ENTRY_BYTES and raw[0] < 0x80 and raw[8] < 0x80
    entry = decode_entry(raw) if is_possible and raw[8:12] != bytes(4) else None
    return None if entry is None or entry.is_pre_blank else entry


def message_at(store: StoreFiles, physical_offset: int) -> Message | None:
    """Return the message at a physical offset, if there is one."""
    segment = store.segment_at(physical_offset)
    if segment is None:
        return None
    with mapped_view(segment.path) as view:
        found = read_at(view, physical_offset - segment.base, base_physical_offset=segment.base)
    return found if isinstance(found, Message) else None
