"""What names and small files of a store tell: consumers' progress that is gone, a directory in a table's place."""

from __future__ import annotations

from pathlib import Path

from orbitlog.doctor.diagnosis import Severity
from orbitlog.doctor.examination import examine
from orbitlog.doctor.repair import apply_repair
from orbitlog.testing.golden import GoldenStore


def test_progress_that_nobody_knows_any_more_is_told(golden_497: GoldenStore, tmp_path: Path) -> None:
    root = golden_497.copy_to(tmp_path / "store").store
    assert not [each for each in examine(root).diagnoses if each.finding.kind == "progress unknown"]
    (root / "config" / "consumerOffset.json").unlink()
    (root / "config" / "consumerOffset.json.bak").unlink(missing_ok=True)
    examined = examine(root)
    (told,) = [each for each in examined.diagnoses if each.finding.kind == "progress unknown"]
    assert examined.is_sound and told.severity is Severity.NOTE
    assert "consumer groups were here" in told.finding.reason


def test_a_directory_in_the_place_of_a_small_table_is_set_aside(golden_497: GoldenStore, tmp_path: Path) -> None:
    root = golden_497.copy_to(tmp_path / "store").store
    in_the_way = root / "config" / "orbitlogPops.json"
    in_the_way.mkdir()
    (told,) = [each for each in examine(root).diagnoses if each.finding.kind == "config"]
    assert told.finding.path == str(in_the_way)
    assert told.severity is Severity.ERROR and "is no file" in told.finding.reason
    assert apply_repair(root).is_sound and not in_the_way.exists()


def test_offsets_of_a_broker_with_light_queues_are_not_missing(golden_497: GoldenStore, tmp_path: Path) -> None:
    config = golden_497.copy_to(tmp_path / "store").store / "config"
    (config / "consumerOffset.json").rename(config / "lmqConsumerOffset.json")
    (config / "consumerOffset.json.bak").unlink(missing_ok=True)
    assert not [each for each in examine(config.parent).diagnoses if each.finding.kind == "progress unknown"]
