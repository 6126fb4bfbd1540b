"""epochFileCheckpoint: which stretch of the log was written under which master (5.x, controller mode).

A text: the number of entries, a CRC, then `epoch-start` lines. The CRC is that of the lines with their newlines,
top bit cleared; 0 means "not checked". Each epoch ends where the next one starts. Mirrors Java `EpochFileCache` and
`CheckpointFile`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from zlib import crc32

from orbitlog.errors import BadField, ChecksumMismatch, LengthMismatch, LimitExceeded, Truncated
from orbitlog.formats.java import INT_MAX, LONG_MAX

EPOCH_FILE = "epochFileCheckpoint"
EPOCH_FILE_CHARACTERS_MAX = 1024 * 1024

_CRC_MASK = 0x7FFFFFFF
_CRC_NOT_CHECKED = 0
_NUMBER = re.compile(r"[0-9]{1,10}")
_ENTRY = re.compile(r"([0-9]{1,10})-([0-9]{1,19})")
_LINE_END = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True, slots=True)
class EpochEntry:
    """From `start_physical_offset` on the log was written under the master of this epoch."""

    epoch: int
    start_physical_offset: int


def encode_epoch_file(entries: tuple[EpochEntry, ...]) -> str:
    """Return the text; without epochs Java leaves the file as it was."""
    lines = "".join(f"{entry.epoch}-{entry.start_physical_offset}\n" for entry in entries)
    return f"{len(entries)}\n{_crc(lines)}\n{lines}"


def decode_epoch_file(text: str) -> tuple[EpochEntry, ...]:
    """Return the entries in the order of the file."""
    if len(text) > EPOCH_FILE_CHARACTERS_MAX:
        raise LimitExceeded(field="epoch file", limit=EPOCH_FILE_CHARACTERS_MAX, got=len(text))
    lines = _LINE_END.split(text)
    if lines[-1] == "":
        lines.pop()
    if len(lines) < 2:
        raise Truncated(field="epoch file lines", needed=2, got=len(lines), position=len(text))
    count, stored_crc = _int(lines[0], "epoch count"), _int(lines[1], "epoch crc")
    entries = tuple(_entry(line) for line in lines[2:])
    if len(entries) != count:
        raise LengthMismatch(field="epoch count", stated=count, counted=len(entries))
    computed = _crc("".join(f"{line}\n" for line in lines[2:]))
    if stored_crc not in (_CRC_NOT_CHECKED, computed):
        raise ChecksumMismatch(field="epoch file", stored=stored_crc, computed=computed)
    return entries


def _crc(lines: str) -> int:
    return crc32(lines.encode("ascii")) & _CRC_MASK


def _int(text: str, field: str) -> int:
    if not _NUMBER.fullmatch(text) or int(text) > INT_MAX:
        raise BadField(f"{text[:40]!r} is not a number up to {INT_MAX}", field=field)
    return int(text)


def _entry(line: str) -> EpochEntry:
    match = _ENTRY.fullmatch(line)
    if match is None or int(match[1]) > INT_MAX or int(match[2]) > LONG_MAX:
        raise BadField(f"{line[:40]!r} is not epoch-start", field="epoch entry")
    return EpochEntry(int(match[1]), int(match[2]))
