"""A long recovery reports its rate and when it will be done."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitlog.formats.derived.index_layout import IndexLayout
from orbitlog.formats.records.message import make_message
from orbitlog.settings.store_settings import StoreGeometry
from orbitlog.store.message_store import MessageStore
from orbitlog.store.recovery.recovery_progress import ProgressReporter, RecoveryProgress, size_in_words, time_in_words
from orbitlog.storefiles.store_config import StoreConfig


def test_words() -> None:
    pace = RecoveryProgress(2_000_000_000, 10_000_000_000, 4)
    assert str(pace) == "2.0 GB of 10.0 GB, 500 MB/s, 16 s left"
    assert pace.bytes_per_second == 500_000_000
    assert str(RecoveryProgress(0, 999, 3)) == "0 bytes of 999 bytes"
    assert str(RecoveryProgress(5, 10, 0)) == "5 bytes of 10 bytes"
    assert RecoveryProgress(11, 10, 1).remaining_s == 0


@pytest.mark.parametrize(
    ("seconds", "words"), [(0, "0 s"), (59.4, "59 s"), (60, "1 min 0 s"), (3599, "59 min 59 s"), (7260, "2 h 1 min")]
)
def test_times(seconds: float, words: str) -> None:
    assert time_in_words(seconds) == words


def test_sizes() -> None:
    assert [size_in_words(size) for size in (1, 1_000, 2_500_000)] == ["1 bytes", "1.0 kB", "2.5 MB"]


def test_it_is_reported_once_a_second_and_at_the_end() -> None:
    times = iter([10.0, 10.4, 11.0, 11.5, 12.1, 12.2])
    told: list[RecoveryProgress] = []
    teller = ProgressReporter(lambda: next(times), told.append)
    for done in (10, 20, 30, 40, 50):
        teller(done, 50)
    assert [(pace.done_bytes, round(pace.elapsed_s, 1)) for pace in told] == [(20, 1.0), (40, 2.1), (50, 2.2)]


def test_short_work_reports_no_progress() -> None:
    told: list[RecoveryProgress] = []
    teller = ProgressReporter(lambda: 5.0, told.append)
    teller(10, 10)
    assert told == []


def test_store_shows_it(tmp_path: Path) -> None:
    geometry = StoreGeometry(segment_bytes=4096, queue_file_bytes=200, index_layout=IndexLayout(10, 30))
    config = StoreConfig(geometry)
    with MessageStore.open(tmp_path, config, lambda: 1_700_000_000_000) as store:
        for _ in range(30):
            store.append(make_message("T", b"x" * 200))
        end = store.written_to
    (tmp_path / "orbitlog.state").unlink()
    told: list[RecoveryProgress] = []
    seconds = iter(range(1000))
    teller = ProgressReporter(lambda: next(seconds), told.append)
    MessageStore.open(tmp_path, config, lambda: 1, progress=teller).close()
    assert told
    assert (told[-1].done_bytes, told[-1].total_bytes) == (end, end)
    done = [pace.done_bytes for pace in told]
    assert done == sorted(done)
    assert done[0] <= end // 2, "following the log to its end is told, too"
