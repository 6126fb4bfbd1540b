"""Journals: carried out, taken back, and taken up after a kill at any point of either."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from orbitlog.doctor.repair.repair_journal import (
    RepairJournal,
    discard_kept,
    finish_interrupted,
    interrupted,
    undo_last,
)
from orbitlog.errors import StoreLayoutError
from tests.support.repaired_stores import fingerprint


class Killed(BaseException):
    """Stands for kill -9: nothing after it runs but what Python cannot help running."""


@pytest.fixture(autouse=True)
def no_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill loses nothing that was written, synced or not; thousands of syncs would take minutes."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    root = tmp_path / "store"
    (root / "commitlog").mkdir(parents=True)
    (root / "commitlog" / "a").write_bytes(b"0123456789" * 10)
    (root / "commitlog" / "b").write_bytes(b"b" * 50)
    (root / "commitlog" / "c").write_bytes(b"c" * 70)
    (root / "index").mkdir()
    (root / "index" / "old").write_bytes(b"old")
    return root


def some_repair(root: Path) -> RepairJournal:
    """One of each step, and two files that change places."""
    log = root / "commitlog"
    journal = RepairJournal.begin(root, "a test")
    journal.write(log / "a", 5, b"XYZ", "bytes")
    journal.resize(log / "a", 40, "shorter")
    journal.quarantine(log / "b", "swap")
    b_aside = root / str(journal.steps[-1].to)
    journal.quarantine(log / "c", "swap")
    journal.put(root / str(journal.steps[-1].to), log / "b", "swap")
    journal.put(b_aside, log / "c", "swap")
    made = journal.new / "index"
    made.mkdir()
    (made / "new").write_bytes(b"new")
    journal.replace(made, root / "index", "made again")
    journal.put_file(root / "small", b"small", "a new file")
    return journal


def without_journal(root: Path) -> dict[str, str]:
    return {name: found for name, found in fingerprint(root).items() if not name.startswith(".orbitlog-doctor")}


def test_a_repair_and_its_undoing(store: Path) -> None:
    before = fingerprint(store)
    times = (store / "commitlog" / "a").stat().st_mtime_ns
    some_repair(store).carry_out()
    assert (store / "commitlog" / "a").read_bytes() == (b"01234XYZ89" + b"0123456789" * 3)
    assert (store / "commitlog" / "b").read_bytes() == b"c" * 70
    assert (store / "commitlog" / "c").read_bytes() == b"b" * 50
    assert (store / "index" / "new").exists() and not (store / "index" / "old").exists()
    assert (store / "small").read_bytes() == b"small"
    assert (store / "commitlog" / "a").stat().st_mtime_ns == times
    assert interrupted(store) == []
    assert len(undo_last(store)) == 9
    assert fingerprint(store) == before
    assert not (store / ".orbitlog-doctor").exists()
    with pytest.raises(StoreLayoutError, match="no repair to undo"):
        undo_last(store)


def kill_at(monkeypatch: pytest.MonkeyPatch, number: int) -> list[str]:
    """Kill before the `number`th change of the disk; returns a list that grows with each."""
    seen: list[str] = []

    def counted(name: str, real: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **more: object) -> object:
            seen.append(name)
            if len(seen) > number:
                raise Killed
            return real(*arguments, **more)

        return call

    for name in ("replace", "unlink", "mkdir", "rmdir", "ftruncate", "pwrite", "utime"):
        monkeypatch.setattr(os, name, counted(name, getattr(os, name)))
    return seen


@pytest.mark.parametrize("is_taken_back", [False, True], ids=["then repaired", "then undone"])
def test_killed_at_each_step_of_a_repair(store: Path, tmp_path: Path, is_taken_back: bool) -> None:
    before = without_journal(store)
    whole = tmp_path / "whole"
    shutil.copytree(store, whole)
    some_repair(whole).carry_out()
    after = without_journal(whole)
    number, outcomes = 0, set()
    while True:
        copy = tmp_path / f"copy{number}"
        shutil.copytree(store, copy)
        with pytest.MonkeyPatch.context() as patch:
            kill_at(patch, number)
            try:
                some_repair(copy).carry_out()
                break
            except Killed:
                pass
        has_begun = bool(interrupted(copy))
        if is_taken_back and has_begun:
            undo_last(copy)
            assert without_journal(copy) == before
        else:
            finish_interrupted(copy)
            outcomes.add(has_begun)
            # Without a journal in the middle it had not begun, or all of it was done.
            assert without_journal(copy) in ((after,) if has_begun else (before, after))
        shutil.rmtree(copy)
        number += 1
    assert number > 30
    assert is_taken_back or outcomes == {False, True}


def test_killed_at_each_step_of_an_undoing(store: Path, tmp_path: Path) -> None:
    before = without_journal(store)
    some_repair(store).carry_out()
    number = 0
    while True:
        copy = tmp_path / f"copy{number}"
        shutil.copytree(store, copy)
        with pytest.MonkeyPatch.context() as patch:
            kill_at(patch, number)
            try:
                undo_last(copy)
                break
            except Killed:
                pass
        if (copy / ".orbitlog-doctor").exists():
            finish_interrupted(copy)
        if without_journal(copy) != before:
            undo_last(copy)  # it was killed before it had begun
        assert without_journal(copy) == before
        shutil.rmtree(copy)
        number += 1
    assert number > 20


def test_what_a_broker_changed_is_not_taken_back(store: Path) -> None:
    some_repair(store).carry_out()
    (store / "commitlog" / "a").write_bytes(b"a broker was here")
    with pytest.raises(StoreLayoutError, match="changed since"):
        undo_last(store)
    undo_last(store, force=True)
    assert (store / "commitlog" / "b").read_bytes() == b"b" * 50


def test_what_is_kept_can_be_discarded(store: Path) -> None:
    some_repair(store).carry_out()
    assert discard_kept(store) == 1
    assert not (store / ".orbitlog-doctor").exists()
    assert (store / "small").exists()


def test_a_plan_that_was_never_written_down_leaves_nothing(store: Path) -> None:
    before = fingerprint(store)
    some_repair(store)  # killed before it was carried out
    assert finish_interrupted(store) == []
    RepairJournal.begin(store, "another").forget()
    assert fingerprint(store) == before


@pytest.mark.parametrize(
    "content",
    [
        b"garbage",
        b"[]",
        b'{"run":1,"title":"t","steps":[]}',
        b'{"run":"000001","title":"t","steps":[{"do":"move","path":"../outside","why":"w","to":"inside"}]}',
        b'{"run":"000001","title":"t","steps":[{"do":"move","path":"index","why":"w","to":"/outside"}]}',
        b'{"run":"000001","title":"t","steps":[{"do":"write","path":"index/old","why":"w","new":"../../../x"}]}',
    ],
)
def test_forged_journal_is_refused(store: Path, content: bytes) -> None:
    """A store that was sent must not lead a repair to files outside it."""
    before = fingerprint(store)
    place = store / ".orbitlog-doctor" / "000001"
    place.mkdir(parents=True)
    (place / "journal.json").write_bytes(content)
    for use in (finish_interrupted, interrupted, undo_last):
        with pytest.raises(StoreLayoutError, match="is not a valid repair journal"):
            use(store)
    shutil.rmtree(place.parent)
    assert fingerprint(store) == before


def test_progress_that_is_not_a_number_is_reported(store: Path) -> None:
    some_repair(store).carry_out()
    (store / ".orbitlog-doctor" / "000001" / "progress").write_bytes(b"x")
    with pytest.raises(StoreLayoutError, match="is not a number of steps"):
        undo_last(store, force=True)


def test_a_file_that_became_a_directory_is_given_back(store: Path) -> None:
    (store / "config").write_bytes(b"in the way")
    before = fingerprint(store)
    journal = RepairJournal.begin(store, "a test")
    journal.quarantine(store / "config", "is in the way")
    journal.put_file(store / "config" / "topics.json", b"{}", "made")
    journal.carry_out()
    assert (store / "config" / "topics.json").read_bytes() == b"{}"
    undo_last(store)
    assert fingerprint(store) == before


def test_cut_bytes_are_kept_without_the_hole_after_them(store: Path) -> None:
    path = store / "commitlog" / "a"
    os.truncate(path, 1 << 30)
    journal = RepairJournal.begin(store, "a test")
    journal.resize(path, 40, "shorter")
    kept = store / ".orbitlog-doctor" / "000001" / "kept" / "0"
    assert kept.stat().st_size < 1 << 20
    journal.carry_out()
    undo_last(store)
    assert path.stat().st_size == 1 << 30
    with path.open("rb") as file:
        assert file.read(110) == b"0123456789" * 10 + bytes(10)


def test_directories_that_were_made_go_when_it_is_taken_back(store: Path) -> None:
    (store / "empty").mkdir()
    before = sorted(store.rglob("*"))
    journal = RepairJournal.begin(store, "a queue is made again")
    journal.put_file(store / "consumequeue" / "Orders" / "0" / "new", b"units", "made again")
    journal.put_file(store / "consumequeue" / "Orders" / "1" / "new", b"units", "made again")
    journal.put_file(store / "empty" / "new", b"x", "made again")
    journal.carry_out()
    (store / "consumequeue" / "Orders" / "1" / "other").write_bytes(b"somebody's")
    undo_last(store)
    somebodys = store / "consumequeue" / "Orders" / "1" / "other"
    assert sorted(store.rglob("*")) == sorted([*before, *somebodys.parents[:3], somebodys])
