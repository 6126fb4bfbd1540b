"""Recovery note: offsets and queues survive encoding; a torn or damaged note is rejected."""

from __future__ import annotations

import pytest

from orbitlog.errors import FormatError
from orbitlog.formats.derived.store_state import RecoveryNote, decode_recovery_note, encode_recovery_note

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
