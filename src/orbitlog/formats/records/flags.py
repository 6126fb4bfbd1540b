"""Bits of the sysFlag field: compression of the body, address families of the hosts, transaction state.

Mirrors Java `MessageSysFlag`. The values are on disk: never change one.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, overload

COMPRESSED = 0x1
MULTI_TAGS = 0x2
BORN_HOST_IPV6 = 0x10
STORE_HOST_IPV6 = 0x20
NEED_UNWRAP = 0x40
INNER_BATCH = 0x80

TRANSACTION_MASK = 0xC
COMPRESSION_MASK = 0x700
_COMPRESSION_SHIFT = 8
# Set in PREPARED (0x4) and ROLLBACK (0xC), clear in NONE and COMMIT: this one bit keeps a message out of its queue.
OUT_OF_QUEUE_BIT = 0x4


class TransactionType(IntEnum):
    """The transaction state of a record (bits 2 and 3)."""

    NONE = 0x0
    PREPARED = 0x4
    COMMIT = 0x8
    ROLLBACK = 0xC

    @property
    def enters_queue(self) -> bool:
        """Only messages outside a transaction and committed ones get a ConsumeQueue unit and a queue offset."""
        return enters_queue(int(self))

    @property
    def enters_index(self) -> bool:
        return self is not TransactionType.ROLLBACK


class CompressionType(IntEnum):
    """The codec of a compressed body (bits 8 to 10); 0, as written by clients before 4.9.4, means zlib."""

    UNSPECIFIED = 0
    LZ4 = 1
    ZSTD = 2
    ZLIB = 3


def transaction_type(sys_flag: int) -> TransactionType:
    return TransactionType(sys_flag & TRANSACTION_MASK)


@overload
def enters_queue(sys_flag: int) -> bool: ...
@overload
def enters_queue(sys_flag: Any) -> Any: ...
def enters_queue(sys_flag: Any) -> Any:
    """Return whether a message gets a ConsumeQueue unit; of a numpy column of sysFlags, a column of truths.

    Kernels compile this function, so it may use nothing but operators and constants.
    """
    return sys_flag & OUT_OF_QUEUE_BIT == 0


def with_transaction_type(sys_flag: int, kind: TransactionType) -> int:
    return sys_flag & ~TRANSACTION_MASK | kind


def compression_type(sys_flag: int) -> CompressionType | None:
    """Return the codec of a compressed body, or None if the three bits name no codec."""
    code = (sys_flag & COMPRESSION_MASK) >> _COMPRESSION_SHIFT
    return CompressionType(code) if code <= CompressionType.ZLIB else None


def with_compression(sys_flag: int, kind: CompressionType) -> int:
    """Mark the body as compressed with `kind`."""
    return sys_flag & ~COMPRESSION_MASK | COMPRESSED | kind << _COMPRESSION_SHIFT
