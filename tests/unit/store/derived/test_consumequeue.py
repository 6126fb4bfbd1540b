"""Where a queue starts when the log's start has moved."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitlog.formats.derived.queue_entry import QueueEntry
from orbitlog.store.derived.consumequeue import ConsumeQueue
from orbitlog.store.log.segments import Segments
from orbitlog.storefiles.disk import RealDisk
from orbitlog.testing.crash_disk import CrashDisk

# Queue offsets with a unit, each of a record at a hundred times that offset; what lies between is none.
WHOLE = range(40)
HOLES = [*range(12), *range(25, 27), *range(31, 40)]
LATE = range(15, 40)


@pytest.mark.parametrize("queue_offsets", [WHOLE, HOLES, LATE], ids=["whole", "holes", "late"])
@pytest.mark.parametrize("from_scratch", [False, True])
def test_the_first_unit_whose_record_is_there(tmp_path: Path, queue_offsets: list[int], from_scratch: bool) -> None:
    queue = ConsumeQueue("T", 0, Segments(RealDisk(), tmp_path, 200, allocate_bytes=4096))
    for queue_offset in queue_offsets:
        queue.put(queue_offset, QueueEntry(queue_offset * 100, 100, 0))
    for start in range(0, 4200, 50):
        if from_scratch:
            queue.min_offset = 0
        queue.correct_min_offset(start)
        assert queue.min_offset == next((n for n in queue_offsets if n * 100 >= start), 40)
    queue.segments.close()


@pytest.mark.parametrize(("start", "left"), [(0, 4), (900, 4), (1000, 4), (1100, 3), (2000, 3), (2100, 2), (9999, 1)])
def test_files_before_the_last_expired_unit_go(tmp_path: Path, start: int, left: int) -> None:
    queue = ConsumeQueue("T", 0, Segments(RealDisk(), tmp_path, 200, allocate_bytes=4096))
    for queue_offset in WHOLE:
        queue.put(queue_offset, QueueEntry(queue_offset * 100, 100, 0))
    queue.correct_min_offset(start)
    assert queue.drop_expired() == 4 - left
    assert len(list(tmp_path.iterdir())) == left
    queue.segments.close()


def test_a_file_that_another_process_made_is_on_the_disk_before_the_next_is() -> None:
    disk, directory = CrashDisk(), Path("consumequeue", "T", "0")
    disk.make_directory(directory.parent.parent)

    def segments() -> Segments:
        return Segments(disk, directory, 100, allocate_bytes=4096, names_later=True)

    maker, follower = segments(), segments()
    maker.add(0)  # it dies before it syncs what it made
    assert follower.note(0)
    follower.add(100)
    for seed in range(50):
        sizes = {entry.name: entry.size_bytes for entry in disk.crash(seed).list_directory(directory)}
        assert set(sizes.values()) == {100} and len(sizes) == 2, f"image {seed}: {sizes}"
