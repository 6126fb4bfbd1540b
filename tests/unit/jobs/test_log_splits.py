"""Splits of whole logs: every record belongs to exactly one, whatever a body pretends to be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orbitlog.formats.records.message import assign_fields, encode_message, make_message
from orbitlog.formats.records.message_scan import encode_blank
from orbitlog.jobs.log_splits import (
    DAMAGE,
    LOG_END,
    LogSplit,
    WalkedSplit,
    plan_splits,
    prove_splits,
    walk_log_split,
)
from orbitlog.storefiles.store_files import StoreFiles, find_store_files
from orbitlog.testing.golden import GoldenStore

SEGMENT_BYTES = {"golden_497": 65536, "golden_550_crash": 131072}


def record(physical_offset: int, body: bytes) -> bytes:
    raw = bytearray(encode_message(make_message("Topic", body)))
    assign_fields(raw, 0, queue_offset=0, physical_offset=physical_offset, store_timestamp_ms=1)
    return bytes(raw)


def write_log(root: Path, *segments: bytes, segment_bytes: int) -> StoreFiles:
    (root / "commitlog").mkdir(parents=True)
    for number, content in enumerate(segments):
        path = root / "commitlog" / f"{number * segment_bytes:020d}"
        path.write_bytes(content.ljust(segment_bytes, b"\0"))
    return find_store_files(root)


@pytest.mark.parametrize("name", SEGMENT_BYTES)
@pytest.mark.parametrize("split_bytes", [1000, 8192, 1 << 20])
def test_a_golden_log_in_splits(name: str, split_bytes: int, request: pytest.FixtureRequest) -> None:
    golden: GoldenStore = request.getfixturevalue(name)
    splits = plan_splits(find_store_files(golden.store), SEGMENT_BYTES[name], split_bytes=split_bytes)
    proved = prove_splits(splits)
    starts = {message["commitLogOffset"] for message in golden.manifest["messages"]}
    assert sum(walk.message_count for walk in proved.walks) == len(starts)
    assert {split.base + (split.first or 0) for split in proved.splits} <= starts
    assert proved.walks[-1].ended == LOG_END
    end = proved.walks[-1].split.base + proved.walks[-1].next_position
    assert end == golden.manifest["endOfLastRecord"]


def test_records_inside_bodies_are_not_taken_for_records(tmp_path: Path) -> None:
    """Each body contains whole records that state exactly their own offset."""
    log = record(0, b"first")
    for _ in range(4):
        head = len(encode_message(make_message("Topic", b""))) - len("Topic") - 3
        body = b""
        while len(body) < 600:
            body += record(len(log) + head + len(body), b"forged")
        log += record(len(log), body)
    log += record(len(log), b"last")
    store = write_log(tmp_path, log + encode_blank(8192 - len(log)), segment_bytes=8192)
    splits = plan_splits(store, 8192, split_bytes=97)
    fooled = sum(walk_log_split(split).message_count for split in splits)
    assert fooled > 6, "nothing was forged well enough to fool a single split"
    assert sum(walk.message_count for walk in prove_splits(splits).walks) == 6


def test_a_limit_ends_the_log_there(tmp_path: Path) -> None:
    log = record(0, b"a")
    second = len(log)
    log += record(second, b"b")
    store = write_log(tmp_path, log, segment_bytes=4096)
    for until, messages in ((second, 1), (second + 1, 2), (4096, 2)):
        walks = prove_splits(plan_splits(store, 4096, split_bytes=64, until=until)).walks
        assert sum(walk.message_count for walk in walks) == messages


def test_damage_ends_a_chain_and_is_named(tmp_path: Path) -> None:
    log = bytearray(record(0, b"a") + record(len(record(0, b"a")), b"b"))
    log[len(record(0, b"a")) + 4] ^= 0xFF
    store = write_log(tmp_path, bytes(log), segment_bytes=4096)
    (damage,) = prove_splits(plan_splits(store, 4096, split_bytes=4096)).damage
    assert (damage.next_position, damage.ended) == (len(record(0, b"a")), DAMAGE)
    assert "magic" in damage.reason


def test_walks_cross_processes_as_json() -> None:
    split = LogSplit(1, "p", 0, 100, 0, 50)
    walk = WalkedSplit(replace(split, first=3), 3, 60, 2, DAMAGE, "x")
    assert WalkedSplit.from_report(walk.as_report()) == walk
