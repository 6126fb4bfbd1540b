"""Bytes that are copied into a mapped file by a call, as those of a long run of messages are."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from orbitlog.storefiles import disk as disk_module
from orbitlog.storefiles.disk import RealDisk

FILE_BYTES = 256 * 1024
MANY = bytes(range(1, 251)) * 400  # 100,000 bytes


def test_the_map_and_the_file_show_what_was_written(tmp_path: Path) -> None:
    mapped = RealDisk().create_file(tmp_path / "log", FILE_BYTES)
    mapped.allocate(0, FILE_BYTES)
    mapped.write(999, b"before")
    mapped.write_many(1005, MANY)
    mapped.write(1005 + len(MANY), b"after")
    expected = bytes(999) + b"before" + MANY + b"after"
    assert mapped.read(0, len(expected)) == expected
    mapped.close()
    assert (tmp_path / "log").read_bytes() == expected.ljust(FILE_BYTES, b"\0")


def refused(_descriptor: int, _data: bytes, _position: int) -> int:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def cut_short(descriptor: int, data: bytes, position: int) -> int:
    return os.write(descriptor, data[:5000]) if position == 0 else 0


@pytest.mark.parametrize("pwrite", [refused, cut_short])
def test_the_map_does_what_the_call_does_not(
    pwrite: Callable[[int, bytes, int], int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mapped = RealDisk().create_file(tmp_path / "log", FILE_BYTES)
    mapped.allocate(0, FILE_BYTES)
    monkeypatch.setattr(disk_module.os, "pwrite", pwrite)
    mapped.write_many(0, MANY)
    assert mapped.read(0, len(MANY) + 1) == MANY + b"\0"
    mapped.close()


def test_a_file_does_not_grow(tmp_path: Path) -> None:
    mapped = RealDisk().create_file(tmp_path / "log", FILE_BYTES)
    with pytest.raises(IndexError):
        mapped.write_many(FILE_BYTES - len(MANY) + 1, MANY)
    mapped.close()
    assert (tmp_path / "log").stat().st_size == FILE_BYTES


def test_nothing_is_written_to_the_file_that_has_the_number_of_a_closed_one(tmp_path: Path) -> None:
    mapped = RealDisk().create_file(tmp_path / "log", FILE_BYTES)
    mapped.close()
    other = tmp_path / "other"
    with other.open("w+b", buffering=0):  # the lowest number that is free, and likely the same
        with pytest.raises(ValueError, match="closed"):
            mapped.write_many(0, MANY)
        assert other.stat().st_size == 0
