"""What a broker says about a message that it took."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from orbitlog.formats.message_queue import MessageQueue
from orbitlog.wire.codes import ResponseCode


class SendStatus(StrEnum):
    """How safe the message is; it is stored in every case."""

    SENT = "sent"
    NOT_YET_ON_DISK = "not yet on disk"
    NO_REPLICA = "no replica"
    NOT_YET_REPLICATED = "not yet replicated"


STATUS_OF_CODE = {
    int(ResponseCode.SUCCESS): SendStatus.SENT,
    int(ResponseCode.FLUSH_DISK_TIMEOUT): SendStatus.NOT_YET_ON_DISK,
    int(ResponseCode.SLAVE_NOT_AVAILABLE): SendStatus.NO_REPLICA,
    int(ResponseCode.FLUSH_SLAVE_TIMEOUT): SendStatus.NOT_YET_REPLICATED,
}


@dataclass(frozen=True, slots=True)
class Receipt:
    """Where a message is: `message_id` is the one the client gave, `offset_message_id` the broker's."""

    status: SendStatus
    message_id: str
    offset_message_id: str
    queue: MessageQueue
    queue_offset: int
    transaction_id: str | None = None
    recall_handle: str | None = None
