"""Small files are replaced whole, and a failure leaves the old one and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from orbitlog.settings.atomic_file import create_directory, replace_file


@pytest.mark.parametrize("is_durable", [True, False])
def test_file_is_replaced_and_nothing_else_is_left(tmp_path: Path, is_durable: bool) -> None:
    path = tmp_path / "table.json"
    for data in (b"old", b"new" * 100_000):
        replace_file(path, data, mode=0o600, is_durable=is_durable)
        assert path.read_bytes() == data
    assert path.stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["table.json"]


def test_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "table.json"
    replace_file(path, b"old")

    def full(descriptor: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space"):
        replace_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["table.json"]


def test_left_over_of_a_killed_process_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "table.json.new").write_bytes(b"half")
    replace_file(tmp_path / "table.json", b"whole", suffix=".new")
    assert [entry.name for entry in tmp_path.iterdir()] == ["table.json"]


def test_root_leaves_files_and_directories_to_the_owner_of_their_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[tuple[Path, tuple[int, ...]]] = []

    def give(descriptor: int, *ids: int) -> None:
        given.append((Path(f"/proc/self/fd/{descriptor}").readlink(), ids))

    owner = tmp_path.stat().st_uid, tmp_path.stat().st_gid
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "fchown", give)
    create_directory(tmp_path / "store" / "config", keeps_owner=True)
    assert given == [(tmp_path / "store", owner), (tmp_path / "store" / "config", owner)]
    given.clear()
    for _ in range(2):
        replace_file(tmp_path / "access.json", b"{}", keeps_owner=True)
    assert [ids for _, ids in given] == [owner, owner]
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    replace_file(tmp_path / "access.json", b"{}", keeps_owner=True)
    assert len(given) == 2


def test_directory_that_its_owner_replaces_by_a_link_is_not_given_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "etc").mkdir()
    given: list[int] = []
    make = Path.mkdir

    def make_link(path: Path, *words: object, **more: object) -> None:
        make(path, *words, **more)  # type: ignore[arg-type]
        path.rmdir()
        path.symlink_to(tmp_path / "etc")

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "fchown", lambda descriptor, *_: given.append(descriptor))
    monkeypatch.setattr(Path, "mkdir", make_link)
    with pytest.raises(OSError, match="config"):
        create_directory(tmp_path / "config", keeps_owner=True)
    assert given == []
