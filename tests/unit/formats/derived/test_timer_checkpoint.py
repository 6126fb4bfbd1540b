from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitlog.errors import Truncated
from orbitlog.formats.derived.timer_checkpoint import (
    TIMER_CHECKPOINT_BYTES,
    TIMER_CHECKPOINT_FILE,
    TimerCheckpoint,
    decode_timer_checkpoint,
    encode_timer_checkpoint,
    encode_timer_checkpoint_fields,
)
from orbitlog.formats.java import LONG_MAX, LONG_MIN
from orbitlog.testing.golden import GoldenStore
from tests.support.damage import repeatable


def test_golden_file(golden_550_crash: GoldenStore) -> None:
    raw = (golden_550_crash.store / "config" / TIMER_CHECKPOINT_FILE).read_bytes()
    checkpoint = decode_timer_checkpoint(raw)
    assert checkpoint == TimerCheckpoint(
        last_read_time_ms=0x1A1DE6217C8,
        last_log_flush_position=1508,
        last_queue_offset=29,
        master_queue_offset=29,
        state_version=0,
        version_timestamp_ms=0x1A1DE6218FC,
        version_counter=58,
    )
    assert encode_timer_checkpoint(checkpoint) == raw


def test_the_form_without_a_data_version() -> None:
    raw = encode_timer_checkpoint_fields(TimerCheckpoint(1, 2, 3, 4, 5, 6, 7))
    assert len(raw) == 56
    assert decode_timer_checkpoint(raw[:32]) == TimerCheckpoint(1, 2, 3, 4)


@pytest.mark.parametrize("length", [*range(32), *range(33, 56)])
def test_every_other_length_is_too_short(length: int) -> None:
    with pytest.raises(Truncated):
        decode_timer_checkpoint(bytes(56)[:length])


@repeatable
@given(st.lists(st.integers(LONG_MIN, LONG_MAX), min_size=7, max_size=7))
def test_round_trip(values: list[int]) -> None:
    checkpoint = TimerCheckpoint(*values)
    assert decode_timer_checkpoint(encode_timer_checkpoint_fields(checkpoint)) == checkpoint
    whole = encode_timer_checkpoint(checkpoint)
    assert len(whole) == TIMER_CHECKPOINT_BYTES
    assert decode_timer_checkpoint(whole) == checkpoint
