"""Random work for a store, and what was promised about it at every moment.

Small files make common what is rare: segments roll every few dozen messages, queue files end every few units, index
files fill. A `Ledger` knows each message that was taken, byte for byte, and how much of the log was promised.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from orbitlog.formats.derived.derive import DeriveRules
from orbitlog.formats.derived.index_layout import IndexLayout
from orbitlog.formats.derived.queue_entry import ENTRY_BYTES
from orbitlog.formats.names import SCHEDULE_TOPIC
from orbitlog.formats.records.flags import TransactionType
from orbitlog.formats.records.message import Message, encode_message, make_message
from orbitlog.formats.records.properties import DELAY, KEYS, TAGS, UNIQ_KEY
from orbitlog.formats.records.property_crc import seal_record, with_room_for_crc
from orbitlog.settings.store_settings import StoreGeometry
from orbitlog.store.appending.put_result import PutResult
from orbitlog.store.message_store import MessageStore
from orbitlog.storefiles.disk import Disk
from orbitlog.storefiles.store_config import StoreConfig

ROOT = Path("store")
TOPICS = ("Orders", "Ticks", "%RETRY%group")
BEGIN_MS = 1_700_000_000_000


def small_config(chance: Random, *, sync_flush: bool) -> StoreConfig:
    """A store of tiny files."""
    geometry = StoreGeometry(
        segment_bytes=chance.choice([4096, 4096 + 512, 8192]),
        queue_file_bytes=chance.choice([5, 7, 10]) * ENTRY_BYTES,
        index_layout=IndexLayout(slot_count=chance.choice([7, 20]), entry_count=chance.choice([20, 30])),
    )
    return StoreConfig(geometry, DeriveRules(), sync_flush=sync_flush, segment_allocate_bytes=4096)


def random_message(chance: Random, number: int, *, in_batch: bool = False) -> Message:
    """A message of any kind that the store itself treats differently; some of them are not allowed in a batch."""
    topic, properties = chance.choice(TOPICS), {UNIQ_KEY: f"id{number:08}"}
    if chance.random() < 0.5:
        properties[KEYS] = " ".join(f"k{chance.randrange(40)}" for _ in range(chance.randint(1, 3)))
    if chance.random() < 0.3:
        properties[TAGS] = chance.choice(["A", "B", "Übung"])
    if chance.random() < 0.15:
        # Long enough for whole sectors of zeros; the last one may be the last byte of the record.
        properties["zeros"] = "\0" * chance.choice([1, 3, 511, 600, 1200])
    kind, queue_id = TransactionType.NONE, chance.randrange(3)
    if chance.random() < 0.1 and not in_batch:
        topic, properties[DELAY], queue_id = SCHEDULE_TOPIC, "3", 2
    elif chance.random() < 0.2 and not in_batch:
        kind = chance.choice(list(TransactionType))
    body = chance.randbytes(chance.choice([0, 1, 20, 60, 200, 700]))
    return make_message(topic, body, properties=properties, queue_id=queue_id, sys_flag=int(kind), flag=number)


@dataclass
class Clock:
    """Store times; many messages share one."""

    chance: Random
    now_ms: int = BEGIN_MS

    def __call__(self) -> int:
        self.now_ms += self.chance.choice([0, 0, 0, 1, 40, 1500])
        return self.now_ms


@dataclass
class Ledger:
    """Every acknowledged message by its physical offset, and the offset up to which the log is acknowledged."""

    records: dict[int, bytes] = field(default_factory=dict)
    durable_to: int = 0

    def took(self, message: Message, result: PutResult) -> None:
        has_crc = 0 in message.properties_raw
        raw = with_room_for_crc(message.properties_raw) if has_crc else message.properties_raw
        placed = message._replace(
            properties_raw=raw,
            queue_offset=result.queue_offset,
            physical_offset=result.physical_offset,
            store_timestamp_ms=result.store_timestamp_ms,
        )
        record = encode_message(placed)
        self.records[result.physical_offset] = seal_record(record) if has_crc else record

    def forget_from(self, physical_offset: int) -> None:
        """Messages from there on were lost in a crash that allowed it."""
        self.records = {start: record for start, record in self.records.items() if start < physical_offset}
        self.durable_to = min(self.durable_to, physical_offset)

    def copy(self) -> Ledger:
        return Ledger(dict(self.records), self.durable_to)


class Workload:
    """Random steps on one store; the same for the same seed."""

    def __init__(self, seed: int, *, sync_flush: bool) -> None:
        self.chance = Random(seed)
        self.config = small_config(self.chance, sync_flush=sync_flush)
        self.clock = Clock(self.chance)
        self.ledger = Ledger()
        self.store: MessageStore | None = None
        self.sent = 0

    def open(self, disk: Disk) -> MessageStore:
        self.store = MessageStore.open(ROOT, self.config, self.clock, disk)
        return self.store

    def promised_to(self) -> int:
        """How much of the log is promised at this very moment, be it in the middle of a step."""
        if self.store is not None:
            self.ledger.durable_to = max(self.ledger.durable_to, self.store.flushed_to)
        return self.ledger.durable_to

    def run(self, rounds: int) -> None:
        for _ in range(rounds):
            self.one_step()

    def one_step(self) -> None:
        store, chance = self.store, self.chance
        assert store is not None
        kind = chance.choices(["append", "batch", "dispatch", "log", "derived", "prepare"], [9, 2, 4, 2, 0.7, 1])[0]
        if kind == "append":
            self.append(1)
        elif kind == "batch":
            self.append(chance.randint(2, 4))
        elif kind == "dispatch":
            store.dispatch_once(chance.choice([300, 2000, 1 << 20]))
        elif kind == "log":
            store.flush_log()
        elif kind == "derived":
            store.flush_derived()
        else:
            store.prepare_once()
        self.promised_to()

    def append(self, count: int) -> list[PutResult]:
        assert self.store is not None
        messages = [random_message(self.chance, self.sent + number, in_batch=count > 1) for number in range(count)]
        results = self.store.append_batch(messages)
        for message, result in zip(messages, results, strict=True):
            if result.is_stored:
                self.sent += 1
                self.ledger.took(message, result)
        return results
