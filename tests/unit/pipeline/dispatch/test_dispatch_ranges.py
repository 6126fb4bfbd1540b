"""Ranges of a live log for the dispatch query: each begins and ends at a record, whatever bodies hold."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from orbitlog.formats import store_tree as tree
from orbitlog.formats.records.message import Message, encode_message, make_message
from orbitlog.formats.records.message_scan import scan_messages
from orbitlog.pipeline.dispatch.dispatch_ranges import DispatchPlanner, DispatchRange
from orbitlog.settings.store_settings import StoreGeometry
from orbitlog.store.message_store import MessageStore
from orbitlog.storefiles.store_config import StoreConfig
from orbitlog.storefiles.store_paths import StorePaths

SEGMENT_BYTES = 8192
CONFIG = StoreConfig(StoreGeometry(segment_bytes=SEGMENT_BYTES), segment_allocate_bytes=SEGMENT_BYTES)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int], int]:
    """A store of several segments whose bodies hold records; its root, where records start, and its end."""
    root, chance = tmp_path_factory.mktemp("ranges") / "store", Random(3)
    with MessageStore.open(root, CONFIG, lambda: 1_700_000_000_000) as store:
        for _ in range(120):
            forged = encode_message(make_message("Forged", b"inside"))
            body = forged if chance.random() < 0.5 else chance.randbytes(chance.randrange(400))
            assert store.append(make_message("Orders", body)).is_stored
        store.dispatch_once()
        end = store.written_to
    # Where a segment's last record ends its BLANK starts.
    starts = [
        place
        for path in sorted((root / tree.COMMITLOG).iterdir())
        for message in scan_messages(path.read_bytes(), base_physical_offset=int(path.name))
        if isinstance(message, Message)
        for place in (message.physical_offset, message.physical_offset + message.size_bytes)
    ]
    return root, sorted({*starts}), end


@pytest.mark.parametrize("range_bytes", [1, 100, 1000, 5000, 1 << 20])
def test_ranges_cover_the_log_and_stop_at_records(live: tuple[Path, list[int], int], range_bytes: int) -> None:
    root, starts, end = live
    planner = DispatchPlanner(StorePaths.below(root), SEGMENT_BYTES, 1 << 30, range_bytes)
    assert planner.confirmed_to() == end
    assert planner.end(0, end) == end
    ranges = planner.ranges(0, end)
    boundaries = {*starts, end, *range(0, end, SEGMENT_BYTES)}
    assert [found.start for found in ranges[1:]] == [found.stop for found in ranges[:-1]]
    assert (ranges[0].start, ranges[-1].stop) == (0, end)
    for found in ranges:
        assert {found.start, found.stop} <= boundaries
        assert found.base <= found.start < found.stop <= found.base + SEGMENT_BYTES
    if range_bytes == 1:
        assert len(ranges) >= 120


@pytest.mark.parametrize("max_bytes", [1, 3000, 9000, 20_000])
def test_a_batch_is_bounded_and_ends_at_a_record(live: tuple[Path, list[int], int], max_bytes: int) -> None:
    root, starts, end = live
    planner = DispatchPlanner(StorePaths.below(root), SEGMENT_BYTES, max_bytes, 500)
    start, batches = 0, 0
    while start < end:
        following = planner.end(start, end)
        assert start < following <= start + max_bytes + 500 + SEGMENT_BYTES
        assert following in {*starts, end, *range(0, end, SEGMENT_BYTES)}
        assert planner.ranges(start, following)[-1].stop == following
        start, batches = following, batches + 1
    assert batches >= end // (max_bytes + SEGMENT_BYTES)
    assert planner.end(end, end) == end
    assert planner.ranges(end, end) == []


def test_damage_is_left_to_the_caller_that_puts_the_range(live: tuple[Path, list[int], int], tmp_path: Path) -> None:
    root, starts, _ = live
    (tmp_path / tree.COMMITLOG).mkdir()
    first = sorted((root / tree.COMMITLOG).iterdir())[0]
    damaged = bytearray(first.read_bytes())
    hit = starts[10]
    damaged[hit + 4] ^= 255
    (tmp_path / tree.COMMITLOG / first.name).write_bytes(damaged)
    planner = DispatchPlanner(StorePaths.below(tmp_path), SEGMENT_BYTES, 1 << 30, 500)
    last = planner.ranges(0, SEGMENT_BYTES)[-1]
    assert last == DispatchRange(0, last.start, SEGMENT_BYTES)
    assert last.start <= hit
