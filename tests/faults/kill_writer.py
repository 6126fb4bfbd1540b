"""A process that sends to a store, and reports each message when it is synced; run by test_kill_loop.py.

python -m tests.faults.kill_writer DIRECTORY SEED
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from random import Random

from orbitlog.formats.records.properties import UNIQ_KEY
from orbitlog.store.message_store import MessageStore
from tests.support.workloads import random_message, small_config

CONFIG = small_config(Random(5), sync_flush=True)


def main(root: Path, seed: int) -> None:
    chance = Random(seed)
    store = MessageStore.open(root, CONFIG, lambda: time.time_ns() // 1_000_000)
    for number in range(seed * 1_000_000, (seed + 1) * 1_000_000):
        message = random_message(chance, number)
        result = store.append(message)
        assert result.is_stored, result.reason
        if chance.random() < 0.7:
            store.dispatch_once()
        if chance.random() < 0.05:
            store.flush_derived()
        if store.flush_log() >= result.end:
            # One write a line: what the killed process managed to say is whole.
            sys.stdout.write(f"{result.physical_offset} {result.size_bytes} {message.properties[UNIQ_KEY]}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
