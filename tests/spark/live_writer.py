"""A process that has a store open and takes messages while another dispatches; run by tests and a benchmark.

python -m tests.spark.live_writer DIRECTORY SEED RATE

It reads commands from stdin, a line each, and answers each with a line of JSON:

    status    how far everything is, and how many messages have arrived
    pause     take no more messages
    back      take no more messages, take dispatch back, and dispatch what is left
    over      hand dispatch over again, and take messages
    close     close the store and end
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from dataclasses import replace
from pathlib import Path
from random import Random

from orbitlog.formats.derived.derive import DeriveRules
from orbitlog.formats.derived.index_layout import IndexLayout
from orbitlog.formats.derived.queue_entry import ENTRY_BYTES
from orbitlog.settings.store_settings import StoreGeometry
from orbitlog.store.message_store import MessageStore
from orbitlog.storefiles.store_config import StoreConfig
from tests.support.workloads import random_message

CONFIG = StoreConfig(
    StoreGeometry(
        segment_bytes=1 << 18,
        queue_file_bytes=200 * ENTRY_BYTES,
        index_layout=IndexLayout(slot_count=500, entry_count=2_000),
    ),
    DeriveRules(),
    segment_allocate_bytes=1 << 18,
)
_TICK_S = 0.005


class LiveWriter:
    """Takes messages at a steady rate, follows dispatch, and answers commands."""

    def __init__(self, root: Path, seed: int, rate: int) -> None:
        self.store = MessageStore.open(
            root, replace(CONFIG, dispatch_engine="spark"), lambda: time.time_ns() // 1_000_000
        )
        self.chance = Random(seed)
        self.rate = rate
        self.sent = self.arrived = 0
        self.is_paused = False
        self.next_flush_s = time.monotonic() + 0.5

    def tick(self, elapsed_s: float) -> None:
        count = 0 if self.is_paused else int(self.rate * elapsed_s + self.chance.random())
        for _ in range(count):
            assert self.store.append(random_message(self.chance, self.sent)).is_stored
            self.sent += 1
        self.arrived += len(self.store.dispatch_once())
        if time.monotonic() >= self.next_flush_s:
            self.store.flush_derived()
            self.next_flush_s = time.monotonic() + 0.5

    def obey(self, command: str) -> dict[str, object]:
        if command == "pause":
            self.is_paused = True
        elif command == "over":
            self.is_paused = False
            self.store.hand_over_dispatch()
        elif command in ("back", "close"):
            self.is_paused = True
            while not self.store.take_back_dispatch():
                time.sleep(_TICK_S)
            while self.store.dispatched_to < self.store.confirmed_to:
                self.arrived += len(self.store.dispatch_once())
            self.arrived += len(self.store.dispatch_once())
        if command == "close":
            self.store.close()
            return {"arrived": self.arrived, "sent": self.sent}
        return {
            "arrived": self.arrived,
            "sent": self.sent,
            "written_to": self.store.written_to,
            "dispatched_to": self.store.dispatched_to,
            "engine": self.store.dispatch_lease.engine,
            "epoch": self.store.dispatch_lease.epoch,
            "is_inline": self.store.is_dispatch_inline,
        }


def main(root: Path, seed: int, rate: int) -> None:
    writer, buffered, last_s = LiveWriter(root, seed, rate), b"", time.monotonic()
    sys.stdout.write("open\n")
    sys.stdout.flush()
    while True:
        ready, _, _ = select.select([0], [], [], _TICK_S)
        now_s = time.monotonic()
        writer.tick(min(now_s - last_s, 0.1))
        last_s = now_s
        if not ready:
            continue
        data = os.read(0, 4096)
        buffered += data
        while b"\n" in buffered:
            line, _, buffered = buffered.partition(b"\n")
            command = line.decode()
            sys.stdout.write(json.dumps(writer.obey(command)) + "\n")
            sys.stdout.flush()
            if command == "close":
                return
        if not data:
            return


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
