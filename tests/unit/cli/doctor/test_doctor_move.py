"""`orbitlog doctor move` as a user calls it: golden stores in both directions, JSON, exit codes, nothing written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from orbitlog.cli.main import cli
from orbitlog.testing.golden import GoldenStore
from tests.support.store_kinds import fingerprint, make_store, put

# The golden broker had a smaller timer log than Orbitlog can write for Java.
_TOO_SMALL = ("mappedFileSizeTimerLog",)


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["doctor", "move", *map(str, arguments)])


def rows_of(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def matching_config(golden: GoldenStore, path: Path, *, without: tuple[str, ...] = ()) -> Path:
    texts = {**golden.manifest["brokerConfig"], "storePathRootDir": str(golden.store), "bindAddress": "0.0.0.0"}
    texts["allowAnonymous"] = "clients"
    path.write_text("".join(f"{key}={text}\n" for key, text in texts.items() if key not in without))
    return path


@pytest.mark.parametrize("version", ["497", "550_crash"])
@pytest.mark.parametrize("target", ["orbitlog", "java"])
def test_golden_store_with_its_config_moves_freely(
    version: str, target: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    golden: GoldenStore = request.getfixturevalue(f"golden_{version}")
    before = fingerprint(golden.store)
    not_of_java = ("allowAnonymous", "bindAddress") if version == "497" else ("allowAnonymous",)
    without = _TOO_SMALL if target == "orbitlog" else not_of_java
    config = matching_config(golden, tmp_path / "broker.conf", without=without)
    result = run(golden.store, "--config", config, "--to", target, "--json")
    assert result.exit_code == 0, result.stdout
    *rows, summary = rows_of(result)
    assert {row["severity"] for row in rows} == {"note"}
    assert summary == {
        "store": str(golden.store), "to": target, "free": True, "refused": 0, "changes": 0, "note": len(rows)
    }  # fmt: skip
    assert {"delayed messages", "half messages"} <= {row["kind"] for row in rows}
    assert ("timer messages" in {row["kind"] for row in rows}) == (version == "550_crash")
    assert fingerprint(golden.store) == before


def test_move_to_java_names_the_lines_that_broker_conf_lacks(golden_497: GoldenStore) -> None:
    result = run(golden_497.store, "--to", "java", "--json", "--quick")
    assert result.exit_code == 1
    steps = {row["setting"]: row["next"] for row in rows_of(result)[:-1] if row["kind"] == "file size"}
    assert steps == {
        "mappedFileSizeCommitLog": "add mappedFileSizeCommitLog=65536 to broker.conf",
        "mappedFileSizeConsumeQueue": "add mappedFileSizeConsumeQueue=1000 to broker.conf",
        "maxHashSlotNum": "add maxHashSlotNum=200 to broker.conf",
        "maxIndexNum": "add maxIndexNum=400 to broker.conf",
    }


def test_move_of_a_5_5_store_to_java_4_9_names_what_is_lost(golden_550_crash: GoldenStore, tmp_path: Path) -> None:
    config = matching_config(golden_550_crash, tmp_path / "broker.conf")
    result = run(golden_550_crash.store, "--config", config, "--to", "java", "--java-version", "4.9", "--json")
    assert result.exit_code == 1
    changes = {row["kind"] for row in rows_of(result)[:-1] if row["severity"] == "changes"}
    assert {"V2 records", "timer messages"} <= changes


def test_move_with_refused_settings_states_what_the_start_states(tmp_path: Path) -> None:
    root = tmp_path / "store"
    make_store(root)
    config = tmp_path / "broker.conf"
    config.write_text(f"storePathRootDir={root}\nduplicationEnable=true\nbrokerRole=SLAVE\nmessageIndexEnable=false\n")
    result = run(root, "--config", config, "--to", "orbitlog")
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[0].startswith(
        f"refused: setting: duplicationEnable=true from {config}: confirm offsets are not supported"
    )
    assert any(line.startswith("refused: invalid setting: brokerRole=SLAVE") for line in lines)
    assert any(line.startswith("changes: setting: messageIndexEnable=false") for line in lines)
    assert lines[-1].startswith(f"{root}: move to orbitlog: something would be refused, lost or changed (2 refused,")


@pytest.mark.parametrize(
    ("text", "severity", "setting", "next_step"),
    [
        ("storeType=defaultRocksDB", "refused", "storeType", "convert the store with"),
        ("storePathComitLog=/x", "refused", "storePathComitLog", "write storePathCommitLog instead, or remove"),
        ("storePathCommitLog=~/x", "refused", "storePathCommitLog", "write the full path"),
        ("migrateAuthFromV1Enabled=true", "changes", "migrateAuthFromV1Enabled", "set aclEnable=true"),
        ("brokerIP1=192.0.2.77", "refused", "brokerIP1", None),
    ],
)
def test_move_row_of_a_setting_has_its_key_and_the_advice(
    text: str, severity: str, setting: str, next_step: str | None, tmp_path: Path
) -> None:
    root = tmp_path / "store"
    make_store(root)
    result = run(root, "--to", "orbitlog", "--quick", "--json", "--set", text)
    [row] = [row for row in rows_of(result)[:-1] if row["severity"] == severity and row.get("setting") == setting]
    assert "; " not in row["sentence"] or next_step is None
    assert row.get("next", "").startswith(next_step or "")


def test_move_with_another_store_directory_in_the_config_is_reported(tmp_path: Path) -> None:
    root = tmp_path / "store"
    make_store(root)
    result = run(root, "--to", "orbitlog", "--set", f"storePathRootDir={tmp_path}/other", "--json")
    assert result.exit_code == 1
    assert "store directory" in {row.get("kind") for row in rows_of(result)}


def test_move_rows_can_be_formatted(tmp_path: Path) -> None:
    root = tmp_path / "store"
    make_store(root)
    put(root / "streams/data", b"x")
    result = run(root, "--to", "orbitlog", "-f", "{severity} {kind}")
    assert result.stdout.splitlines()[0] == "refused unknown directory"


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--to", "kafka"),
        ("--to", "orbitlog", "--java-version", "4.9"),
        ("--to", "java", "--set", "novalue"),
        ("--to", "java", "-f", "{nothing}"),
    ],
)
def test_wrong_use_ends_with_two(arguments: tuple[str, ...], tmp_path: Path) -> None:
    make_store(tmp_path)
    assert run(tmp_path, *arguments).exit_code == 2
