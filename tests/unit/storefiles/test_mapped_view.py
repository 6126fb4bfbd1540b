"""Bytes of files, mapped; descriptors and maps never stay open."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from orbitlog.errors import StoreLayoutError
from orbitlog.storefiles.mapped_view import end_of_written, first_written, holds_data, mapped_view, written_until


def open_descriptors() -> int:
    """Count them if the system reports them."""
    directory = Path("/proc/self/fd")
    return sum(1 for _ in directory.iterdir()) if directory.exists() else 0


@pytest.mark.parametrize("content", [b"", b"x", b"y" * 5000])
def test_the_bytes_of_a_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    open_before = open_descriptors()
    with mapped_view(path) as view:
        assert bytes(view) == content
        assert view.readonly
    with pytest.raises(KeyError), mapped_view(path):
        raise KeyError
    assert open_descriptors() == open_before


def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", tmp_path):
        with pytest.raises(StoreLayoutError, match="not a regular file"), mapped_view(path):
            pass
    with pytest.raises(FileNotFoundError), mapped_view(tmp_path / "missing"):
        pass


@pytest.mark.parametrize("size", [1, 255, 256, 257, 5000, (1 << 20) + 1, 3 << 20])
@pytest.mark.parametrize("share", [0, 0.3, 0.999999])
def test_where_writing_began_and_ended(size: int, share: float) -> None:
    data = bytearray(size)
    view = memoryview(data)
    assert first_written(view, 0) is None
    assert end_of_written(view, 0) == 0
    place = int(size * share)
    data[place] = 1
    assert first_written(view, 0) == first_written(view, place) == place
    assert first_written(view, place + 1) is None
    assert end_of_written(view, 0) == end_of_written(view, place) == place + 1
    assert end_of_written(view, place + 1) == place + 1


@pytest.mark.parametrize(
    "pieces", [[], [(0, b"a")], [(5_000_000, b"b")], [(0, b"a"), (5_000_000, b"b")], [(3, b"\0" * 9000)]]
)
def test_holes_are_not_read(tmp_path: Path, pieces: list[tuple[int, bytes]]) -> None:
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        for position, content in pieces:
            file.seek(position)
            file.write(content)
        file.truncate(1 << 28)
    data_end = max((position + len(content) for position, content in pieces), default=0)
    assert data_end <= written_until(path) <= 1 << 28
    assert holds_data(path) == any(content.strip(b"\0") for _, content in pieces)


def test_an_empty_file_holds_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert written_until(tmp_path / "empty") == 0
    assert not holds_data(tmp_path / "empty")
