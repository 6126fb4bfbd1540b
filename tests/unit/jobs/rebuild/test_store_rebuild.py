"""Derived files rebuilt from a DLedger log: byte for byte those of the broker, up to the committed entry."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitlog.errors import StoreLayoutError
from orbitlog.jobs.local_runner import run_here
from orbitlog.jobs.rebuild.store_rebuild import StoreRebuild, rebuild_with
from orbitlog.settings.store_settings import StoreSettings
from orbitlog.storefiles.findings import FindingKind
from orbitlog.testing.golden import GoldenStore
from tests.support.store_kinds import KINDS, make_dledger_store, make_store

SIZES = {"mappedFileSizeConsumeQueue": "200", "maxHashSlotNum": "10", "maxIndexNum": "30", "compat": "4.9"}


def rebuild(root: Path, out: Path, *, split_bytes: int = 4096, settings: dict[str, str] | None = None) -> StoreRebuild:
    (made,) = rebuild_with(run_here, [root], out=out, settings=StoreSettings(settings or {}), split_bytes=split_bytes)
    return made


def derived_files(root: Path) -> dict[str, bytes]:
    """Return queue files with a unit by path, index files by their order, and the checkpoint."""
    queues = {str(path.relative_to(root)): path.read_bytes() for path in root.glob("consumequeue/*/*/*")}
    indexes = {f"index {number}": path.read_bytes() for number, path in enumerate(sorted((root / "index").iterdir()))}
    return {name: data for name, data in queues.items() if any(data)} | indexes


@pytest.mark.parametrize("split_bytes", [1000, 4096, 1 << 20])
def test_golden_files_are_rebuilt_byte_for_byte(
    golden_497_dledger: GoldenStore, tmp_path: Path, split_bytes: int
) -> None:
    made = rebuild(golden_497_dledger.store, tmp_path / "out", split_bytes=split_bytes)
    assert (made.messages, made.log_end) == (405, golden_497_dledger.manifest["endOfLastRecord"])
    assert derived_files(tmp_path / "out") == derived_files(golden_497_dledger.store)
    checkpoint = (golden_497_dledger.store / "checkpoint").read_bytes()
    assert (tmp_path / "out/checkpoint").read_bytes()[:16] == checkpoint[:16]


def test_converted_store_gives_units_of_both_parts(tmp_path: Path) -> None:
    root = tmp_path / "store"
    make_store(root)
    KINDS["converted to DLedger"](root)
    made = rebuild(root, tmp_path / "out", settings=SIZES)
    assert made.is_published, made.findings
    assert made.messages == 60 + 12
    units = b"".join(path.read_bytes() for path in sorted((tmp_path / "out/consumequeue/T/0").iterdir()))
    assert len(units.rstrip(b"\0")) > 35 * 20


def test_entries_after_the_committed_one_are_left_out(tmp_path: Path) -> None:
    make_dledger_store(tmp_path / "store", 60)
    (tmp_path / "store/dledger-n0/checkpoint").write_text("committedIndex=39\n")
    made = rebuild(tmp_path / "store", tmp_path / "out", settings=SIZES)
    assert made.messages == 40
    # The plan of a finished rebuild includes what is committed.
    (tmp_path / "store/dledger-n0/checkpoint").write_text("committedIndex=49\n\n")
    with pytest.raises(StoreLayoutError, match="another rebuild"):
        rebuild(tmp_path / "store", tmp_path / "out", settings=SIZES)


def test_nothing_is_rebuilt_from_a_damaged_log(tmp_path: Path) -> None:
    root = tmp_path / "store"
    make_dledger_store(root, 60)
    path = max((root / "dledger-n0/data").iterdir())
    data = bytearray(path.read_bytes())
    data[150] ^= 1
    path.write_bytes(data)
    made = rebuild(root, tmp_path / "out", settings=SIZES)
    assert not made.is_published
    assert {(finding.kind, finding.path) for finding in made.findings} >= {(FindingKind.RECORD, str(path))}
