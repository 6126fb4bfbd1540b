from __future__ import annotations

import pytest

from orbitlog.errors import Truncated
from orbitlog.formats.compat import COMPAT_4_9, COMPAT_5_5
from orbitlog.formats.derived.checkpoint import CHECKPOINT_BYTES, Checkpoint, decode_checkpoint, encode_checkpoint

FULL = Checkpoint(1, 2, 3, 4, 5, 6)


def test_both_directions() -> None:
    raw = encode_checkpoint(FULL, COMPAT_5_5)
    assert len(raw) == CHECKPOINT_BYTES
    assert raw == b"".join(number.to_bytes(8, "big") for number in (1, 2, 3, 4, 5, 6)) + bytes(4048)
    for kind in (bytes, bytearray, memoryview):
        assert decode_checkpoint(kind(raw)) == FULL


def test_4_9_keeps_three_fields() -> None:
    assert decode_checkpoint(encode_checkpoint(FULL, COMPAT_4_9)) == Checkpoint(1, 2, 3)
    assert decode_checkpoint(bytes(7) + b"\1" + bytes(40)) == Checkpoint(1), "what follows the fields is not needed"
    assert encode_checkpoint(Checkpoint(1, 2, 3), COMPAT_4_9) == encode_checkpoint(Checkpoint(1, 2, 3), COMPAT_5_5)


def test_zeros_mean_scan_everything() -> None:
    empty = decode_checkpoint(bytes(CHECKPOINT_BYTES))
    assert empty == Checkpoint()
    assert (empty.min_timestamp_ms, empty.min_timestamp_index_ms) == (0, 0)


@pytest.mark.parametrize("size", [0, 1, 24, 47])
def test_a_checkpoint_cut_short(size: int) -> None:
    with pytest.raises(Truncated) as caught:
        decode_checkpoint(bytes(size))
    assert (caught.value.field, caught.value.needed, caught.value.got) == ("checkpoint", 48, size)


@pytest.mark.parametrize(
    ("physic", "logics", "index", "minimum", "minimum_with_index"),
    [
        (10_000, 20_000, 30_000, 7_000, 7_000),
        (20_000, 10_000, 30_000, 7_000, 7_000),
        (10_000, 10_000, 6_999, 7_000, 6_999),
        (10_000, 10_000, 7_001, 7_000, 7_000),
        (3_000, 9_000, 9_000, 0, 0),
        (3_001, 9_000, 9_000, 1, 1),
        (2_999, 9_000, 9_000, 0, 0),
        (0, 1794732183712, 1794732183712, 0, 0),
        (1794732183712, 1794732183712, 0, 1794732180712, 0),
        (-5, 10_000, 10_000, 0, 0),
    ],
)
def test_offset_up_to_which_everything_is_durable(
    physic: int, logics: int, index: int, minimum: int, minimum_with_index: int
) -> None:
    checkpoint = Checkpoint(physic, logics, index)
    assert checkpoint.min_timestamp_ms == minimum
    assert checkpoint.min_timestamp_index_ms == minimum_with_index
