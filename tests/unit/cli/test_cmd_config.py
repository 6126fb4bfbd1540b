"""`orbitlog config check`: a broker.conf before a broker reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

CONF = """# a broker
brokerName=broker-a
flushDiskType=SYNC_FLUSH
aclEnable=true
flushDiskTyp=SYNC_FLUSH
listenPort=many
"""


def test_every_line_is_judged(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text(CONF)
    ran = run("config", "check", path, "--json")
    assert ran.exit_code == 1
    assert [(row["key"], row["finding"]) for row in ran.rows] == [
        ("brokerName", "set"),
        ("flushDiskType", "set"),
        ("aclEnable", "no effect"),
        ("flushDiskTyp", "unknown"),
        ("listenPort", "wrong"),
    ]
    by_key = {row["key"]: row["sentence"] for row in ran.rows}
    assert by_key["flushDiskTyp"] == "flushDiskTyp is unknown; did you mean flushDiskType?"
    assert "whole number" in by_key["listenPort"]


def test_a_file_without_mistakes(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("brokerName=broker-a\n")
    assert run("config", "check", path).exit_code == 0
    assert run("config", "check", tmp_path / "gone").exit_code == 2
