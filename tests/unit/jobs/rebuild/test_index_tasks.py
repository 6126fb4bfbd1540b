"""How an index file is cut into pieces that take equally long."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from orbitlog.formats.derived.index_layout import IndexLayout
from orbitlog.jobs.rebuild.index_tasks import _PASSED_OVER_COST, _PIECE_KEYS_MIN, IndexTask, pieces_of

LAYOUT = IndexLayout(5_000_000, 20_000_000)


def task(staging: Path, key_count: int) -> IndexTask:
    return IndexTask(str(staging), 0, LAYOUT, (), 0, key_count)


@pytest.mark.parametrize("writers", [2, 3, 8, 64])
@pytest.mark.parametrize("key_count", [3_000_000, 19_999_999])
def test_pieces_cover_the_file_and_take_equally_long(key_count: int, writers: int, tmp_path: Path) -> None:
    whole = task(tmp_path, key_count)
    with pieces_of(whole, writers) as pieces:
        assert {piece.path for piece in pieces} == {str(path) for path in (tmp_path / "tmp").iterdir()}
        assert Path(pieces[0].path).stat().st_size == LAYOUT.file_bytes
        assert not whole.target.exists()
    assert whole.target.stat().st_size == LAYOUT.file_bytes
    assert 2 <= len(pieces) <= min(writers, 8)
    assert (pieces[0].first, pieces[-1].stop) == (0, key_count)
    assert all(before.stop == after.first for before, after in pairwise(pieces))
    costs = [piece.stop - piece.first + _PASSED_OVER_COST * piece.first for piece in pieces]
    assert max(costs[:-1]) - min(costs[:-1]) <= 2
    assert costs[-1] < costs[0], "the last one has the slots to write"


@pytest.mark.parametrize(("key_count", "writers"), [(0, 8), (_PIECE_KEYS_MIN, 8), (20_000_000, 1)])
def test_few_keys_or_one_writer_make_no_pieces(key_count: int, writers: int, tmp_path: Path) -> None:
    with pieces_of(task(tmp_path, key_count), writers) as pieces:
        assert pieces == ()
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_an_earlier_run_made_is_left(tmp_path: Path) -> None:
    made = task(tmp_path, 19_000_000)
    made.target.parent.mkdir()
    made.target.touch()
    with pieces_of(made, 4) as pieces:
        assert pieces == ()


def test_what_was_not_written_to_its_end_gets_no_name(tmp_path: Path) -> None:
    unfinished = task(tmp_path, 19_000_000)
    with pytest.raises(KeyError), pieces_of(unfinished, 4):
        raise KeyError
    assert not unfinished.target.exists()
    assert list((tmp_path / "tmp").iterdir()) == []
