"""The demonstration writes a store that every reader accepts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orbitlog.cli.cmd_demo import GEOMETRY
from orbitlog.cli.demo_messages import demo_messages
from orbitlog.formats import flags
from orbitlog.store.store_files import find_store_files
from orbitlog.store.store_inference import infer_compat, infer_geometry
from orbitlog.store.store_settings import StoreSettings


def test_the_figures_and_the_files(run: Any, tmp_path: Path) -> None:
    root = tmp_path / "store"
    ran = run("demo", "--store", root, "--json")
    assert (ran.exit_code, ran.stderr) == (0, "")
    (figures,) = ran.rows
    assert figures["store"] == str(root)
    assert figures["messages"] >= 1000
    assert figures["segments"] >= 3
    assert figures["derivedFilesDifferent"] == []
    assert figures["derivedFilesCompared"] == figures["queueFiles"] + figures["indexFiles"]
    store = find_store_files(root)
    assert store.foreign == ()
    assert infer_geometry(store, StoreSettings()) == GEOMETRY
    assert infer_compat(store, StoreSettings()).name == "5.5"
    rows = run("dump", "commitlog", root, "--json").rows
    assert len(rows) == figures["messages"]
    units = run("dump", "consumequeue", root, "--json").rows
    assert {row["commitLogOffset"] for row in units} == {row["commitLogOffset"] for row in rows}


def test_it_shows_each_kind_and_what_to_try_next(run: Any, tmp_path: Path) -> None:
    ran = run("demo", "--store", tmp_path / "new" / "store")
    assert ran.exit_code == 0
    for words in ("$ orbitlog dump commitlog", "$ orbitlog dump config", "byte for byte", "Try next:"):
        assert words in ran.stdout


def test_a_temporary_directory_where_none_is_given(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (figures,) = run("demo", "--json").rows
    assert Path(figures["store"]).is_relative_to(tmp_path)


def test_nothing_is_overwritten(run: Any, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("keep me")
    ran = run("demo", "--store", tmp_path)
    assert (ran.exit_code, len(ran.sentences)) == (2, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_every_kind_of_message_is_among_them() -> None:
    messages = list(demo_messages(1_700_000_000_000))
    assert {flags.compression_type(m.sys_flag) for m in messages if m.sys_flag & flags.COMPRESSED} == {
        flags.CompressionType.ZLIB,
        flags.CompressionType.LZ4,
        flags.CompressionType.ZSTD,
    }
    assert any(message.born_host.is_ipv6 for message in messages)
    assert any(not message.body for message in messages)
    assert any("DELAY" in message.properties for message in messages)
    assert any(not message.properties.get("TAGS", "").isascii() for message in messages)
    assert messages == list(demo_messages(1_700_000_000_000))
