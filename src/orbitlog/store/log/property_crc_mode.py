"""Property CRC mode: whether records are appended with `__CRC32#`, and which records of a log lack it.

Java's `enabledAppendPropCRC` asks for it; so does `forceVerifyPropCRC`, for a Java broker with that setting deletes
every record without one at its next start. If neither is given, the store continues as its last records are: a
`broker.conf` that lost the line must not weaken a store that was written with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import nlargest
from typing import TYPE_CHECKING

from orbitlog.errors import FormatError
from orbitlog.formats.records.batch_records import BatchRecords
from orbitlog.formats.records.message import Message, decode_message
from orbitlog.formats.records.message_scan import scan_messages
from orbitlog.formats.records.property_crc import ends_with_crc
from orbitlog.formats.records.record_template import Row, Run
from orbitlog.kernels import COMPILED
from orbitlog.settings.store_settings import APPEND_PROPERTY_CRC, VERIFY_PROPERTY_CRC
from orbitlog.store.derived.queue_set import QueueKey, QueueSet
from orbitlog.store.log.commitlog import CommitLog
from orbitlog.store.store_notices import NoticeSubject, StoreNotice
from orbitlog.storefiles.mapped_view import mapped_view
from orbitlog.storefiles.store_config import PropertyCrc

if TYPE_CHECKING:
    from orbitlog.storefiles.store_files import OffsetFile

EncodeRecords = Callable[[Message, bytes, int, int, int], BatchRecords | None]
EncodeRun = Callable[[Sequence[Row], dict[QueueKey, int], int, int, int], Run]
_RECORDS_SAMPLED = 16
# Java reads the last three segments when it starts, in every version.
_SEGMENTS_READ_BY_JAVA = 3
# Below this size the plain decoder finishes before the kernels are loaded.
_KERNEL_BYTES_MIN = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class RecordsWithoutCrc:
    """Records of a log that end without a property CRC: their number, and the physical offset of the first."""

    count: int = 0
    first_physical_offset: int = -1

    def __add__(self, later: RecordsWithoutCrc) -> RecordsWithoutCrc:
        first = self.first_physical_offset if self.count else later.first_physical_offset
        return RecordsWithoutCrc(self.count + later.count, first)


def encode_no_records(*_: object) -> None:
    """Replace the batch encoder, which appends no property CRC: every batch takes the slow path."""


def infer_mode(wanted: PropertyCrc, log: CommitLog, queues: QueueSet) -> tuple[bool, list[StoreNotice]]:
    """Return whether records are to be appended with a property CRC, and notices that the operator should read."""
    has_crc = _tail_has_crc(log, queues) if wanted.append is not True else True
    notices = []
    if wanted.append is False and has_crc and not wanted.verify:
        sentence = (
            "enabledAppendPropCRC=false, but the last records of the log have a property CRC: records appended from now"
            " on have none. Remove the line, or set it to true, to continue as before"
        )
        notices.append(StoreNotice(NoticeSubject.PROPERTY_CRC, sentence, APPEND_PROPERTY_CRC.key))
    if wanted.verify and (lacking := _lacking(log)).count:
        sentence = (
            f"forceVerifyPropCRC=true, but {lacking.count} records of the log, the first at physical offset"
            f" {lacking.first_physical_offset}, have no property CRC. They are kept and served here. A Java broker that"
            " is started with forceVerifyPropCRC=true deletes the log from that record on: set it to false before this"
            " store goes back to one, until retention has removed them"
        )
        notices.append(StoreNotice(NoticeSubject.PROPERTY_CRC, sentence, VERIFY_PROPERTY_CRC.key))
    return wanted.verify or (has_crc if wanted.append is None else wanted.append), notices


def _tail_has_crc(log: CommitLog, queues: QueueSet) -> bool:
    """Return whether the last record of the log that a queue has carries a valid property CRC."""
    for physical_offset in nlargest(_RECORDS_SAMPLED, _queue_tails(queues)):
        record = log.read_record(physical_offset)
        try:
            message = decode_message(record, physical_offset=physical_offset) if record else None
        except FormatError:
            continue
        # With zero bytes in its properties it has one in any case: see `log_end`.
        if message is not None and 0 not in message.properties_raw:
            return ends_with_crc(message.properties_raw)
    return False


def _queue_tails(queues: QueueSet) -> Iterator[int]:
    for queue in queues:
        physical_offset = queue.last_physical_offset
        queues.used(queue)  # of ten thousand queues only some can be open at a time
        if physical_offset is not None:
            yield physical_offset


def _lacking(log: CommitLog) -> RecordsWithoutCrc:
    """Look through the part of the log that a Java broker reads when it starts."""
    total = RecordsWithoutCrc()
    for base in log.segments.bases[-_SEGMENTS_READ_BY_JAVA:]:
        with log.segments.file(base).view() as view, view[: max(log.written_to - base, 0)] as written:
            total += records_without_crc(written, base)
    return total


def find_records_without_crc(segments: Iterable[OffsetFile]) -> RecordsWithoutCrc:
    """Look through segments of a log for records that a Java broker with `forceVerifyPropCRC` does not accept.

    Damage ends the search of its segment; other code reports it.
    """
    total = RecordsWithoutCrc()
    for segment in segments:
        with mapped_view(segment.path) as view:
            total += records_without_crc(view, segment.base)
    return total


def records_without_crc(view: memoryview, base: int) -> RecordsWithoutCrc:
    """Count the records from the start of a segment on that have no property CRC; they must be readable."""
    if COMPILED and len(view) >= _KERNEL_BYTES_MIN:
        from orbitlog.kernels.property_faults import count_without_crc

        return RecordsWithoutCrc(*count_without_crc(view, base))
    lacking = [
        message.physical_offset
        for message in scan_messages(view, base_physical_offset=base)
        if isinstance(message, Message) and not ends_with_crc(message.properties_raw)
    ]
    return RecordsWithoutCrc(len(lacking), lacking[0]) if lacking else RecordsWithoutCrc()
