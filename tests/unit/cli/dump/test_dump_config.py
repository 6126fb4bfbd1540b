"""The broker's tables, with their backups."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orbitlog.testing.golden import GoldenStore

Copy = Callable[[GoldenStore], GoldenStore]


@pytest.fixture(params=["golden_497", "golden_550_crash"])
def golden(request: pytest.FixtureRequest) -> GoldenStore:
    store: GoldenStore = request.getfixturevalue(request.param)
    return store


def by_file(ran: Any) -> dict[str, Any]:
    return {row["file"]: row for row in ran.rows}


def test_every_file_is_one_object(golden: GoldenStore, run: Any) -> None:
    ran = run("dump", "config", golden.store, "--json")
    assert (ran.exit_code, ran.stderr) == (0, "")
    present = {path.name for path in (golden.store / "config").iterdir()}
    assert set(by_file(ran)) == {name for name in present if not name.endswith(".bak")}
    assert all(list(row) == ["file", "usedBackup", "content"] and not row["usedBackup"] for row in ran.rows)
    assert run("dump", "config", golden.store / "config", "--json") == ran


def test_keys_are_text_and_values_as_the_manifest_states(golden: GoldenStore, run: Any) -> None:
    rows = by_file(run("dump", "config", golden.store, "--json"))
    topics = rows["topics.json"]["content"]["topicConfigTable"]
    assert topics["SCHEDULE_TOPIC_XXXX"]["readQueueNums"] == 18
    for offsets in rows["consumerOffset.json"]["content"]["offsetTable"].values():
        assert all(key.isdecimal() and isinstance(value, int) for key, value in offsets.items())


def test_one_file_and_the_backup_itself(golden_497: GoldenStore, run: Any) -> None:
    for name in ("topics.json", "topics.json.bak"):
        ran = run("dump", "config", golden_497.store / "config" / name, "--json")
        assert ran.exit_code == 0
        assert [(row["file"], row["usedBackup"]) for row in ran.rows] == [(name, False)]


@pytest.mark.parametrize("content", [None, b"", b"{", b'{"topicConfigTable":7}', bytes(300)])
def test_backup_is_used_and_reported(
    golden_497: GoldenStore, golden_copy: Copy, run: Any, content: bytes | None
) -> None:
    copy = golden_copy(golden_497)
    topics = copy.store / "config" / "topics.json"
    if content is None:
        topics.unlink()
    else:
        topics.write_bytes(content)
    for arguments in (["--json"], []):
        ran = run("dump", "config", copy.store, *arguments)
        assert (ran.exit_code, len(ran.sentences)) == (0, 1)
        assert "its backup topics.json.bak is shown" in ran.stderr
    row = by_file(run("dump", "config", copy.store, "--json"))["topics.json"]
    assert row["usedBackup"]
    assert "TBW102" in row["content"]["topicConfigTable"]


def test_unreadable_without_a_backup(golden_497: GoldenStore, golden_copy: Copy, run: Any) -> None:
    copy = golden_copy(golden_497)
    directory = copy.store / "config"
    (directory / "topics.json").write_bytes(b'{"topicConfigTable":')
    (directory / "topics.json.bak").write_bytes(b"also bad")
    (directory / "delayOffset.json").write_bytes(b"[")
    (directory / "delayOffset.json.bak").unlink()
    ran = run("dump", "config", copy.store, "--json")
    assert (ran.exit_code, len(ran.sentences)) == (1, 2)
    assert set(by_file(ran)) == {"consumerFilter.json", "consumerOffset.json", "subscriptionGroup.json"}


def test_the_tables(golden: GoldenStore, run: Any) -> None:
    text = run("dump", "config", golden.store).stdout
    assert "SCHEDULE_TOPIC_XXXX" in text
    assert "CID_RMQ_SYS_TRANS" in text
    assert "next queue offset" in text
    assert "R--" in text or golden.manifest["producer"].endswith("5.5.0")


def test_files_that_no_broker_makes(golden_497: GoldenStore, golden_copy: Copy, run: Any) -> None:
    copy = golden_copy(golden_497)
    (copy.store / "config" / "own.json").write_text("{1:2}")
    (copy.store / "config" / "topics.json.tmp").write_text("{")
    (copy.store / "config" / "empty.json").touch()
    ran = run("dump", "config", copy.store, "--json")
    assert ran.exit_code == 0
    assert by_file(ran)["own.json"]["content"] == {"1": 2}
    assert not {"topics.json.tmp", "empty.json"} & set(by_file(ran))


def test_wrong_paths(golden_497: GoldenStore, run: Any, tmp_path: Path) -> None:
    index_file = next((golden_497.store / "index").iterdir())
    assert "use `orbitlog dump index" in run("dump", "config", index_file).stderr
    assert run("dump", "config", tmp_path).exit_code == 2
    (tmp_path / "commitlog").mkdir()
    assert run("dump", "config", tmp_path, "--json").exit_code == 0
