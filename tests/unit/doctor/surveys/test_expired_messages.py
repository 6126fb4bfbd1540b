"""A log that begins later than its queues: the number of missing messages is reported, and that they may be lost."""

from __future__ import annotations

from pathlib import Path

from orbitlog.doctor.examination import examine
from orbitlog.storefiles.store_files import find_store_files
from orbitlog.testing.golden import GoldenStore
from tests.support.damage_zoo import records


def test_messages_before_the_log_are_counted(golden_497: GoldenStore, tmp_path: Path) -> None:
    root = golden_497.copy_to(tmp_path / "store").store
    first, second = find_store_files(root).segments[:2]
    gone = [one for one in records(root) if one.physical_offset < second.base and not one.sys_flag & 0x4]
    first.path.unlink()

    found = examine(root)

    assert found.is_sound
    told = [one for one in found.diagnoses if one.finding.kind == "retired"]
    assert [one.finding.count for one in told] == [len(gone)]
    assert f"{len(gone)} messages of {len({(one.topic, one.queue_id) for one in gone})} queues" in str(told[0])
    assert "queue files are for deleted messages only" in str(told[0])
    assert "put them back" in told[0].consequence


def test_log_from_its_start_gives_no_notice(golden_497: GoldenStore) -> None:
    assert "retired" not in {finding.kind for finding in examine(golden_497.store).findings}
