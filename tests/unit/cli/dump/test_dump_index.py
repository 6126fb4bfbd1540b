"""Entries and headers of index files, whole and damaged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orbitlog.formats.derived.index_layout import IndexLayout
from orbitlog.testing.golden import GoldenStore

Copy = Callable[[GoldenStore], GoldenStore]
ENTRY_NAMES = "file entry keyHash commitLogOffset timeDiffSeconds storeTimestamp previousEntry slot".split()
HEADER_NAMES = (
    "file beginTimestamp endTimestamp beginPhyOffset endPhyOffset hashSlotCount indexCount slots entries".split()
)


@pytest.fixture(params=["golden_497", "golden_497_dledger", "golden_550_crash"])
def golden(request: pytest.FixtureRequest) -> GoldenStore:
    store: GoldenStore = request.getfixturevalue(request.param)
    return store


def test_entries_lead_to_messages_and_headers_to_entries(golden: GoldenStore, run: Any) -> None:
    config = golden.manifest["brokerConfig"]
    stored = {message["commitLogOffset"]: message["storeTimestamp"] for message in golden.manifest["messages"]}
    entries = run("dump", "index", golden.store, "--json")
    headers = run("dump", "index", golden.store, "--json", "--headers")
    assert (entries.exit_code, headers.exit_code, entries.stderr, headers.stderr) == (0, 0, "", "")
    for row in entries.rows:
        assert list(row) == ENTRY_NAMES
        # The first entry of a file still counts from the end of the file before it.
        assert row["entry"] == 1 or 0 <= stored[row["commitLogOffset"]] - row["storeTimestamp"] < 1000
        assert row["slot"] == row["keyHash"] % int(config["maxHashSlotNum"])
    for header in headers.rows:
        assert list(header) == HEADER_NAMES
        of_file = [row for row in entries.rows if row["file"] == header["file"]]
        assert [row["entry"] for row in of_file] == list(range(1, header["indexCount"]))
        assert header["hashSlotCount"] == sum(row["previousEntry"] == 0 for row in of_file)
        assert (header["beginPhyOffset"], header["endPhyOffset"]) == (
            of_file[0]["commitLogOffset"],
            of_file[-1]["commitLogOffset"],
        )
        assert (header["slots"], header["entries"]) == (int(config["maxHashSlotNum"]), int(config["maxIndexNum"]))


def test_entries_of_a_key_are_what_the_broker_finds(golden_497: GoldenStore, run: Any) -> None:
    for query in golden_497.manifest["queries"][::25]:
        ran = run("dump", "index", golden_497.store, "--json", "--topic", query["topic"], "--key", query["key"])
        assert ran.exit_code == 0
        found = {row["commitLogOffset"] for row in ran.rows}
        assert found >= set(query["brokerReturns"])


def test_parts_limits_and_starts(golden_497: GoldenStore, run: Any) -> None:
    rows = run("dump", "index", golden_497.store, "--json").rows
    assert run("dump", "index", golden_497.store / "index", "--json").rows == rows
    last = sorted((golden_497.store / "index").iterdir())[-1]
    assert run("dump", "index", last, "--json").rows == [row for row in rows if row["file"] == last.name]
    assert run("dump", "index", golden_497.store, "--json", "--limit", "3").rows == rows[:3]
    start = rows[700]["commitLogOffset"]
    later = run("dump", "index", golden_497.store, "--json", "--from", str(start)).rows
    assert later == [row for row in rows if row["commitLogOffset"] >= start]


def test_the_tables(golden_497: GoldenStore, run: Any) -> None:
    lines = run("dump", "index", golden_497.store).stdout.splitlines()
    captions = [line for line in lines if " of 399 keys, " in line]
    assert len(captions) == 5
    assert len(lines) == 5 + 5 + 4 * 399 + 19
    assert len(run("dump", "index", golden_497.store, "--headers").stdout.splitlines()) == 6


def edited(golden: GoldenStore, number: int, change: Callable[[bytearray], object]) -> Path:
    path = sorted((golden.store / "index").iterdir())[number]
    data = bytearray(path.read_bytes())
    change(data)
    path.write_bytes(data)
    return path


LAYOUT = IndexLayout(200, 400)


def put(position: int, content: bytes) -> Callable[[bytearray], object]:
    def change(data: bytearray) -> None:
        data[position : position + len(content)] = content

    return change


@pytest.mark.parametrize(
    ("change", "lost", "words"),
    [
        (put(36, b"\0\0\7\0"), 0, "the header counts 1791 keys, there is room for 399"),
        (put(36, b"\xff\0\0\0"), 399, "index header"),
        (put(LAYOUT.entry_position(20), b"\xff" * 60), 3, "entries 20 to 22 are invalid"),
        (put(LAYOUT.entry_position(398), bytes(40)), 2, "entries 398 to 399 are invalid"),
        (lambda data: data.__delitem__(slice(LAYOUT.entry_position(300), None)), 100, "the file has 6840 bytes"),
        (lambda data: data.extend(b"more"), 0, "the file has 8844 bytes"),
        (lambda data: data.clear(), 399, "index header"),
        (lambda data: data.__delitem__(slice(39, None)), 399, "index header"),
    ],
)
def test_damage(
    golden_497: GoldenStore,
    golden_copy: Copy,
    run: Any,
    change: Callable[[bytearray], object],
    lost: int,
    words: str,
) -> None:
    copy = golden_copy(golden_497)
    everything = run("dump", "index", copy.store, "--json").rows
    path = edited(copy, 1, change)
    ran = run("dump", "index", copy.store, "--json")
    assert ran.exit_code == 1
    assert len(ran.rows) == len(everything) - lost
    assert ran.sentences[0].startswith(f"orbitlog: {path}: ")
    assert words in ran.sentences[0]
    assert run("dump", "index", copy.store).exit_code == 1
    assert run("dump", "index", copy.store, "--headers").exit_code in (0, 1)


def test_file_without_a_recognizable_layout(tmp_path: Path, run: Any) -> None:
    path = tmp_path / "20260101000000000"
    path.write_bytes(bytes(LAYOUT.file_bytes))
    ran = run("dump", "index", path)
    assert ran.exit_code == 2
    assert "--set maxHashSlotNum=N" in ran.stderr
    given = ("--set", "maxHashSlotNum=200", "--set", "maxIndexNum=400")
    assert run("dump", "index", path, "--json", *given).exit_code == 0
    assert run("dump", "index", path, "--headers").exit_code == 0


def test_wrong_use(golden_497: GoldenStore, run: Any) -> None:
    assert "use `orbitlog dump commitlog" in run("dump", "index", golden_497.store / "commitlog" / ("0" * 20)).stderr
    for arguments in (["--key", "k"], ["--headers", "--topic", "Orders"]):
        ran = run("dump", "index", golden_497.store, *arguments)
        assert (ran.exit_code, len(ran.sentences)) == (2, 1)
        assert "--topic" in ran.stderr


def test_entries_of_one_topic(golden: GoldenStore, run: Any) -> None:
    topics = {message["commitLogOffset"]: message["topic"] for message in golden.manifest["messages"]}
    every = run("dump", "index", golden.store, "--json").rows
    indexed = {topics[row["commitLogOffset"]] for row in every}
    assert len(indexed) > 5
    for topic in indexed:
        expected = [row for row in every if topics[row["commitLogOffset"]] == topic]
        for path in (golden.store, golden.store / "index"):
            assert run("dump", "index", path, "--json", "--topic", topic).rows == expected
    assert run("dump", "index", golden.store, "--json", "--topic", "Nobody").rows == []


def test_a_topic_needs_the_log(golden_497: GoldenStore, run: Any, tmp_path: Path) -> None:
    alone = tmp_path / "a" / "b" / "20261115084220587"
    alone.parent.mkdir(parents=True)
    alone.write_bytes(next(iter(sorted((golden_497.store / "index").iterdir()))).read_bytes())
    ran = run("dump", "index", alone, "--topic", "OrderEvents")
    assert (ran.exit_code, len(ran.sentences)) == (2, 1)
    assert "needs the commit log" in ran.stderr
    assert run("dump", "index", alone, "--topic", "OrderEvents", "--key", "k3").exit_code == 0
