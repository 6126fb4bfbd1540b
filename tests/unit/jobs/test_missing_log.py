"""An incomplete log is reported first; nothing is advised, rebuilt or repaired from the rest of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from orbitlog.doctor.examination import examine
from orbitlog.doctor.finding_kinds import Severity
from orbitlog.doctor.repair.derived_rebuild import RebuildWish, rebuild_elsewhere, rebuild_in_place
from orbitlog.doctor.repair.store_repair import apply_repair, plan_repair
from orbitlog.errors import StoreLayoutError
from orbitlog.jobs import missing_log
from orbitlog.jobs.local_runner import run_here
from orbitlog.jobs.log_splits import SPLIT_BYTES_DEFAULT
from orbitlog.jobs.missing_log import missing_parts
from orbitlog.jobs.rebuild.store_rebuild import rebuild_with
from orbitlog.settings.store_settings import StoreSettings
from orbitlog.storefiles.store_files import find_store_files
from orbitlog.testing.golden import GoldenStore
from tests.support.damage_zoo import segment_bytes, segments
from tests.support.repaired_stores import fingerprint

State = Callable[[Path], None]


def behind_a_link(number: int) -> State:
    def change(root: Path) -> None:
        segment, disk = segments(root)[number].path, root.parent / "other-disk"
        disk.mkdir()
        segment.rename(disk / segment.name)
        segment.symlink_to(disk / segment.name)

    return change


def behind_a_link_to_an_unmounted_disk(number: int) -> State:
    def change(root: Path) -> None:
        behind_a_link(number)(root)
        shutil.rmtree(root.parent / "other-disk")

    return change


def commitlog_behind_a_link(root: Path) -> None:
    (root / "commitlog").rename(root.parent / "log")
    (root / "commitlog").symlink_to(root.parent / "log")


def commitlog_on_an_unmounted_disk(root: Path) -> None:
    commitlog_behind_a_link(root)
    shutil.rmtree(root.parent / "log")


def last_segment_missing(root: Path) -> None:
    segments(root)[-1].path.unlink()


def two_last_segments_missing(root: Path) -> None:
    for segment in segments(root)[-2:]:
        segment.path.unlink()


def middle_segment_missing(root: Path) -> None:
    segments(root)[2].path.unlink()


def data_segment_missing_before_a_new_one(root: Path) -> None:
    """Brokers create a segment ahead: the last one with messages is missing, not the last file."""
    last = segments(root)[-1]
    size_bytes = segment_bytes(root)
    (root / "commitlog" / f"{last.base + size_bytes:020d}").write_bytes(bytes(size_bytes))
    last.path.unlink()


def commitlog_emptied(root: Path) -> None:
    for segment in segments(root):
        segment.path.unlink()


def commitlog_removed(root: Path) -> None:
    shutil.rmtree(root / "commitlog")


def new_log_beside_old_queues(root: Path) -> None:
    """As after a start while the disk of the log was not mounted."""
    size_bytes = segment_bytes(root)
    commitlog_emptied(root)
    (root / "commitlog" / f"{0:020d}").write_bytes(bytes(size_bytes))


def only_the_index_refers_to_messages(root: Path) -> None:
    commitlog_emptied(root)
    shutil.rmtree(root / "consumequeue")
    (root / "checkpoint").unlink()


def only_the_checkpoint_refers_to_messages(root: Path) -> None:
    commitlog_emptied(root)
    for name in ("index", "consumequeue"):
        shutil.rmtree(root / name)


# Each with the kind that is reported first, and whether the loss can be accepted.
STATES: dict[str, tuple[State, str, bool]] = {
    "first behind a link": (behind_a_link(0), "link", False),
    "middle behind a link": (behind_a_link(2), "link", False),
    "last behind a link": (behind_a_link(-1), "link", False),
    "last on an unmounted disk": (behind_a_link_to_an_unmounted_disk(-1), "link", True),
    "middle on an unmounted disk": (behind_a_link_to_an_unmounted_disk(2), "link", True),
    "commitlog behind a link": (commitlog_behind_a_link, "link", False),
    "commitlog on an unmounted disk": (commitlog_on_an_unmounted_disk, "link", False),
    "last missing": (last_segment_missing, "segment", True),
    "two last missing": (two_last_segments_missing, "segment", True),
    "middle missing": (middle_segment_missing, "segment", True),
    "missing before a new one": (data_segment_missing_before_a_new_one, "segment", True),
    "emptied": (commitlog_emptied, "log", False),
    "removed": (commitlog_removed, "log", False),
    "new log": (new_log_beside_old_queues, "log", False),
    "index alone": (only_the_index_refers_to_messages, "log", False),
    "checkpoint alone": (only_the_checkpoint_refers_to_messages, "log", False),
}


@pytest.fixture(params=STATES)
def state(request: pytest.FixtureRequest, golden_497: GoldenStore, tmp_path: Path) -> tuple[Path, str, bool]:
    change, kind, may_be_lost = STATES[request.param]
    root = golden_497.copy_to(tmp_path / "store").store
    change(root)
    return root, kind, may_be_lost


def test_incomplete_log_is_reported_first_and_nothing_is_advised(state: tuple[Path, str, bool]) -> None:
    root, kind, may_be_lost = state
    found = examine(root)
    assert found.missing and not found.is_sound
    first = found.diagnoses[0]
    assert (first.finding.kind, first.severity) == (kind, Severity.ERROR)
    assert found.missing[0].may_be_lost is may_be_lost
    assert [str(one) for one in found.diagnoses if one.command] == []
    assert not any("rebuild --" in str(one) or "doctor repair" in str(one) for one in found.diagnoses)


def test_incomplete_log_is_neither_rebuilt_nor_repaired(state: tuple[Path, str, bool], tmp_path: Path) -> None:
    root, *_ = state
    before = fingerprint(root)
    given, out = StoreSettings(), tmp_path / "out"
    rebuilds = {
        "aside": lambda: rebuild_elsewhere(root, out, RebuildWish(), given),
        "in place": lambda: rebuild_in_place(root, RebuildWish(), given),
        "spark": lambda: rebuild_with(run_here, [root], out=None, settings=given, split_bytes=SPLIT_BYTES_DEFAULT)[0],
    }
    for name, rebuild in rebuilds.items():
        try:
            assert not rebuild().is_published, name
        except StoreLayoutError as error:
            assert str(root) in str(error)
        assert not any((out / name).exists() for name in ("consumequeue", "index", "checkpoint"))
    mended = apply_repair(root)
    assert mended.problems and not mended.actions and not mended.is_sound
    assert plan_repair(root).problems and not plan_repair(root).actions
    for leftover in (".orbitlog-doctor", ".orbitlog-rebuild"):
        shutil.rmtree(root / leftover, ignore_errors=True)
    assert {path: made for path, made in fingerprint(root).items() if path != "lock"} == {
        path: made for path, made in before.items() if path != "lock"
    }


def test_accepting_the_loss_repairs_only_what_no_file_exists_of(state: tuple[Path, str, bool]) -> None:
    root, _, may_be_lost = state
    mended = apply_repair(root, accept_lost_segments=True)
    assert mended.is_sound is may_be_lost
    assert bool(mended.problems) is not may_be_lost


def test_link_finding_names_the_directory_it_points_to(golden_497: GoldenStore, tmp_path: Path) -> None:
    root = golden_497.copy_to(tmp_path / "store").store
    behind_a_link(-1)(root)
    (first, *_) = examine(root).diagnoses
    assert str(tmp_path / "other-disk") in first.finding.reason
    assert "queues have units for" in first.finding.reason


def test_unreadable_segment_is_reported_and_refused(
    golden_497: GoldenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Permissions do not stop root, so the question is asked of a stand-in."""
    root = golden_497.copy_to(tmp_path / "store").store
    denied = segments(root)[1].path
    monkeypatch.setattr(missing_log, "_can_open", lambda path: path != denied)
    found = examine(root)
    assert (found.diagnoses[0].finding.kind, found.diagnoses[0].finding.path) == ("unreadable", str(denied))
    assert [one for one in found.diagnoses if one.command] == []
    assert [one.finding.path for one in found.diagnoses if one.finding.kind == "segment"] == []
    assert apply_repair(root, accept_lost_segments=True).problems
    with pytest.raises(StoreLayoutError, match="cannot be opened"):
        rebuild_in_place(root, RebuildWish(), StoreSettings())


def test_complete_logs_have_no_missing_part(golden_497: GoldenStore, golden_550_crash: GoldenStore) -> None:
    for golden in (golden_497, golden_550_crash):
        assert missing_parts(find_store_files(golden.store), segment_bytes(golden.store)) == []


def test_misplaced_segment_is_not_a_missing_one(golden_497: GoldenStore, tmp_path: Path) -> None:
    root = golden_497.copy_to(tmp_path / "store").store
    last = segments(root)[-1]
    last.path.rename(last.path.with_name(f"{last.base + 4 * segment_bytes(root):020d}"))
    found = examine(root)
    assert [one.finding for one in found.missing if one.finding.physical_offset == last.base] == [
        one.finding for one in found.missing
    ]


def test_empty_store_contradicts_nothing(tmp_path: Path) -> None:
    root = tmp_path / "store"
    (root / "commitlog").mkdir(parents=True)
    (root / "consumequeue" / "Empty" / "0").mkdir(parents=True)
    assert examine(root).is_sound
