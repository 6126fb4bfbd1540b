"""AutoSwitch HA frames: the replication wire with epochs, without I/O. Mirrors `AutoSwitchHAConnection`.

    slave to master   state 1 (4), sync from last file (2), learner (2), slave id (8)          handshake
                      state 2 (4), physical offset (8)                                         report
    master to slave   state 1 (4), bytes of entries (4), end (8), last epoch (4), entries      handshake answer
                      state 2 (4), size (4), offset (8), epoch (4), epoch start (8),
                      confirm offset (8), bytes                                                transfer, or heartbeat

An entry is an epoch (4) and the offset at which it starts (8). The handshake comes first on every connection and must
be one write: a Java master parses it from 12 bytes on, although it needs 16.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Generic, NamedTuple, TypeVar

from orbitlog.errors import WireError
from orbitlog.formats.derived.epoch_file import EpochEntry
from orbitlog.formats.java import LONG_MAX

_STATE = struct.Struct(">i")
_HANDSHAKE = struct.Struct(">ihhq")
_ANSWER_HEAD = struct.Struct(">iiqi")
_ENTRY = struct.Struct(">iq")
_REPORT = struct.Struct(">iq")
_TRANSFER_HEAD = struct.Struct(">iiqiqq")
_HANDSHAKE_STATE = 1
_TRANSFER_STATE = 2

ENTRIES_MAX = 1000
"""A Java slave reads the entries into a buffer of this size."""
BODY_BYTES_MAX = 4 * 1024 * 1024
"""Largest transfer; a Java slave has a buffer of 4 MiB for head and body, so a master of it sends less."""
TRANSFER_HEAD_BYTES = _TRANSFER_HEAD.size

FrameT = TypeVar("FrameT")


class Handshake(NamedTuple):
    """First frame of a slave."""

    slave_id: int
    is_learner: bool = False
    syncs_from_last_file: bool = False


class HandshakeAnswer(NamedTuple):
    """A master's log: its end, and the epochs in which it was written."""

    end: int
    last_epoch: int
    entries: tuple[EpochEntry, ...]


class EpochReport(NamedTuple):
    """The end of a slave's log."""

    physical_offset: int


class TransferHead(NamedTuple):
    """Position and epoch of transferred bytes, and the master's confirm offset."""

    body_bytes: int
    physical_offset: int
    epoch: int
    epoch_start: int
    confirm_offset: int


class EpochTransfer(NamedTuple):
    """Bytes of a master's CommitLog; an empty body is a heartbeat."""

    head: TransferHead
    body: bytes


def encode_handshake(handshake: Handshake) -> bytes:
    """Return a slave's first frame."""
    return _HANDSHAKE.pack(_HANDSHAKE_STATE, handshake.syncs_from_last_file, handshake.is_learner, handshake.slave_id)


def encode_handshake_answer(answer: HandshakeAnswer) -> bytes:
    """Return a master's answer; raise `WireError` if it has more entries than a slave can read."""
    if len(answer.entries) > ENTRIES_MAX:
        raise WireError(f"HA handshake: {len(answer.entries)} epochs, at most {ENTRIES_MAX} fit the answer")
    entries = b"".join(_ENTRY.pack(entry.epoch, entry.start_physical_offset) for entry in answer.entries)
    return _ANSWER_HEAD.pack(_HANDSHAKE_STATE, len(entries), answer.end, answer.last_epoch) + entries


def encode_epoch_report(physical_offset: int) -> bytes:
    """Return a slave's report that its log ends at `physical_offset`."""
    return _REPORT.pack(_TRANSFER_STATE, physical_offset)


def encode_epoch_transfer_head(head: TransferHead) -> bytes:
    """Return the header of a transfer; the body follows it on the wire."""
    return _TRANSFER_HEAD.pack(_TRANSFER_STATE, *head)


class _FrameDecoder(Generic[FrameT]):
    """Decodes a stream of one handshake and the frames after it; keeps the bytes of an incomplete frame."""

    def __init__(self) -> None:
        self._kept = bytearray()
        self._is_handshaken = False

    def receive_data(self, data: bytes) -> Iterator[FrameT]:
        """Yield the frames that `data` completes; raise `WireError` if one is invalid."""
        kept = self._kept
        kept += data
        position = 0
        try:
            while (decoded := self._decode(position)) is not None:
                frame, position = decoded
                yield frame
        finally:
            # Also if the caller stops early, or a frame is invalid: the frames before it were taken.
            del kept[:position]

    def _decode(self, position: int) -> tuple[FrameT, int] | None:
        """Return the frame at a position and its end; None if it is incomplete."""
        raise NotImplementedError


