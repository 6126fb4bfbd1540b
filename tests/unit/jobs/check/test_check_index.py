"""Index files in the state in which a killed broker leaves them."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitlog.doctor.examination import examine
from orbitlog.storefiles.findings import FindingKind
from tests.support.store_kinds import make_store, put


@pytest.mark.parametrize("is_killed", [True, False])
def test_only_index_file_of_zeros_is_sound_after_a_kill(is_killed: bool, tmp_path: Path) -> None:
    """A broker was killed just after it created the file: nothing records the number of its slots and entries."""
    make_store(tmp_path)
    for path in (tmp_path / "index").iterdir():
        path.unlink()
    put(tmp_path / "index" / "20261118032646856", bytes(2240))
    if is_killed:
        put(tmp_path / "abort", b"")
    kinds = {one.finding.kind for one in examine(tmp_path).problems}
    assert (FindingKind.INDEX in kinds) is not is_killed
