"""Bits of the sysFlag field: what a record says about its own body, hosts and transaction.

Mirrors Java `MessageSysFlag`. The values are on disk: never change one.
"""

from __future__ import annotations

from enum import IntEnum

COMPRESSED = 0x1
MULTI_TAGS = 0x2
BORN_HOST_IPV6 = 0x10
STORE_HOST_IPV6 = 0x20
NEED_UNWRAP = 0x40
INNER_BATCH = 0x80

TRANSACTION_MASK = 0xC
COMPRESSION_MASK = 0x700
_COMPRESSION_SHIFT = 8


class TransactionType(IntEnum):
    """Where a record stands in a transaction (bits 2 and 3)."""

    NONE = 0x0
    PREPARED = 0x4
    COMMIT = 0x8
    ROLLBACK = 0xC

    @property
    def enters_queue(self) -> bool:
        """Only ordinary and committed messages get a ConsumeQueue unit and a queue offset of their own."""
        return enters_queue(self)

    @property
    def enters_index(self) -> bool:
        return self is not TransactionType.ROLLBACK


class CompressionType(IntEnum):
    """How a compressed body was compressed (bits 8 to 10); 0 is what clients before 4.9.4 wrote: zlib."""

    UNSPECIFIED = 0
    LZ4 = 1
    ZSTD = 2
    ZLIB = 3


def transaction_type(sys_flag: int) -> TransactionType:
    return TransactionType(sys_flag & TRANSACTION_MASK)


def enters_queue(sys_flag: int) -> bool:
    """Tell from the bits alone what `TransactionType.enters_queue` says: prepared and rolled back share one."""
    return not sys_flag & TransactionType.PREPARED


def with_transaction_type(sys_flag: int, kind: TransactionType) -> int:
    return sys_flag & ~TRANSACTION_MASK | kind


def compression_type(sys_flag: int) -> CompressionType | None:
    """Return the codec of a compressed body, or None where the three bits name none."""
    code = (sys_flag & COMPRESSION_MASK) >> _COMPRESSION_SHIFT
    return CompressionType(code) if code <= CompressionType.ZLIB else None


def with_compression(sys_flag: int, kind: CompressionType) -> int:
    """Mark the body as compressed with `kind`."""
    return sys_flag & ~COMPRESSION_MASK | COMPRESSED | kind << _COMPRESSION_SHIFT
