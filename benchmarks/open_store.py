"""A process that opens a store and prints elapsed and CPU time; run by bench_startup.py.

python -m benchmarks.open_store DIRECTORY HOW [MESSAGES]

HOW is `close` (close it) or `kill` (append messages, dispatch them, and end without closing anything).
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from benchmarks.make_log import template
from orbitlog.store.message_store import MessageStore
from orbitlog.storefiles.store_config import StoreConfig


def main(root: Path, how: str, count: int) -> None:
    started, cpu_started = time.perf_counter(), time.process_time()
    store = MessageStore.open(root, StoreConfig(), lambda: time.time_ns() // 1_000_000)
    opened, cpu = time.perf_counter() - started, time.process_time() - cpu_started
    started = time.perf_counter()
    if how == "close":
        store.close()
    else:
        for number in range(count):
            assert store.append(
                template(number, b"x" * 128, f"TopicOrderEvents{number % 16:05d}", number % 8)
            ).is_stored
        while store.dispatched_to < store.written_to:
            store.dispatch_once()
    print(f"{opened} {cpu} {time.perf_counter() - started}", flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 0)
