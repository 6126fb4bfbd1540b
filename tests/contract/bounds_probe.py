"""Runs every kernel on bytes that end right before, and begin right after, memory that may not be touched.

A kernel that reads one byte too many dies here with a segmentation fault; the parent test sees it.
"""

from __future__ import annotations

import ctypes
import mmap
import random
import sys
from typing import Any

import numpy as np

from orbitlog.formats.derived.derive import DeriveRules
from orbitlog.formats.records.batch import BatchMember, encode_batch
from orbitlog.formats.records.log_format import LogFormat
from orbitlog.kernels.arrow_batches import ArrowDecoder
from orbitlog.kernels.batch_encode import put_records
from orbitlog.kernels.columns import read_columns
from orbitlog.kernels.dispatch import DispatchScan
from orbitlog.kernels.record_walk import walk_messages
from orbitlog.kernels.splits import find_record, walk_in_splits
from orbitlog.kernels.tally import Tally
from tests.support.logs import KINDS, make_log

PAGE = mmap.PAGESIZE
ROOM = 4 * PAGE


class Fenced:
    """A room between two pages that may not be touched."""

    def __init__(self) -> None:
        self._map = mmap.mmap(-1, ROOM + 2 * PAGE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        for fence in (start, start + PAGE + ROOM):
            if ctypes.CDLL(None, use_errno=True).mprotect(ctypes.c_void_p(fence), PAGE, 0) != 0:
                raise OSError(ctypes.get_errno(), "mprotect")
        self._room = np.frombuffer(self._map, np.uint8)[PAGE : PAGE + ROOM]

    def at_end(self, data: bytes) -> memoryview:
        return self._put(data, ROOM - len(data))

    def at_start(self, data: bytes) -> memoryview:
        return self._put(data, 0)

    def _put(self, data: bytes, place: int) -> memoryview:
        part = self._room[place : place + len(data)]
        part[:] = np.frombuffer(data, np.uint8)
        return part.data


def run_all(view: memoryview, *, check_crc: bool, log_format: LogFormat = LogFormat.ORDINARY) -> None:
    how: dict[str, Any] = {"log_format": log_format, "check_crc": check_crc}
    base = None if check_crc else 0
    walk_messages(view, base_physical_offset=base, **how)
    read_columns(view, base_physical_offset=base, **how)
    for _ in DispatchScan(DeriveRules()).scan(view, base_physical_offset=base, **how):
        pass
    for _ in ArrowDecoder(batch_rows=4, batch_bytes=500).decode(view, base_physical_offset=base, **how):
        pass
    for _ in Tally().count(view, 0, len(view), base_physical_offset=0, **how):
        pass
    find_record(view, min(1, len(view)), base_physical_offset=0, **how)
    walk_in_splits(view, 150, base_physical_offset=0, **how)


def run_batches(rng: random.Random) -> int:
    """Encode cut and damaged batches, the request before a fence, and the records before another."""
    requests, made = Fenced(), Fenced()
    shared, places = np.frombuffer(bytes(88) + b"\x01TCLUSTER\x01c\x02", np.uint8), np.empty(8, np.int64)
    data = encode_batch([BatchMember(b"x" * size, b"KEYS\x01k" + b"y" * size + b"\x02") for size in (1, 30, 200)])
    for case in range(2 * len(data)):
        broken = bytearray(data[: case % len(data) + 1])
        if case >= len(data):
            broken[rng.randrange(len(broken))] = rng.choice([0, 1, 2, 0x7F, 0x80, 0xFF])
        members = np.frombuffer(requests.at_end(bytes(broken)), np.uint8)
        records = np.frombuffer(made.at_end(bytes(rng.randrange(1, 1200))), np.uint8)
        put_records(members, shared, 10, 0, 0, records, places)
    return 2 * len(data)


def main(seed: int) -> None:
    rng = random.Random(seed)
    cases = sum(run_log(rng, log_format) for log_format in LogFormat) + run_batches(rng)
    print(f"{cases} cases")


def run_log(rng: random.Random, log_format: LogFormat) -> int:
    fenced = Fenced()
    log = make_log(list(KINDS), segment_bytes=8192, log_format=log_format)
    data = log.segments[0][1][: log.messages[-1].physical_offset + log.messages[-1].size_bytes]
    cases = 0
    for length in range(0, len(data) + 1, 3):
        for view in (fenced.at_end(data[:length]), fenced.at_start(data[:length])):
            run_all(view, check_crc=bool(length & 1), log_format=log_format)
            cases += 1
    for _ in range(1500):
        broken = bytearray(data[: rng.randrange(90, len(data))])
        for _ in range(rng.randrange(1, 4)):
            broken[rng.randrange(len(broken))] = rng.choice([0, 1, 2, 0x7F, 0x80, 0xFF, rng.randrange(256)])
        run_all(fenced.at_end(bytes(broken)), check_crc=rng.random() < 0.5, log_format=log_format)
        cases += 1
    return cases


if __name__ == "__main__":
    main(int(sys.argv[1]))
