"""Pending messages of a broker on a disk that may crash: its own parts, a clock that tests advance, and a ledger.

Nothing here waits and nothing runs beside: every step is taken by the caller, so that the same seed gives the same run.
The ledger knows of each message that was accepted where the record ends that promises it, when it may be seen at the
earliest, and what its producer wants of a transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import cast

from orbitlog.broker.delayed.delayed_delivery import DelayedDelivery
from orbitlog.broker.delayed.handle_recall import RecallHandler
from orbitlog.broker.delayed.timed_delivery import TimedDelivery, WaitingMessage
from orbitlog.broker.delayed.timer_handover import TimerHandOver
from orbitlog.broker.pop.pop_consumption import PopConsumption
from orbitlog.broker.runtime.broker_opening import load_broker_state
from orbitlog.broker.runtime.broker_settings import BrokerSettings
from orbitlog.broker.sending.handle_send import SendHandler
from orbitlog.broker.sending.handle_send_back import SendBackHandler
from orbitlog.broker.sending.message_writer import MessageWriter
from orbitlog.broker.tables.config_directory import ConfigDirectory
from orbitlog.broker.tables.table_saver import TableSaver
from orbitlog.broker.transactions.half_messages import HalfMessages
from orbitlog.broker.transactions.handle_transactions import TransactionHandler
from orbitlog.broker.transactions.transaction_check import TransactionCheck
from orbitlog.broker.transactions.transaction_ends import TransactionEnds
from orbitlog.formats import names
from orbitlog.formats.delay_levels import parse_delay_levels
from orbitlog.formats.derived.derive import DeriveRules
from orbitlog.formats.derived.index_layout import IndexLayout
from orbitlog.formats.records.flags import TransactionType
from orbitlog.formats.records.message import Message, make_message
from orbitlog.formats.records.properties import encode_properties
from orbitlog.formats.tables.offset_tables import DELAY_OFFSET
from orbitlog.formats.tables.timer_progress import TIMER_PROGRESS
from orbitlog.remoting.client import RemotingClient
from orbitlog.remoting.connection import Connection, Handler
from orbitlog.settings.store_settings import StoreGeometry
from orbitlog.store.message_store import MessageStore
from orbitlog.storefiles.disk import Disk
from orbitlog.storefiles.store_config import StoreConfig
from orbitlog.wire.codes import RequestCode
from orbitlog.wire.command import Command
from orbitlog.wire.send_headers import SendMessageV2Request
from tests.support.quiet_events import QUIET

ROOT = Path("store")
BEGIN_MS = 1_800_000_000_000
DAY_MS = 86_400_000
GROUP, RETRIES = "G", 2
LEVELS = "1s 10s 2m 20m 2h"
TOPICS = ("Level", "Moment", "Half", "%RETRY%G", "%DLQ%G", names.QUARANTINE_TOPIC)
_SETTINGS = {
    "messageDelayLevel": LEVELS,
    "transactionTimeOut": "6000",
    "transactionCheckMax": "1000",
    "timerMaxDelaySec": str(50 * DAY_MS // 1000),
    "fileReservedTime": "10000",
}


@dataclass
class Clock:
    """Stands still until it is turned."""

    now_ms: int = BEGIN_MS

    def __call__(self) -> int:
        return self.now_ms


@dataclass
class Promise:
    """What was promised of one message, and by which end of the log."""

    name: str
    end: int
    due_ms: int = 0
    is_half: bool = False
    will_commit: bool = True
    commit_asked: bool = False
    end_asked: bool = False
    ended_at: int | None = None
    recall_asked: bool = False
    taken_back_at: int | None = None


@dataclass
class Ledger:
    """Every message that was accepted, by its name."""

    promises: dict[str, Promise] = field(default_factory=dict)

    def forget_from(self, end: int) -> None:
        """What the log does not hold any more was lost in a crash that allowed it."""
        self.promises = {name: promise for name, promise in self.promises.items() if promise.end <= end}
        for promise in self.promises.values():
            if promise.ended_at is not None and promise.ended_at > end:
                promise.ended_at, promise.end_asked = None, False
            if promise.taken_back_at is not None and promise.taken_back_at > end:
                promise.taken_back_at, promise.recall_asked = None, False

    def copy(self) -> Ledger:
        return Ledger({name: replace(promise) for name, promise in self.promises.items()})


class Line:
    """As much of a connection as handlers look at."""

    peer = "the test"
    remote_address = local_address = ("127.0.0.1", 1)

    def on_close(self, _: Callable[[Connection], object]) -> None:
        """It stays open."""


class KeptAside:
    """The parts of a broker that store pending messages, over one disk."""

    def __init__(self, disk: Disk, clock: Clock, ledger: Ledger) -> None:
        settings = BrokerSettings(dict(_SETTINGS))
        rules = DeriveRules(delay_levels=parse_delay_levels(LEVELS))
        geometry = StoreGeometry(
            segment_bytes=16384, queue_file_bytes=400, index_layout=IndexLayout(slot_count=20, entry_count=60)
        )
        config = StoreConfig(geometry, rules, segment_allocate_bytes=4096, retention=settings.store.retention)
        self.clock, self.ledger = clock, ledger
        self.store = MessageStore.open(ROOT, config, clock, disk)
        directory = ConfigDirectory(disk, ROOT, rules.compat)
        self.state = state = load_broker_state(settings, ROOT, self.store, rules, directory, events=QUIET, now_ms=clock)
        state.listen_port = 10911
        for topic in ("Level", "Moment", "Half", "Retried"):
            state.topics.find_or_create(topic, 1)  # the table of topics may be lost: that is another test's matter
        self._writer = writer = MessageWriter(state)
        halves = HalfMessages(state, writer)
        self.delayed = DelayedDelivery(state, writer, directory.load(DELAY_OFFSET))
        self.timed = TimedDelivery(state, writer, directory.load(TIMER_PROGRESS), TimerHandOver(ROOT, disk))
        self.check = TransactionCheck(state, halves, lambda _: self.producer_is_there, self._ask)
        self.threads = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
        pops = PopConsumption(state, writer, directory, RemotingClient(), self.timed.settled_to_ms)
        self.saver = TableSaver(
            state, directory, self.threads[0], wanted=asyncio.Event(), delayed=self.delayed, timed=self.timed, pops=pops
        )
        ends = TransactionEnds(halves)
        self._send = SendHandler(state, writer, halves, ends, None)
        self._end = TransactionHandler(state, halves, ends)
        self._send_back = SendBackHandler(state, writer)
        self._recall = RecallHandler(state, writer)
        self._line = cast(Connection, Line())
        self.producer_is_there = True
        self.asked: list[tuple[str, Message]] = []

    def close(self) -> None:
        """Let go of the threads; the disk was cut off, or is."""
        self.saver._thread.shutdown()
        self.threads[0].shutdown()

    # What clients do

    def _request(self, handler: Handler, code: int, body: bytes = b"", **fields: object) -> None:
        texts = {name: str(value) for name, value in fields.items()}
        handler(self._line, Command(code, ext_fields=texts, body=body))

    def send(self, topic: str, name: str, **properties: str) -> None:
        header = SendMessageV2Request(
            producer_group="P",
            topic=topic,
            default_topic="TBW102",
            default_topic_queue_count=1,
            queue_id=0,
            sys_flag=0,
            born_timestamp_ms=self.clock.now_ms,
            flag=0,
            properties=encode_properties({"UNIQ_KEY": unique_id(name), **properties}).decode(),
        )
        self._request(self._send, RequestCode.SEND_MESSAGE_V2, name.encode(), **header.to_ext_fields())

    def append_undeliverable(self, topic: str, name: str, **properties: str) -> None:
        """Append a record that another broker may have left: it cannot be delivered, and must not be lost."""
        raw = encode_properties({"UNIQ_KEY": unique_id(name), **properties})
        message = make_message(topic, name.encode(), properties=raw, born_timestamp_ms=self.clock.now_ms)
        assert self._writer.put(message).is_stored
        self.promise(Promise(name, self.store.written_to))

    def last_in(self, topic: str) -> int:
        """Return the physical offset of the last message of a topic."""
        self.dispatch()
        queue = self.store.queue(topic, 0)
        entry = None if queue is None else queue.entry(queue.max_offset - 1)
        assert entry is not None
        return entry.physical_offset

    def promise(self, promise: Promise) -> None:
        """Note what was promised; of a message that was sent back twice the first copy counts."""
        self.ledger.promises.setdefault(promise.name, promise)

    def end_half(self, name: str, half: Message, *, commit: bool) -> None:
        promise = self.ledger.promises.get(name)
        if promise is not None:
            # Before it is done: the power may go in the middle of it.
            promise.end_asked = True
            promise.commit_asked = promise.commit_asked or commit
        self._request(
            self._end,
            RequestCode.END_TRANSACTION,
            producerGroup="P",
            tranStateTableOffset=half.queue_offset,
            commitLogOffset=half.physical_offset,
            commitOrRollback=int(TransactionType.COMMIT if commit else TransactionType.ROLLBACK),
        )
        if promise is not None:
            promise.ended_at = promise.ended_at or self.store.written_to

    def send_back(self, name: str, physical_offset: int, reconsume_times: int, level: int) -> None:
        """Send a message back that a consumer got; what comes of it is promised under another name."""
        self._request(
            self._send_back,
            RequestCode.CONSUMER_SEND_MSG_BACK,
            offset=physical_offset,
            group=GROUP,
            delayLevel=level,
            maxReconsumeTimes=RETRIES,
        )
        levels = self.state.delay_levels
        waits_for = levels.clamp(level or 3 + reconsume_times)
        is_dead = reconsume_times >= RETRIES
        due_ms = 0 if is_dead else levels.deliver_timestamp_ms(waits_for, self.clock.now_ms)
        self.promise(Promise(f"{name}#{reconsume_times + 1}", self.store.written_to, due_ms))

    def recall(self, waiting: WaitingMessage, name: str) -> None:
        promise = self.ledger.promises[name]
        promise.recall_asked = True
        self._request(self._recall, RequestCode.RECALL_MESSAGE, topic=waiting.topic, recallHandle=waiting.recall_handle)
        promise.taken_back_at = promise.taken_back_at or self.store.written_to

    # What the broker does

    def _ask(self, half: Message, copy: Message) -> bool:
        self.asked.append((copy.body.decode(), copy))
        return True

    def dispatch(self) -> None:
        while self.store.dispatched_to < self.store.confirmed_to:
            self.store.dispatch_once()

    def deliver(self) -> int | None:
        """Take one step of delivery; returns when the next one is due."""
        self.dispatch()
        now_ms = self.clock.now_ms
        times = [each for each in (self.delayed.deliver_due(now_ms), self.timed.step(now_ms)) if each is not None]
        if self.store.dispatched_to < self.store.confirmed_to:
            self.dispatch()
            return now_ms  # what was appended just now may wait, too
        return min(times, default=None)

    async def save(self, chance: Random) -> None:
        await chance.choice([self.saver.save_offsets, self.saver.save_delays, self.saver.save_tables])()

    # What readers see

    def seen(self) -> dict[str, list[Message]]:
        """Every message that a consumer can see, by the name under which it was promised."""
        self.dispatch()
        found: dict[str, list[Message]] = {}
        for topic in TOPICS:
            queue = self.store.queue(topic, 0)
            for queue_offset in range(0 if queue is None else queue.max_offset):
                entry = queue.entry(queue_offset) if queue is not None else None
                message = None if entry is None else self.store.read_at(entry.physical_offset)
                assert message is not None, f"{topic} {queue_offset} cannot be read"
                name = message.body.decode()
                name += f"#{message.reconsume_times}" if topic[0] == "%" else ""
                found.setdefault(name, []).append(message)
        return found


def unique_id(name: str) -> str:
    return name.encode().hex().upper().zfill(32)