class SlaveFrameDecoder(_FrameDecoder[Handshake | EpochReport]):
    """Decodes what a slave sends: one handshake, then reports. Keeps at most 15 bytes."""

    def _decode(self, position: int) -> tuple[Handshake | EpochReport, int] | None:
        end = position + (_REPORT.size if self._is_handshaken else _HANDSHAKE.size)
        if len(self._kept) < end:
            return None
        return self._report(position) if self._is_handshaken else self._handshake(position), end

    def _handshake(self, position: int) -> Handshake:
        state, last_file, learner, slave_id = _HANDSHAKE.unpack_from(self._kept, position)
        if state != _HANDSHAKE_STATE or slave_id < 0:
            raise WireError(
                f"HA handshake: state {state} and slave id {slave_id} are not a valid first frame: the slave speaks"
                " another HA protocol, such as that of a Java broker without enableControllerMode=true"
            )
        self._is_handshaken = True
        return Handshake(slave_id, bool(learner), bool(last_file))

    def _report(self, position: int) -> EpochReport:
        state, physical_offset = _REPORT.unpack_from(self._kept, position)
        if state != _TRANSFER_STATE or physical_offset < 0:
            raise WireError(f"HA report: state {state} and offset {physical_offset} are not a valid report")
        return EpochReport(physical_offset)


class MasterFrameDecoder(_FrameDecoder[HandshakeAnswer | EpochTransfer]):
    """Decodes what a master sends: one handshake answer, then transfers. Keeps at most one incomplete frame."""

    def __init__(self, body_bytes_max: int = BODY_BYTES_MAX) -> None:
        super().__init__()
        self._body_bytes_max = body_bytes_max

    @property
    def kept_bytes(self) -> int:
        return len(self._kept)

    def _decode(self, position: int) -> tuple[HandshakeAnswer | EpochTransfer, int] | None:
        return self._transfer(position) if self._is_handshaken else self._answer(position)

    def _answer(self, position: int) -> tuple[HandshakeAnswer, int] | None:
        kept = self._kept
        if len(kept) - position < _ANSWER_HEAD.size:
            return None
        state, entry_bytes, end, last_epoch = _ANSWER_HEAD.unpack_from(kept, position)
        # The size is checked before its bytes are awaited: a peer cannot make this side buffer more.
        if (
            state != _HANDSHAKE_STATE
            or not 0 <= entry_bytes <= ENTRIES_MAX * _ENTRY.size
            or entry_bytes % _ENTRY.size
            or end < 0
        ):
            raise WireError(
                f"HA handshake: state {state}, end {end} and {entry_bytes} bytes of entries are not a valid answer"
                f" (at most {ENTRIES_MAX} entries); a master outside of the group speaks another HA protocol"
            )
        start = position + _ANSWER_HEAD.size
        if len(kept) - start < entry_bytes:
            return None
        entries = tuple(EpochEntry(*fields) for fields in _ENTRY.iter_unpack(bytes(kept[start : start + entry_bytes])))
        _check_entries(entries, last_epoch)
        self._is_handshaken = True
        return HandshakeAnswer(end, last_epoch, entries), start + entry_bytes

    def _transfer(self, position: int) -> tuple[EpochTransfer, int] | None:
        kept = self._kept
        if len(kept) - position < TRANSFER_HEAD_BYTES:
            return None
        state, *fields = _TRANSFER_HEAD.unpack_from(kept, position)
        head = TransferHead(*fields)
        # A Java master without a log states offset -1 in heartbeats.
        first = 0 if head.body_bytes else -1
        is_size = 0 <= head.body_bytes <= self._body_bytes_max
        if state != _TRANSFER_STATE or not (is_size and first <= head.physical_offset <= LONG_MAX - head.body_bytes):
            raise WireError(
                f"HA transfer: state {state}, offset {head.physical_offset} and size {head.body_bytes} are not a valid"
                f" header (at most {self._body_bytes_max} bytes)"
            )
        start = position + TRANSFER_HEAD_BYTES
        stop = start + head.body_bytes
        if len(kept) < stop:
            return None
        return EpochTransfer(head, bytes(kept[start:stop])), stop


def _check_entries(entries: Sequence[EpochEntry], last_epoch: int) -> None:
    """Raise `WireError` unless epochs and starts grow and the last epoch is the stated one."""
    for earlier, later in pairwise(entries):
        if later.epoch <= earlier.epoch or later.start_physical_offset <= earlier.start_physical_offset:
            raise WireError(f"HA handshake: {later} follows {earlier}; epochs and offsets must increase")
    if entries and (entries[0].start_physical_offset < 0 or entries[0].epoch < 0):
        raise WireError(f"HA handshake: {entries[0]} is not a valid epoch")
    if entries and entries[-1].epoch != last_epoch:
        raise WireError(f"HA handshake: last epoch is {last_epoch}, but the entries end with {entries[-1].epoch}")
