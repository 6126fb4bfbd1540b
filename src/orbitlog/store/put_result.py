"""What becomes of a message that a store was asked to take, in Java's words."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class PutStatus(Enum):
    """Java's PutMessageStatus; the first four mean that the message is stored."""

    PUT_OK = "PUT_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    SERVICE_NOT_AVAILABLE = "SERVICE_NOT_AVAILABLE"
    MESSAGE_ILLEGAL = "MESSAGE_ILLEGAL"
    PROPERTIES_SIZE_EXCEEDED = "PROPERTIES_SIZE_EXCEEDED"
    CREATE_MAPPED_FILE_FAILED = "CREATE_MAPPED_FILE_FAILED"
    UNKNOWN_ERROR = "UNKNOWN_ERROR"


@dataclass(frozen=True, slots=True)
class PutResult:
    """Where the message went; `reason` says in a sentence why it went nowhere."""

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
        """The physical offset that must be flushed for this message to be on the disk."""
        return self.physical_offset + self.size_bytes
