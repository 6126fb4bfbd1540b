"""Appender: assigns offsets and timestamps to messages and writes their records to the log.

Four ways in, one commit. `append_run` and `append_members` are fast paths for messages that the caller has checked;
`append` takes one message, `append_batch` several that must share a segment. All end in `_commit`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from orbitlog.errors import FormatError, StoreError
from orbitlog.formats.records.batch_records import encode_records
from orbitlog.formats.records.flags import enters_queue
from orbitlog.formats.records.message import Message, encode_placed, measure_record
from orbitlog.formats.records.properties import CRC_PROPERTY_START
from orbitlog.formats.records.property_crc import encode_sealed_run
from orbitlog.formats.records.record_template import Row, encode_run
from orbitlog.store.appending.put_result import AppendedMembers, PutResult, PutStatus, refusal_of
from orbitlog.store.appending.put_rules import PutRules
from orbitlog.store.availability import Availability
from orbitlog.store.derived.light_queues import LIGHT_QUEUES_MARK, LightQueues
from orbitlog.store.derived.queue_set import QueueKey
from orbitlog.store.log.commitlog import CommitLog
from orbitlog.store.log.property_crc_mode import EncodeRecords, EncodeRun, encode_no_records
from orbitlog.storefiles.store_config import StoreConfig

NowMs = Callable[[], int]
# Properties that are changed before they are stored: see `append_together`.
_find_special = re.compile(b"|".join(map(re.escape, (b"\0", CRC_PROPERTY_START, LIGHT_QUEUES_MARK)))).search
_PUT_OK = PutStatus.PUT_OK
_new_tuple = tuple.__new__  # creates a named tuple in half the time of calling its class


class Appender:
    """Appends to one log; used by one thread.

    `recheck_disks` takes a timestamp and returns why messages are still refused, or an empty string.
    """

    def __init__(
        self,
        log: CommitLog,
        config: StoreConfig,
        now_ms: NowMs,
        availability: Availability,
        recheck_disks: Callable[[int], str],
    ) -> None:
        self._log = log
        self._now_ms = now_ms
        self._availability = availability
        self._recheck_disks = recheck_disks
        self._rules = PutRules(config)
        self._light_queues = LightQueues(config.light_queues, config.rules.compat)
        self._has_property_crc = False
        self._encode_records: EncodeRecords = encode_records
        self._encode_run: EncodeRun = encode_run
        self.last_append_ms = 0
        self.next_queue_offsets: dict[QueueKey, int] = {}
        self.messages_appended = 0
        self.messages_refused = 0

    def start(self, next_queue_offsets: dict[QueueKey, int], last_append_ms: int, *, property_crc: bool) -> None:
        """Continue after the messages that recovery found; with `property_crc`, every record gets one."""
        self.next_queue_offsets = next_queue_offsets
        self.last_append_ms = last_append_ms
        if property_crc:
            self._has_property_crc = True
            self._encode_run = encode_sealed_run
            self._encode_records = encode_no_records  # batches take the slow path

    def use_batch_encoder(self, encode: EncodeRecords) -> None:
        """Encode batches with a kernel, unless records need a property CRC. May be called in any thread."""
        if not self._has_property_crc:
            self._encode_records = encode

    def append(self, message: Message) -> PutResult:
        """Append one message; its queue offset, physical offset and store timestamp are assigned here."""
        if self._has_property_crc or _find_special(message.properties_raw):
            return self.append_batch((message,))[0]
        refusal = self._rules.refuse(message)
        if self._availability.is_limited:
            refusal = self._refuse() or refusal
        if refusal is None:
            queue_key, offsets = (message.topic, message.queue_id), self.next_queue_offsets
            now_ms = max(self._now_ms(), self.last_append_ms)
            is_queued = enters_queue(message.sys_flag)
            queue_offset = offsets.get(queue_key, 0) if is_queued else 0
            try:
                measured = measure_record(message)
                self._log.reserve(measured[0])
                physical_offset = self._log.written_to
                record = encode_placed(measured, queue_offset, physical_offset, now_ms)
            except (FormatError, StoreError) as error:
                refusal = refusal_of(error)
        if refusal is not None:
            self.messages_refused += 1
            return refusal
        self._commit(record, 1, now_ms)
        if is_queued:
            offsets[queue_key] = queue_offset + 1
        return _new_tuple(PutResult, (_PUT_OK, physical_offset, queue_offset, now_ms, len(record), ""))

    def append_run(self, rows: Sequence[Row]) -> list[tuple[int, int]]:
        """Append rows that were received together; return physical and queue offset of each one appended.

        Rows are appended from the first on, as many as fit into the current segment; the rest is for `append`, which
        can start a new one. Each row must be one that `append` would accept.
        """
        if self._availability.is_limited:
            return []
        log = self._log
        now_ms = max(self._now_ms(), self.last_append_ms)
        raw, places = self._encode_run(rows, self.next_queue_offsets, log.written_to, now_ms, log.room_bytes)
        if places:
            self._commit(raw, len(places), now_ms)
        return places

    def append_batch(self, messages: Sequence[Message]) -> list[PutResult]:
        """Append messages that were sent together: all of them in one segment, or none."""
        refuse = self._rules.refuse_batch if len(messages) > 1 else self._rules.refuse_each
        refusal = self._refuse() or refuse(messages)
        if refusal is None and messages:
            try:
                return self._append_together(messages)
            except (FormatError, StoreError) as error:
                refusal = refusal_of(error)
        self.messages_refused += len(messages)
        return [refusal] * len(messages) if refusal else []

    def append_members(self, batch: Message, added: bytes) -> AppendedMembers | None:
        """Append an eligible batch, its body that of the request; return None, with nothing appended, if it is not.

        The caller then splits it and calls `append_batch`, which also states what is invalid.
        """
        queue_key, log = (batch.topic, batch.queue_id), self._log
        if self._refuse() or self._rules.refuse(batch):
            return None
        now_ms = max(self._now_ms(), self.last_append_ms)
        queue_offset = self.next_queue_offsets.get(queue_key, 0)
        records = self._encode_records(batch, added, queue_offset, log.written_to, now_ms)
        if records is None or self._rules.is_too_long(batch, added, len(records.physical_offsets)):
            return None
        try:
            log.reserve(len(records.raw))
        except (FormatError, StoreError):
            return None
        if records.physical_offsets[0] != log.written_to:  # they did not fit, so a new segment was started
            records = self._encode_records(batch, added, queue_offset, log.written_to, now_ms)
            assert records is not None
        raw, physical_offsets = records
        self._commit(raw, len(physical_offsets), now_ms)
        self.next_queue_offsets[queue_key] = queue_offset + len(physical_offsets)
        return AppendedMembers(physical_offsets, queue_offset, log.written_to, len(raw))

    def _append_together(self, messages: Sequence[Message]) -> list[PutResult]:
        """Encode all records before the first is written: an invalid message keeps all of them out."""
        from orbitlog.store.appending.append_together import measure_together, place_together

        now_ms = max(self._now_ms(), self.last_append_ms)
        current, following = self.next_queue_offsets, dict[QueueKey, int]()
        unplaced = measure_together(messages, self._light_queues, current, following, always_crc=self._has_property_crc)
        self._log.reserve(sum(record.measured[0] for record in unplaced))
        records, results = place_together(unplaced, current, following, self._log.written_to, now_ms)
        self._commit(b"".join(records), len(messages), now_ms)
        current.update(following)
        return results

    def _commit(self, records: bytes, count: int, now_ms: int) -> None:
        """Write encoded records, which makes them part of the log, and count them. The only caller of `log.write`."""
        self._log.write(records)
        self.last_append_ms = now_ms  # store timestamps never decrease, even if the clock does
        self.messages_appended += count

    def _refuse(self) -> PutResult | None:
        """Return why no message is accepted now, or None; raise `StoreClosed` if the store is closed."""
        availability = self._availability
        if not availability.is_limited:
            return None
        availability.check_open()
        if reason := availability.failure or availability.replica_reason or availability.fence_reason:
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE, reason=reason)
        if availability.full_disk and (reason := self._recheck_disks(self._now_ms())):
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE, reason=reason)
        return None
