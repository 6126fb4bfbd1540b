"""Units of queues, whole and damaged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orbitlog.formats.derived.queue_entry import PRE_BLANK_RAW, QueueEntry, encode_entry
from orbitlog.formats.names import SCHEDULE_TOPIC
from orbitlog.testing.golden import GoldenStore

Copy = Callable[[GoldenStore], GoldenStore]


@pytest.fixture(params=["golden_497", "golden_550_crash"])
def golden(request: pytest.FixtureRequest) -> GoldenStore:
    store: GoldenStore = request.getfixturevalue(request.param)
    return store


def expected_units(golden: GoldenStore) -> list[dict[str, Any]]:
    """Every message of the golden stores has a unit; its order is that of topic, queue and queue offset."""
    rows = [
        {
            "topic": message["topic"],
            "queueId": message["queueId"],
            "queueOffset": message["queueOffset"],
            "commitLogOffset": message["commitLogOffset"],
            "size": message["storeSize"],
            "tagsCode": message["tagsCode"],
        }
        for message in golden.manifest["messages"]
    ]
    for row in rows:
        if row["topic"] == SCHEDULE_TOPIC:
            row["deliverTimestamp"] = row["tagsCode"]
    return sorted(rows, key=lambda row: (row["topic"], row["queueId"], row["queueOffset"]))


def test_every_unit_is_as_the_manifest_states(golden: GoldenStore, run: Any) -> None:
    ran = run("dump", "consumequeue", golden.store, "--json")
    assert (ran.exit_code, ran.stderr) == (0, "")
    assert ran.rows == expected_units(golden)
    assert run("dump", "consumequeue", golden.store / "consumequeue", "--json") == ran


def test_parts_of_the_tree(golden: GoldenStore, run: Any) -> None:
    rows = expected_units(golden)
    for topic in sorted({row["topic"] for row in rows}):
        of_topic = [row for row in rows if row["topic"] == topic]
        directory = golden.store / "consumequeue" / topic
        assert run("dump", "consumequeue", directory, "--json").rows == of_topic
        assert run("dump", "consumequeue", golden.store, "--topic", topic, "--json").rows == of_topic
        queue_id = of_topic[-1]["queueId"]
        of_queue = [row for row in of_topic if row["queueId"] == queue_id]
        assert run("dump", "consumequeue", directory / str(queue_id), "--json").rows == of_queue
        last_file = sorted((directory / str(queue_id)).iterdir())[-1]
        in_file = [row for row in of_queue if row["queueOffset"] >= int(last_file.name) // 20]
        assert run("dump", "consumequeue", last_file, "--json").rows == in_file


def test_from_and_limit(golden_497: GoldenStore, run: Any) -> None:
    directory = golden_497.store / "consumequeue" / "single_queue_log" / "0"
    rows = run("dump", "consumequeue", directory, "--json").rows
    assert len(rows) > 100
    for start in (0, 1, 49, 50, 51, len(rows), 10**6):
        ran = run("dump", "consumequeue", directory, "--json", "--from", str(start), "--limit", "7")
        assert (ran.exit_code, ran.rows) == (0, rows[start : start + 7])


def test_the_table(golden_497: GoldenStore, run: Any) -> None:
    heading, *lines, summary = run(
        "dump", "consumequeue", golden_497.store, "--topic", SCHEDULE_TOPIC
    ).stdout.splitlines()
    assert heading.split()[:2] == ["topic", "queue"]
    assert all(" due 2026-11-1" in line for line in lines)
    assert summary.startswith(f"{len(lines)} units in ")


def queue_file(directory: Path, content: bytes, base: int = 0) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{base:020d}"
    path.write_bytes(content)
    return path


def units(count: int, first: int = 0) -> bytes:
    return b"".join(encode_entry(QueueEntry(1000 * n, 100, n)) for n in range(first, first + count))


def test_units_that_only_fill_room_are_shown_on_demand(tmp_path: Path, run: Any) -> None:
    queue_file(tmp_path / "Late" / "0", PRE_BLANK_RAW * 3 + units(2, 3) + bytes(100))
    rows = run("dump", "consumequeue", tmp_path / "Late", "--json").rows
    assert [row["queueOffset"] for row in rows] == [3, 4]
    rows = run("dump", "consumequeue", tmp_path / "Late", "--json", "--all").rows
    assert [row.get("preBlank", False) for row in rows] == [True, True, True, False, False]
    assert "placeholder before the first unit" in run("dump", "consumequeue", tmp_path / "Late", "--all").stdout


@pytest.mark.parametrize("file_name", ["00000000000000000000", "moved.bin"])
def test_a_file_out_of_its_tree(tmp_path: Path, run: Any, file_name: str) -> None:
    path = tmp_path / "somewhere" / file_name
    path.parent.mkdir()
    path.write_bytes(units(2) + bytes(60))
    rows = run("dump", "consumequeue", path, "--json").rows
    assert [(row["topic"], row["queueId"], row["queueOffset"]) for row in rows] == [(None, None, 0), (None, None, 1)]
    assert run("dump", "consumequeue", path).exit_code == 0


@pytest.mark.parametrize(
    ("content", "offsets", "words"),
    [
        (units(1) + bytes(40) + units(2, 3), [0, 3, 4], "queue offset 1 (byte 20 of the file): zeros"),
        (units(1) + b"\xff" * 20 + units(3, 2), [0, 2, 3, 4], "queue offset 1 (byte 20 of the file): queue entry"),
        (units(2) + b"\xff" * 60, [0, 1], "60 bytes skipped, nothing follows"),
        (units(3) + b"\xff" * 25, [0, 1, 2], "queue entry"),
    ],
)
def test_damage_inside_a_file(tmp_path: Path, run: Any, content: bytes, offsets: list[int], words: str) -> None:
    queue_file(tmp_path / "T" / "0", content)
    ran = run(
        "dump",
        "consumequeue",
        tmp_path / "T",
        "--json",
        "--set",
        f"mappedFileSizeConsumeQueue={len(content) // 20 * 20}",
    )
    assert ran.exit_code == 1
    assert [row["queueOffset"] for row in ran.rows] == offsets
    assert words in ran.sentences[0]


def test_a_short_a_long_and_a_missing_file(golden_497: GoldenStore, golden_copy: Copy, run: Any) -> None:
    copy = golden_copy(golden_497)
    directory = copy.store / "consumequeue" / "single_queue_log" / "0"
    first, second, _ = sorted(directory.iterdir())
    everything = run("dump", "consumequeue", directory, "--json").rows
    original = first.read_bytes()
    for content, words in ((original[:990], "this one 990"), (original + b"x", "this one 1001")):
        first.write_bytes(content)
        ran = run("dump", "consumequeue", directory, "--json")
        assert (ran.exit_code, len(ran.sentences)) == (1, 1)
        assert words in ran.stderr
        lost = [49] if len(content) < 1000 else []
        assert [row for row in everything if row not in ran.rows] == [everything[n] for n in lost]
    first.write_bytes(original)
    second.unlink()
    ran = run("dump", "consumequeue", directory, "--json")
    assert (ran.exit_code, len(ran.sentences)) == (1, 1)
    assert "queue offset 50 (byte 0 of the file): 1000 bytes before this file are missing" in ran.stderr
    assert ran.rows == everything[:50] + everything[100:]


def test_zeros_before_a_later_file(golden_497: GoldenStore, golden_copy: Copy, run: Any) -> None:
    copy = golden_copy(golden_497)
    directory = copy.store / "consumequeue" / "single_queue_log" / "0"
    second = sorted(directory.iterdir())[1]
    second.write_bytes(bytes(1000))
    ran = run("dump", "consumequeue", directory, "--json")
    assert (ran.exit_code, len(ran.sentences)) == (1, 1)
    assert "1000 bytes skipped, reading continued at 100" in ran.stderr


def test_wrong_paths(golden_497: GoldenStore, run: Any, tmp_path: Path) -> None:
    segment = golden_497.store / "commitlog" / ("0" * 20)
    for path in (segment, segment.parent):
        ran = run("dump", "consumequeue", path)
        assert ran.exit_code == 2
        assert "use `orbitlog dump commitlog " in ran.stderr
    assert run("dump", "consumequeue", tmp_path).exit_code == 2
