"""Store state and recovery note survive encoding; torn or damaged ones are rejected."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orbitlog.errors import FormatError
from orbitlog.formats.derived.store_state import (
    STORE_STATE,
    LastRecord,
    RecoveryNote,
    StoreState,
    decode_recovery_note,
    decode_state,
    encode_recovery_note,
    encode_state,
)

NOTES = [
    RecoveryNote(0, 0),
    RecoveryNote(1 << 40, 77, (("Orders", 0),)),
    RecoveryNote(5, 6, (("%RETRY%group", 3), ("Ticks", 65535), ("t" * 127, 0))),
]


@pytest.mark.parametrize("note", NOTES)
def test_recovery_note_round_trips(note: RecoveryNote) -> None:
    assert decode_recovery_note(encode_recovery_note(note)) == note


def test_recovery_note_torn_or_damaged_is_rejected() -> None:
    raw = encode_recovery_note(NOTES[2])
    for size in range(len(raw)):
        with pytest.raises(FormatError):
            decode_recovery_note(raw[:size])
    for position in range(len(raw)):
        with pytest.raises(FormatError):
            decode_recovery_note(raw[:position] + bytes([raw[position] ^ 1]) + raw[position + 1 :])


STATES = [
    StoreState(0, 0, 0, 0, 0, 0),
    StoreState(1 << 40, 77, 3, -1, 1_700_000_000_000, 1_700_000_000_000, LastRecord.of(5, b"a record")),
    StoreState(91, 1, 1, 1, 5, 5, LastRecord(0, 0)),
]


@pytest.mark.parametrize("state", STATES)
def test_state_round_trips(state: StoreState) -> None:
    assert decode_state(encode_state(state)) == state


def test_state_torn_or_damaged_is_rejected() -> None:
    raw = encode_state(STATES[1])
    for size in range(len(raw)):
        if size != STORE_STATE.size_bytes:
            with pytest.raises(FormatError):
                decode_state(raw[:size])
    for position in range(len(raw)):
        with pytest.raises(FormatError):
            decode_state(raw[:position] + bytes([raw[position] ^ 1]) + raw[position + 1 :])


def test_state_of_an_earlier_version_has_no_last_record() -> None:
    assert decode_state(encode_state(STATES[1])[: STORE_STATE.size_bytes]) == replace(STATES[1], last_record=None)


def test_last_record_is_recognized_by_all_of_its_bytes() -> None:
    last = LastRecord.of(5, b"a record")
    assert last.is_in(b"a record") and not last.is_in(b"a recor\0")
