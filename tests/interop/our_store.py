"""A store written by Orbitlog for Apache brokers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from orbitlog.formats import names
from orbitlog.formats.compat import Compat
from orbitlog.formats.delay_levels import STANDARD_LEVELS
from orbitlog.formats.derived.index_layout import IndexLayout
from orbitlog.formats.hosts import parse_host
from orbitlog.formats.records import properties as props
from orbitlog.formats.records.batch import BatchMember, encode_batch, expand_batch
from orbitlog.formats.records.flags import TransactionType
from orbitlog.formats.records.message import Message, make_message
from orbitlog.formats.records.properties import encode_properties
from orbitlog.settings.store_settings import StoreGeometry
from orbitlog.testing.sample_messages import NOTES

GEOMETRY = StoreGeometry(segment_bytes=96 * 1024, queue_file_bytes=1220, index_layout=IndexLayout(307, 905))
DECISIONS = "Decisions"
STORED_BEFORE_MS = 45 * 60_000


@dataclass(frozen=True)
class OurStore:
    """A store that we wrote, and what is in it."""

    root: Path
    compat: Compat
    messages: dict[int, Message]

    @property
    def queue_ends(self) -> dict[tuple[str, int], int]:
        """One past the last queue offset of each queue."""
        ends: dict[tuple[str, int], int] = {}
        for message in self.messages.values():
            if message.transaction_type.enters_queue:
                ends[message.topic, message.queue_id] = message.queue_offset + 1
        return ends

    @property
    def end(self) -> int:
        last = self.messages[max(self.messages)]
        return last.physical_offset + last.size_bytes

    def due(self, now_ms: int) -> list[Message]:
        """Delayed messages whose time has come."""
        waiting = [message for message in self.messages.values() if message.topic == names.SCHEDULE_TOPIC]
        return [
            message
            for message in waiting
            if STANDARD_LEVELS.deliver_timestamp_ms(int(message.properties[props.DELAY]), message.store_timestamp_ms)
            <= now_ms
        ]


def batch_of(count: int, like: Message) -> list[Message]:
    members = [
        BatchMember(f"member {number}".encode(), encode_properties({props.KEYS: f"many-{number}", props.TAGS: "Many"}))
        for number in range(count)
    ]
    return expand_batch(like._replace(topic=NOTES, queue_id=2, body=encode_batch(members), properties_raw=b""))


def decisions(like: Message) -> list[list[Message]]:
    """A committed message enters its queue; prepared and rolled back ones never do."""
    kinds = (TransactionType.COMMIT, TransactionType.PREPARED, TransactionType.ROLLBACK, TransactionType.COMMIT)
    return [
        [
            make_message(
                DECISIONS,
                f"decided {number}".encode(),
                properties={props.KEYS: f"decision-{number}", props.TRANSACTION_PREPARED: "true"},
                born_host=parse_host("192.0.2.9:5"),
                store_host=parse_host("192.0.2.9:5"),
                sys_flag=kind.value,
                born_timestamp_ms=like.born_timestamp_ms,
                store_timestamp_ms=like.store_timestamp_ms,
                prepared_transaction_offset=like.physical_offset if kind is TransactionType.COMMIT else 0,
            )
        ]
        for number, kind in enumerate(kinds)
    ]


def queue_requests(store: OurStore) -> list[tuple[str, str, int]]:
    return [("queue", topic, queue_id) for topic, queue_id in sorted(store.queue_ends)]
