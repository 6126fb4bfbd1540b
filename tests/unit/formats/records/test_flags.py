from __future__ import annotations

import pytest

from orbitlog.formats.records import flags
from orbitlog.formats.records.flags import CompressionType, TransactionType


def test_the_bits_are_those_on_disk() -> None:
    assert (flags.COMPRESSED, flags.MULTI_TAGS, flags.TRANSACTION_MASK) == (0x1, 0x2, 0xC)
    assert (flags.BORN_HOST_IPV6, flags.STORE_HOST_IPV6) == (0x10, 0x20)
    assert (flags.NEED_UNWRAP, flags.INNER_BATCH, flags.COMPRESSION_MASK) == (0x40, 0x80, 0x700)


@pytest.mark.parametrize(
    ("sys_flag", "kind", "enters_queue", "enters_index"),
    [
        (0x0, TransactionType.NONE, True, True),
        (0x4, TransactionType.PREPARED, False, True),
        (0x8, TransactionType.COMMIT, True, True),
        (0xC, TransactionType.ROLLBACK, False, False),
        (0x7F3, TransactionType.NONE, True, True),
        (-1, TransactionType.ROLLBACK, False, False),
    ],
)
def test_transaction_type(sys_flag: int, kind: TransactionType, enters_queue: bool, enters_index: bool) -> None:
    assert flags.transaction_type(sys_flag) is kind
    assert (kind.enters_queue, kind.enters_index) == (enters_queue, enters_index)


@pytest.mark.parametrize("kind", TransactionType)
def test_setting_the_transaction_type_leaves_other_bits(kind: TransactionType) -> None:
    for sys_flag in (0, 0x7FF, -1):
        changed = flags.with_transaction_type(sys_flag, kind)
        assert flags.transaction_type(changed) is kind
        assert changed & ~flags.TRANSACTION_MASK == sys_flag & ~flags.TRANSACTION_MASK


@pytest.mark.parametrize(
    ("kind", "stored"),
    [
        (CompressionType.UNSPECIFIED, 0x001),
        (CompressionType.LZ4, 0x101),
        (CompressionType.ZSTD, 0x201),
        (CompressionType.ZLIB, 0x301),
    ],
)
def test_compression_is_marked_as_clients_mark_it(kind: CompressionType, stored: int) -> None:
    assert flags.with_compression(0, kind) == stored
    assert flags.with_compression(0x700 | 0x10, kind) == stored | 0x10
    assert flags.compression_type(stored) is kind


@pytest.mark.parametrize("code", [4, 5, 6, 7])
def test_four_compression_codes_mean_nothing(code: int) -> None:
    assert flags.compression_type(code << 8 | flags.COMPRESSED) is None
