"""POP workload with a ledger of what was acknowledged."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import ClassVar, cast

from orbitlog.broker.delayed.delayed_delivery import DelayedDelivery
from orbitlog.broker.delayed.timed_delivery import TimedDelivery
from orbitlog.broker.pop.pop_consumption import PopConsumption
from orbitlog.broker.runtime.broker_opening import load_broker_state
from orbitlog.broker.runtime.broker_settings import BrokerSettings
from orbitlog.broker.sending.message_writer import MessageWriter
from orbitlog.broker.tables.config_directory import ConfigDirectory
from orbitlog.broker.tables.table_saver import TableSaver
from orbitlog.formats.derived.derive import DeriveRules
from orbitlog.formats.derived.index_layout import IndexLayout
from orbitlog.formats.records.message import decode_message, make_message
from orbitlog.formats.tables.offset_tables import DELAY_OFFSET
from orbitlog.formats.tables.timer_progress import TIMER_PROGRESS
from orbitlog.remoting.client import RemotingClient
from orbitlog.remoting.connection import Connection
from orbitlog.settings.store_settings import StoreGeometry
from orbitlog.store.message_store import MessageStore
from orbitlog.storefiles.store_config import StoreConfig
from orbitlog.testing.crash_disk import CrashDisk
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command
from tests.faults.kept_aside import ROOT, Clock, Line
from tests.support.quiet_events import QUIET

STEPS, LIVES = 120, 4


GROUP, TOPIC = "Popper", "Popped"


INVISIBLE_MS = 5_000


@dataclass(frozen=True)
class Out:
    """A message that is out: by which receipt, and until when."""

    name: str
    topic: str
    queue_offset: int
    receipt: str
    visible_ms: int

    @property
    def place(self) -> tuple[str, int]:
        return self.topic, self.queue_offset


@dataclass
class Ledger:
    """What was sent, and where it ends in the log; what was ever acknowledged in time, and of that what was saved.

    An acknowledgement that no crash took back may be saved yet: it is in `standing`. Both are of places in queues: what
    was put into the retry topic before a crash is there once more, though its first copy be acknowledged after it.
    """

    ends: dict[str, int] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)
    standing: set[tuple[str, int]] = field(default_factory=set)
    done_and_saved: set[tuple[str, int]] = field(default_factory=set)
    is_saving: bool = False

    def copy(self) -> Ledger:
        return replace(self, ends=dict(self.ends), done=set(self.done), done_and_saved=set(self.done_and_saved))


class Pops:
    """As much of a broker as POP needs, over one disk.

    Without a timer messages in flight are in Orbitlog's table alone; with one they become checkpoints when a message
    after them is acknowledged and that is saved.
    """

    has_timer: ClassVar[bool] = False

    def __init__(self, disk: CrashDisk, clock: Clock) -> None:
        timer = {"timerWheelEnable": str(self.has_timer).lower()}
        settings, rules = BrokerSettings({"fileReservedTime": "10000", **timer}), DeriveRules()
        geometry = StoreGeometry(
            segment_bytes=16384, queue_file_bytes=400, index_layout=IndexLayout(slot_count=20, entry_count=60)
        )
        config = StoreConfig(geometry, rules, segment_allocate_bytes=4096, retention=settings.store.retention)
        self.clock = clock
        self.store = MessageStore.open(ROOT, config, clock, disk)
        directory = self.directory = ConfigDirectory(disk, ROOT, rules.compat)
        self.state = load_broker_state(settings, ROOT, self.store, rules, directory, events=QUIET, now_ms=clock)
        self.state.listen_port = 10911
        self.state.topics.find_or_create(TOPIC, 1)
        self.writer = MessageWriter(self.state)
        self.client = RemotingClient()
        self.timed = TimedDelivery(self.state, self.writer, directory.load(TIMER_PROGRESS))
        self.pops = self.make_pops()
        self._thread = ThreadPoolExecutor(1)
        delayed = DelayedDelivery(self.state, self.writer, directory.load(DELAY_OFFSET))
        self.saver = TableSaver(
            self.state,
            directory,
            self._thread,
            wanted=asyncio.Event(),
            delayed=delayed,
            timed=self.timed,
            pops=self.pops,
        )

    def make_pops(self) -> PopConsumption:
        return PopConsumption(self.state, self.writer, self.directory, self.client)

    def close(self) -> None:
        self.saver._thread.shutdown()
        self._thread.shutdown()

    def _ask(self, code: int, **fields: object) -> Command:
        request = Command(code, ext_fields={name: str(value) for name, value in fields.items()})
        answer = self.pops.table[code](cast(Connection, Line()), request)
        assert isinstance(answer, Command)
        return answer

    def send(self, name: str) -> int:
        result = self.writer.put(make_message(TOPIC, name.encode()))
        assert result.is_stored, result
        return result.end

    def dispatch(self) -> None:
        while self.store.dispatched_to < self.store.confirmed_to:
            self.store.dispatch_once()

    def revive(self) -> None:
        self.pops.tick(self.clock.now_ms)
        self.dispatch()

    def pop(self, count: int) -> list[Out]:
        self.dispatch()
        wish = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": -1, "initMode": 0, "pollTime": 0}
        answer = self._ask(RequestCode.POP_MESSAGE, maxMsgNums=count, invisibleTime=INVISIBLE_MS, **wish)
        found, position = [], 0
        while position < len(answer.body):
            message = decode_message(answer.body, position)
            position += message.size_bytes
            own = message.properties.get("POP_CK")
            queue_offset = int(own.split()[-1]) if own else message.queue_offset
            receipt = own or (
                f"{queue_offset} {answer.ext_fields['popTime']} {INVISIBLE_MS} 0 0 broker-a 0 {queue_offset}"
            )
            topic = f"%RETRY%{GROUP}_{TOPIC}" if own else TOPIC
            visible_ms = self.clock.now_ms + INVISIBLE_MS
            found.append(Out(message.body.decode(), topic, queue_offset, receipt, visible_ms))
        return found

    def acknowledge(self, out: Out) -> None:
        done = {"consumerGroup": GROUP, "topic": out.topic, "queueId": 0, "offset": out.queue_offset}
        answer = self._ask(RequestCode.ACK_MESSAGE, extraInfo=out.receipt, **done)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
