"""A message as a consumer sees it, and how pulled bytes become messages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property

from orbitlog.formats import names, properties
from orbitlog.formats.compression import inflate_body
from orbitlog.formats.message import Message, decode_message
from orbitlog.formats.message_id import OffsetMessageId


@dataclass(frozen=True)
class Received:
    """One message of a queue."""

    stored: Message
    broker_name: str

    @cached_property
    def properties(self) -> dict[str, str]:
        return self.stored.properties

    @cached_property
    def body(self) -> bytes:
        """The body as it was sent; inflated here if it was compressed."""
        return inflate_body(self.stored.body, self.stored.sys_flag)

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def topic(self) -> str:
        """The topic it was sent to, also when it comes back for a retry."""
        if self.stored.topic.startswith(names.RETRY_PREFIX):
            return self.properties.get(properties.RETRY_TOPIC, self.stored.topic)
        return self.stored.topic

    @property
    def tags(self) -> str | None:
        return self.properties.get(properties.TAGS)

    @property
    def keys(self) -> list[str]:
        return self.properties.get(properties.KEYS, "").split()

    @property
    def message_id(self) -> str:
        """The id that the sender gave, or the broker's if there is none."""
        return self.properties.get(properties.UNIQ_KEY) or self.offset_message_id

    @property
    def offset_message_id(self) -> str:
        return str(OffsetMessageId(self.stored.store_host, self.stored.physical_offset))

    @property
    def queue_id(self) -> int:
        return self.stored.queue_id

    @property
    def queue_offset(self) -> int:
        return self.stored.queue_offset

    @property
    def attempts(self) -> int:
        """How many times it was consumed before, in vain."""
        return self.stored.reconsume_times

    @property
    def born_at(self) -> datetime:
        return datetime.fromtimestamp(self.stored.born_timestamp_ms / 1000, UTC)

    @property
    def stored_at(self) -> datetime:
        return datetime.fromtimestamp(self.stored.store_timestamp_ms / 1000, UTC)


def decode_pulled(body: bytes) -> Iterator[Message]:
    """Cut the body of a pull's answer into messages."""
    position = 0
    while position < len(body):
        yield decode_message(body, position)
        position += int.from_bytes(body[position : position + 4], "big")
