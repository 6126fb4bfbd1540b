"""A message as a consumer sees it, and how pulled bytes become messages.

A backlog is millions of these, so a message is a small object over the record as it lies in the log: properties are
decoded and bodies inflated when they are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from orbitlog.client.connection.namespaces import unwrapped
from orbitlog.formats import names
from orbitlog.formats.records import properties
from orbitlog.formats.records.compression import inflate_body
from orbitlog.formats.records.message import Message, decode_message
from orbitlog.formats.records.message_id import OffsetMessageId


class Received:
    """One message of a queue.

    `stored` is the record itself, with everything that is not spelled out here.
    """

    __slots__ = ("_body", "_properties", "broker_name", "local_attempts", "stored")

    def __init__(self, stored: Message, broker_name: str, local_attempts: int = 0) -> None:
        self.stored = stored
        self.broker_name = broker_name
        self.local_attempts = local_attempts
        self._body: bytes | None = None
        self._properties: dict[str, str] | None = None

    def __repr__(self) -> str:
        place = f"{self.broker_name}/{self.stored.topic}/{self.queue_id}@{self.queue_offset}"
        return f"<{type(self).__name__} {self.message_id} at {place}, {len(self.stored.body)} bytes>"

    @property
    def properties(self) -> dict[str, str]:
        if self._properties is None:
            self._properties = self.stored.properties
        return self._properties

    @property
    def body(self) -> bytes:
        """The body as it was sent; inflated here if it was compressed."""
        if self._body is None:
            self._body = inflate_body(self.stored.body, self.stored.sys_flag)
        return self._body

    @property
    def text(self) -> str:
        """The body as text, for those who send text."""
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
        return self.stored.reconsume_times + self.local_attempts

    @property
    def born_at(self) -> datetime:
        return datetime.fromtimestamp(self.stored.born_timestamp_ms / 1000, UTC)

    @property
    def stored_at(self) -> datetime:
        return datetime.fromtimestamp(self.stored.store_timestamp_ms / 1000, UTC)


class SpacedMessage(Received):
    """One whose topic is shown as it is known inside a namespace."""

    __slots__ = ("_namespace",)

    def __init__(self, stored: Message, broker_name: str, namespace: str) -> None:
        super().__init__(stored, broker_name)
        self._namespace = namespace

    @property
    def topic(self) -> str:
        return unwrapped(self._namespace, super().topic)


def decode_pulled(body: bytes) -> Iterator[Message]:
    """Cut the body of a pull's answer into messages."""
    position = 0
    while position < len(body):
        yield decode_message(body, position)
        position += int.from_bytes(body[position : position + 4], "big")
