"""Queue and index files of a log, in memory, made by the kernels: the twin of
`formats.derived.derived_files.DerivedFiles`.

For stores that fit into memory, such as those of tests and demonstrations; larger ones hand the builders files instead.
"""

from __future__ import annotations

from orbitlog.formats.derived.derive import DeriveRules, QueueUnit
from orbitlog.formats.derived.index_layout import IndexLayout
from orbitlog.formats.derived.queue_entry import ENTRY_BYTES, PRE_BLANK_RAW, encode_entry, locate_entry
from orbitlog.formats.records.log_format import LogFormat
from orbitlog.formats.records.message import Bytes
from orbitlog.kernels.arrays import np, npt
from orbitlog.kernels.dispatch import DispatchScan
from orbitlog.kernels.index_build import IndexBuilder
from orbitlog.kernels.queue_build import QueueBuilder
from orbitlog.kernels.record_walk import Stop

FileBytes = npt.NDArray[np.uint8]


class Derivation:
    """Everything derived from the segments added so far."""

    def __init__(
        self, rules: DeriveRules, *, queue_file_bytes: int, index_layout: IndexLayout, chunk_rows: int = 16384
    ) -> None:
        self._queue_file_bytes = queue_file_bytes
        self._index_layout = index_layout
        self._scan = DispatchScan(rules, chunk_rows=chunk_rows)
        self._queue_builder = QueueBuilder(queue_file_bytes, self._open_queue_file)
        self._index_builder = IndexBuilder(index_layout, self._open_index_file)
        self.queues: dict[tuple[str, int], dict[int, FileBytes]] = {}
        self.index_files: list[FileBytes] = []
        self.message_count = 0

    def add(
        self,
        segment: Bytes,
        base_physical_offset: int,
        *,
        log_format: LogFormat = LogFormat.ORDINARY,
        check_crc: bool = True,
    ) -> Stop:
        """Add a segment, in the order of the log; returns why it ended."""
        for columns in self._scan.scan(
            segment, base_physical_offset=base_physical_offset, log_format=log_format, check_crc=check_crc
        ):
            self._queue_builder.add(columns)
            self._index_builder.add(columns)
            for unit in self._scan.light_queue_units(segment, columns, base_physical_offset):
                self._put_light_unit(unit)
            self.message_count += len(columns.physical_offset)
        return self._scan.ended[1]

    def _open_queue_file(self, code: int, base: int) -> FileBytes:
        return self._queue_file(self._scan.queues.queue(code), base)

    def _queue_file(self, queue: tuple[str, int], base: int) -> FileBytes:
        files = self.queues.setdefault(queue, {})
        if base not in files:
            files[base] = np.zeros(self._queue_file_bytes, np.uint8)
        return files[base]

    def _open_index_file(self, _store_timestamp_ms: int) -> FileBytes:
        self.index_files.append(np.zeros(self._index_layout.file_bytes, np.uint8))
        return self.index_files[-1]

    def _put_light_unit(self, unit: QueueUnit) -> None:
        base, position = locate_entry(unit.queue_offset, self._queue_file_bytes)
        is_first = (unit.topic, unit.queue_id) not in self.queues
        file = self._queue_file((unit.topic, unit.queue_id), base)
        if is_first:
            file[:position] = np.frombuffer(PRE_BLANK_RAW * (position // ENTRY_BYTES), np.uint8)
        file[position : position + ENTRY_BYTES] = np.frombuffer(encode_entry(unit.entry), np.uint8)
