"""Put results: the outcome of an append, with Java's status names."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from orbitlog.errors import DiskFull, FormatError, LimitExceeded, StoreError


class PutStatus(Enum):
    """Java's PutMessageStatus; the first four mean that the message is stored.

    The statuses of replicas, light queues and the timer are set by a broker, never by the store itself.
    """

    PUT_OK = "PUT_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    SERVICE_NOT_AVAILABLE = "SERVICE_NOT_AVAILABLE"
    MESSAGE_ILLEGAL = "MESSAGE_ILLEGAL"
    PROPERTIES_SIZE_EXCEEDED = "PROPERTIES_SIZE_EXCEEDED"
    CREATE_MAPPED_FILE_FAILED = "CREATE_MAPPED_FILE_FAILED"
    OS_PAGE_CACHE_BUSY = "OS_PAGE_CACHE_BUSY"
    UNKNOWN_ERROR = "UNKNOWN_ERROR"
    IN_SYNC_REPLICAS_NOT_ENOUGH = "IN_SYNC_REPLICAS_NOT_ENOUGH"
    PUT_TO_REMOTE_BROKER_FAIL = "PUT_TO_REMOTE_BROKER_FAIL"
    LMQ_CONSUME_QUEUE_NUM_EXCEEDED = "LMQ_CONSUME_QUEUE_NUM_EXCEEDED"
    WHEEL_TIMER_FLOW_CONTROL = "WHEEL_TIMER_FLOW_CONTROL"
    WHEEL_TIMER_MSG_ILLEGAL = "WHEEL_TIMER_MSG_ILLEGAL"
    WHEEL_TIMER_NOT_ENABLE = "WHEEL_TIMER_NOT_ENABLE"


class PutResult(NamedTuple):
    """Offsets and timestamp of a stored message; `reason` states in a sentence why it was refused.

    A named tuple, not a dataclass: one is created for every message, in a third of the time.
    """

    status: PutStatus
    physical_offset: int = -1
    queue_offset: int = -1
    store_timestamp_ms: int = 0
    size_bytes: int = 0
    reason: str = ""

    @property
    def is_stored(self) -> bool:
        return self.physical_offset >= 0

    @property
    def end(self) -> int:
        """The end of the record: the message is durable when `flushed_to` >= this physical offset."""
        return self.physical_offset + self.size_bytes


def refusal_of(error: FormatError | StoreError) -> PutResult:
    """Return the result, with Java's status, for a message that an error kept out."""
    match error:
        case LimitExceeded(field="properties length"):
            status = PutStatus.PROPERTIES_SIZE_EXCEEDED
        case FormatError():
            status = PutStatus.MESSAGE_ILLEGAL
        case DiskFull():
            status = PutStatus.SERVICE_NOT_AVAILABLE
        case _:
            status = PutStatus.CREATE_MAPPED_FILE_FAILED
    return PutResult(status, reason=str(error))


class AppendedMembers(NamedTuple):
    """Offsets of a batch's members: the first has `queue_offset`, the last ends at physical offset `end`."""

    physical_offsets: list[int]
    queue_offset: int
    end: int
    size_bytes: int
