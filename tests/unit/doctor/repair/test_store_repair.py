"""The damage zoo: each kind is found, explained and repaired; a dry run changes nothing, undo restores each byte."""

from __future__ import annotations

import shutil
from itertools import count
from pathlib import Path

import pytest
from click.testing import CliRunner

from orbitlog.cli.main import cli
from orbitlog.doctor.examination import examine
from orbitlog.doctor.finding_kinds import MEANINGS, Severity
from orbitlog.doctor.repair.repair_journal import undo_last
from orbitlog.doctor.repair.store_repair import Repair, apply_repair, plan_repair
from orbitlog.formats.compat import COMPAT_5_5
from orbitlog.formats.derived.index_layout import IndexLayout
from orbitlog.formats.tables.topic_config import TOPICS, TopicConfig, TopicTable
from orbitlog.settings.store_settings import StoreGeometry
from orbitlog.store.message_store import MessageStore
from orbitlog.storefiles.store_config import StoreConfig
from orbitlog.storefiles.store_files import find_store_files
from orbitlog.testing.golden import GoldenStore
from orbitlog.testing.sample_messages import sample_messages
from tests.support.damage_zoo import ZOO
from tests.support.repaired_stores import assert_served, fingerprint, readable, still_readable


def assert_as_planned(planned: Repair, applied: Repair) -> None:
    """The plan is what was done up to the end of the first round: the same steps, in the same order."""
    first = applied.journals[: len(planned.journals)]
    assert [journal.steps for journal in planned.journals] == [journal.steps for journal in first]
    assert planned.notes == applied.notes
    rounds = [sum(journal.title.startswith("repair of") for journal in one.journals) for one in (planned, applied)]
    assert rounds[0] == min(rounds[1], 1), "a first round that was not planned"
    assert planned.actions == applied.actions[: len(planned.actions)] or planned.notes


@pytest.mark.parametrize("name", ZOO)
def test_damage_is_found_explained_and_repaired(name: str, golden_497: GoldenStore, tmp_path: Path) -> None:
    damage, kinds = ZOO[name]
    root = golden_497.copy_to(tmp_path / "store").store
    before = readable(root)
    damage(root)
    damaged, wanted = fingerprint(root), still_readable(root, before)

    found = examine(root)
    assert not found.is_sound
    assert kinds & {finding.kind for finding in found.findings}
    for diagnosis in found.diagnoses:
        is_advised = diagnosis.command or diagnosis.severity is not Severity.WARNING
        assert diagnosis.consequence and (is_advised or found.missing)
        assert not (found.missing and diagnosis.command), "advice that would lose messages"
        assert str(root) in str(diagnosis)
    planned = plan_repair(root, accept_lost_segments=True)
    assert planned.actions
    assert bool(plan_repair(root).problems) == bool(found.missing)
    dry_run = CliRunner().invoke(cli, ["doctor", "rebuild", str(root), "--dry-run"])
    assert isinstance(dry_run.exception, SystemExit | None), dry_run.exception
    assert fingerprint(root) == damaged, "a check or a dry run changed the store"

    if found.missing:
        refused = apply_repair(root)
        assert refused.problems and not refused.actions
        assert fingerprint(root) == damaged, "a repair that refuses changed the store"
    mended = apply_repair(root, accept_lost_segments=True)
    assert mended.problems == []
    assert mended.is_sound, [str(one) for one in mended.examination.diagnoses] if mended.examination else ""
    assert_as_planned(planned, mended)
    able = {planner for finding in found.findings for planner in MEANINGS[finding.kind].planners}
    assert able >= set(planned.journals[-1].planners) if planned.journals else True
    undo_last(root)
    assert fingerprint(root) == damaged, "undo did not give every byte back"
    assert apply_repair(root, accept_lost_segments=True).is_sound
    assert_served(root, wanted)


@pytest.fixture(scope="module")
def own_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that Orbitlog wrote and closed, in eight segments."""
    root = tmp_path_factory.mktemp("own") / "store"
    geometry = StoreGeometry(32 * 1024, 1220, index_layout=IndexLayout(307, 905))
    clock = count(1_790_000_000_000, 5)
    with MessageStore.open(root, StoreConfig(geometry), lambda: next(clock)) as store:
        topics = {message.topic: store.append(message) for message in sample_messages(1_790_000_000_000)}
    table = TopicTable({topic: TopicConfig(topic) for topic in topics})
    (root / "config").mkdir()
    (root / "config" / TOPICS.name).write_text(TOPICS.encode(table, COMPAT_5_5))
    return root


@pytest.fixture(scope="module")
def killed_5x(golden_550_crash: GoldenStore, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of a 5.5.0 broker that was killed, but for its large timer files."""
    root = tmp_path_factory.mktemp("killed") / "store"
    shutil.copytree(golden_550_crash.store, root, ignore=shutil.ignore_patterns("timerwheel", "timerlog", "timercheck"))
    return root


# A killed 5.x broker leaves empty last files, and the next one deletes them: on its store they are no damage.
LEFT_BY_A_KILL = {("killed_5x", "zero_length_last_queue_file"), ("killed_5x", "disk_full_while_rolling")}


@pytest.mark.parametrize("name", ZOO)
@pytest.mark.parametrize("origin", ["own_store", pytest.param("killed_5x", marks=pytest.mark.slow)])
def test_damage_to_other_stores_is_repaired(
    origin: str, name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    root = tmp_path / "store"
    shutil.copytree(request.getfixturevalue(origin), root)
    damage, kinds = ZOO[name]
    before = readable(root)
    damage(root)
    wanted = still_readable(root, before)
    diagnoses = examine(root).diagnoses
    found = {one.finding.kind for one in diagnoses if one.severity is not Severity.NOTE}
    if (origin, name) in LEFT_BY_A_KILL:
        assert not kinds & found
        assert "behind" in {one.finding.kind for one in diagnoses}, "the units are still counted as not derived"
    else:
        assert kinds & found
    planned = plan_repair(root, accept_lost_segments=True)
    mended = apply_repair(root, accept_lost_segments=True)
    assert mended.problems == []
    assert mended.is_sound, [str(one) for one in mended.examination.diagnoses] if mended.examination else ""
    assert_as_planned(planned, mended)
    assert_served(root, wanted)


def test_a_sound_store_is_left_alone(golden_497: GoldenStore, tmp_path: Path) -> None:
    root = golden_497.copy_to(tmp_path / "store").store
    before = fingerprint(root)
    result = apply_repair(root)
    assert (result.actions, result.is_sound) == ([], True)
    assert fingerprint(root) == before
    shutil.rmtree(root)


def test_a_link_that_leads_elsewhere_stops_a_repair(golden_497: GoldenStore, tmp_path: Path) -> None:
    """A log on another disk must not be taken for a missing one, and filled with placeholders."""
    root = golden_497.copy_to(tmp_path / "store").store
    segment = find_store_files(root).segments[2].path
    segment.rename(tmp_path / "elsewhere")
    segment.symlink_to(tmp_path / "elsewhere")
    before = fingerprint(root)
    assert "link" in {finding.kind for finding in examine(root).findings}
    mended = apply_repair(root)
    assert mended.actions == [] and mended.problems and not mended.is_sound
    assert fingerprint(root) == before and segment.is_symlink()
