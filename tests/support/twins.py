"""The two log readers with one interface, so that every case runs against both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from orbitlog.formats.derived.derive import DeriveRules
from orbitlog.formats.derived.derived_files import DerivedFiles
from orbitlog.formats.derived.index_layout import IndexLayout
from orbitlog.formats.records.log_format import LogFormat, find_in_log, scan_log
from orbitlog.formats.records.message import Message
from orbitlog.formats.records.message_scan import Damage, LogEnd, SegmentEnd
from orbitlog.kernels import splits
from orbitlog.kernels.derivation import Derivation
from orbitlog.kernels.record_walk import walk_messages

Buffer = bytes | bytearray | memoryview
QueueKey = tuple[str, int, int]


@dataclass(frozen=True)
class Seen:
    """Positions of messages, and how the walk ended: kind, position, and for damage the error and its message."""

    positions: list[int]
    ending: tuple[str, int, str] | None


def ending_of(stop: SegmentEnd | LogEnd | Damage | None) -> tuple[str, int, str] | None:
    if stop is None:
        return None
    words = f"{type(stop.error).__name__}: {stop.error}" if isinstance(stop, Damage) else ""
    return type(stop).__name__, stop.position, words


@dataclass(frozen=True)
class Derived:
    queues: dict[QueueKey, bytes]
    indexes: list[bytes]


class Twin(Protocol):
    log_format: LogFormat

    def scan(self, buffer: Buffer, base: int | None, *, check_crc: bool = True) -> Seen: ...
    def find_record(self, buffer: Buffer, start: int, base: int) -> int | None: ...
    def derive(
        self, segments: list[tuple[int, bytes]], rules: DeriveRules, queue_bytes: int, layout: IndexLayout
    ) -> Derived: ...


@dataclass(frozen=True)
class Formats:
    log_format: LogFormat = LogFormat.ORDINARY

    def scan(self, buffer: Buffer, base: int | None, *, check_crc: bool = True) -> Seen:
        positions: list[int] = []
        position, stop = 0, None
        for found in scan_log(buffer, 0, self.log_format, base_physical_offset=base, check_crc=check_crc):
            if isinstance(found, Message):
                positions.append(position)
                position += self.log_format.header_bytes + found.size_bytes
            else:
                stop = found
        return Seen(positions, ending_of(stop))

    def find_record(self, buffer: Buffer, start: int, base: int) -> int | None:
        return find_in_log(buffer, start, self.log_format, base_physical_offset=base)

    def derive(
        self, segments: list[tuple[int, bytes]], rules: DeriveRules, queue_bytes: int, layout: IndexLayout
    ) -> Derived:
        files = DerivedFiles(rules, queue_file_bytes=queue_bytes, index_layout=layout)
        for base, data in segments:
            found = scan_log(data, 0, self.log_format, base_physical_offset=base)
            files.add(message for message in found if isinstance(message, Message))
        return as_derived(files)


@dataclass(frozen=True)
class Kernels:
    log_format: LogFormat = LogFormat.ORDINARY

    def scan(self, buffer: Buffer, base: int | None, *, check_crc: bool = True) -> Seen:
        walk = walk_messages(buffer, base_physical_offset=base, log_format=self.log_format, check_crc=check_crc)
        return Seen(walk.positions.tolist(), ending_of(walk.stop))

    def find_record(self, buffer: Buffer, start: int, base: int) -> int | None:
        return splits.find_record(buffer, start, base_physical_offset=base, log_format=self.log_format)

    def derive(
        self, segments: list[tuple[int, bytes]], rules: DeriveRules, queue_bytes: int, layout: IndexLayout
    ) -> Derived:
        # Small chunks, so that every case also crosses from one to the next.
        derivation = Derivation(rules, queue_file_bytes=queue_bytes, index_layout=layout, chunk_rows=7)
        for base, data in segments:
            derivation.add(data, base, log_format=self.log_format)
        return as_derived(derivation)


def as_derived(files: DerivedFiles | Derivation) -> Derived:
    queues = {(*queue, base): bytes(file) for queue, held in files.queues.items() for base, file in held.items()}
    return Derived(queues, [bytes(file) for file in files.index_files])


FORMATS, KERNELS = Formats(), Kernels()
TWINS: dict[str, Twin] = {"formats": FORMATS, "kernels": KERNELS}
DLEDGER_FORMATS, DLEDGER_KERNELS = Formats(LogFormat.DLEDGER), Kernels(LogFormat.DLEDGER)
DLEDGER_TWINS: dict[str, Twin] = {"formats": DLEDGER_FORMATS, "kernels": DLEDGER_KERNELS}
