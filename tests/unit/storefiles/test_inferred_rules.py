"""A store of a 5.x that puts no tags into its index is as sound as one of a 5.x that does."""

from __future__ import annotations

import shutil
from pathlib import Path

from orbitlog.doctor.examination import examine
from orbitlog.doctor.repair.derived_rebuild import RebuildWish, rebuild_in_place
from orbitlog.settings.store_settings import StoreSettings, load_settings
from orbitlog.storefiles.inferred_rules import sampled_rules
from orbitlog.storefiles.store_files import find_store_files
from orbitlog.testing.golden import GoldenStore


def without_timers(golden: GoldenStore, root: Path) -> Path:
    shutil.copytree(golden.store, root, ignore=shutil.ignore_patterns("timerwheel", "timerlog", "timercheck"))
    return root


def test_index_shows_whether_it_has_tags(golden_550_crash: GoldenStore, tmp_path: Path) -> None:
    root = without_timers(golden_550_crash, tmp_path / "store")
    assert sampled_rules(find_store_files(root), StoreSettings()).compat.indexes_tags
    keys = examine(root).check.keys

    before_5_4 = load_settings(None, ["compat=4.9"])
    rebuild_in_place(root, RebuildWish(frozenset({"index"})), before_5_4, discard_old=True)
    rules = sampled_rules(find_store_files(root), StoreSettings())
    assert rules.compat.name == "5.5" and not rules.compat.indexes_tags
    found = examine(root)
    assert found.is_sound and 0 < found.check.keys < keys
    # A stated rule is used as it is: then the keys are missing.
    assert not examine(root, settings=load_settings(None, ["compat=5.5"])).is_sound


def test_a_store_without_an_index_is_taken_for_the_newest(golden_550_crash: GoldenStore, tmp_path: Path) -> None:
    root = without_timers(golden_550_crash, tmp_path / "store")
    shutil.rmtree(root / "index")
    assert sampled_rules(find_store_files(root), StoreSettings()).compat.indexes_tags
