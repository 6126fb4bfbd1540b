"""What a PATH means: stores with links, DLedger members, odd directories."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orbitlog.formats.records.dledger import ENTRY_HEADER_BYTES, DLedgerEntry, encode_entry_header
from orbitlog.formats.records.message import encode_message, make_message
from orbitlog.testing.golden import GoldenStore

Copy = Callable[[GoldenStore], GoldenStore]


@pytest.mark.parametrize("kind", ["commitlog", "consumequeue", "index", "config", "checkpoint"])
def test_a_linked_part_is_named_instead_of_silently_left_out(
    golden_497: GoldenStore, golden_copy: Copy, run: Any, tmp_path: Path, kind: str
) -> None:
    root = golden_copy(golden_497).store
    elsewhere = tmp_path / f"other-{kind}"
    shutil.move(root / kind, elsewhere)
    (root / kind).symlink_to(elsewhere)
    ran = run("dump", kind, root, "--json")
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert f"{root / kind} is a link to {elsewhere}" in ran.stderr
    if kind != "checkpoint":
        assert run("dump", kind, elsewhere, "--json").exit_code == 0


def test_foreign_files_beside_the_wanted_ones_are_reported(
    golden_497: GoldenStore, golden_copy: Copy, run: Any
) -> None:
    root = golden_copy(golden_497).store
    (root / "commitlog" / "copy.bak").touch()
    (root / "notes").touch()
    ran = run("dump", "commitlog", root, "--json")
    assert (ran.exit_code, len(ran.rows)) == (0, 547)
    assert ran.sentences == [
        f"orbitlog: {root / 'commitlog' / 'copy.bak'} is not named after a first byte in 20 digits"
    ]


def member(root: Path, name: str, count: int) -> Path:
    """Write the data file of a DLedger member with `count` messages."""
    content = b""
    for number in range(count):
        place = len(content)
        record = encode_message(make_message("T", b"body", physical_offset=place + ENTRY_HEADER_BYTES))
        content += encode_entry_header(DLedgerEntry(number, 1, place, len(record))) + record
    path = root / name / "data" / f"{0:020d}"
    path.parent.mkdir(parents=True)
    path.write_bytes(content.ljust(4096, b"\0"))
    return path


def test_a_member_of_dledger(tmp_path: Path, run: Any) -> None:
    path = member(tmp_path, "dledger-n0", 7)
    for target in (tmp_path, path.parent, path):
        ran = run("dump", "commitlog", target, "--json")
        assert (ran.exit_code, [row["commitLogOffset"] for row in ran.rows][:2]) == (0, [48, 48 * 2 + 96])
        assert len(ran.rows) == 7


def test_several_members_are_distinguished(tmp_path: Path, run: Any) -> None:
    paths = [member(tmp_path, name, 3) for name in ("dledger-n0", "dledger-n1")]
    ran = run("dump", "commitlog", tmp_path)
    assert ran.exit_code == 2
    assert str(paths[0].parent) in ran.stderr
    assert len(run("dump", "commitlog", paths[1].parent, "--json").rows) == 3


def test_dledger_store_is_shown_up_to_its_committed_entry(
    golden_497_dledger: GoldenStore, golden_copy: Copy, run: Any
) -> None:
    golden = golden_copy(golden_497_dledger)
    offsets = [message["commitLogOffset"] for message in golden.manifest["messages"]]
    whole = run("dump", "commitlog", golden.store, "--json")
    assert (whole.exit_code, whole.stderr) == (0, "")
    assert [row["commitLogOffset"] for row in whole.rows] == offsets
    for row, message in zip(whole.rows, golden.manifest["messages"], strict=True):
        assert (row["offsetMsgId"], row["storeSize"]) == (message["offsetMsgId"], message["storeSize"])
    (golden.store / "dledger-n0/checkpoint").write_text("committedIndex=400\nendIndex=404\n")
    shown = run("dump", "commitlog", golden.store, "--json")
    assert [row["commitLogOffset"] for row in shown.rows] == offsets[:401]
    assert len(shown.sentences) == 1
    assert "not shown" in shown.sentences[0] and "4 entries after the committed end" in shown.sentences[0]


def test_explanation_of_a_dledger_store(golden_497_dledger: GoldenStore, run: Any) -> None:
    (found,) = run("doctor", "explain", golden_497_dledger.store, "--json").rows
    assert (found["dledger"], found["logEnd"]) == ("dledger-n0", golden_497_dledger.manifest["endOfLastRecord"])
    assert sum(topic["messages"] for topic in found["topics"]) > 300
    assert "DLedger       dledger-n0" in run("doctor", "explain", golden_497_dledger.store).stdout


def test_a_topic_named_like_a_queue(tmp_path: Path, run: Any, golden_497: GoldenStore) -> None:
    source = golden_497.store / "consumequeue" / "TxOrders"
    shutil.copytree(source, tmp_path / "consumequeue" / "0")
    (tmp_path / "consumequeue" / "empty").mkdir()
    rows = run("dump", "consumequeue", tmp_path / "consumequeue", "--json").rows
    assert {row["topic"] for row in rows} == {"0"}


def test_dledger_log_without_its_last_file_is_reported(
    golden_497_dledger: GoldenStore, golden_copy: Copy, run: Any
) -> None:
    root = golden_copy(golden_497_dledger).store
    path = max((root / "dledger-n0/data").iterdir())
    path.unlink()
    ran = run("dump", "commitlog", root, "--json")
    assert (ran.exit_code, len(ran.rows)) == (1, 358)
    (sentence,) = ran.sentences
    assert f"physical offset {int(path.name)}" in sentence and "before its committed end" in sentence


def test_index_of_several_dledger_members_is_refused(tmp_path: Path, run: Any) -> None:
    for name in ("dledger-n0", "dledger-n1"):
        member(tmp_path, name, 3)
    (tmp_path / "index").mkdir()
    ran = run("dump", "index", tmp_path, "--topic", "T", "--json")
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert "several DLedger members (dledger-n0, dledger-n1)" in ran.stderr
