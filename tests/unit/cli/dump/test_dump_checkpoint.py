"""Checkpoints of both versions."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

from orbitlog.testing.golden import GoldenStore

NAMES = (
    "physicMsgTimestamp logicsMsgTimestamp indexMsgTimestamp masterFlushedOffset confirmPhyOffset logicsPhysicalOffset"
).split()


def test_fields_are_those_of_the_file(golden_497: GoldenStore, golden_550_crash: GoldenStore, run: Any) -> None:
    for golden in (golden_497, golden_550_crash):
        file = golden.store / "checkpoint"
        fields = struct.unpack(">6q", file.read_bytes()[:48])
        for path in (golden.store, file):
            ran = run("dump", "checkpoint", path, "--json")
            assert (ran.exit_code, ran.rows) == (0, [dict(zip(NAMES, fields, strict=True))])
        assert list(ran.rows[0]) == NAMES


def test_after_a_clean_stop_it_names_the_last_message(golden_497: GoldenStore, run: Any) -> None:
    last_ms = golden_497.manifest["messages"][-1]["storeTimestamp"]
    assert run("dump", "checkpoint", golden_497.store, "--json").rows[0]["physicMsgTimestamp"] == last_ms
    lines = run("dump", "checkpoint", golden_497.store).stdout.splitlines()
    assert [line.split()[0] for line in lines[:6]] == NAMES


def test_files_of_another_size(tmp_path: Path, run: Any) -> None:
    file = tmp_path / "checkpoint"
    for content, rows in ((b"", 0), (bytes(47), 0), (bytes(48), 1), (bytes(4095), 1)):
        file.write_bytes(content)
        ran = run("dump", "checkpoint", file, "--json")
        assert (ran.exit_code, len(ran.sentences), len(ran.rows)) == (1, 1, rows)


def test_a_store_without_one(tmp_path: Path, run: Any) -> None:
    (tmp_path / "commitlog").mkdir()
    ran = run("dump", "checkpoint", tmp_path, "--json")
    assert (ran.exit_code, ran.stdout) == (0, "")
    assert "has no checkpoint" in ran.stderr


def test_a_file_of_another_kind(golden_497: GoldenStore, run: Any) -> None:
    segment = golden_497.store / "commitlog" / ("0" * 20)
    ran = run("dump", "checkpoint", segment)
    assert ran.exit_code == 2
    assert f"use `orbitlog dump commitlog {segment}`" in ran.stderr
