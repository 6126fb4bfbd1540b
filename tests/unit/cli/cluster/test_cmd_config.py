"""`orbitlog config check`: a broker.conf before a broker reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

CONF = """# a broker
brokerName=broker-a
flushDiskType=SYNC_FLUSH
aclEnable=true
enableControllerMode=true
flushDiskTyp=SYNC_FLUSH
brokerNam=x
listenPort=many
sendMessageThreadPoolNums=4
haListenPort=1
innerClientAuthenticationCredentials={"secretKey":"hidden"}
"""


def test_every_line_is_judged(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text(CONF)
    ran = run("config", "check", path, "--json")
    assert ran.exit_code == 1
    assert [(row["key"], row["finding"]) for row in ran.rows] == [
        ("brokerName", "set"),
        ("flushDiskType", "set"),
        ("aclEnable", "set"),
        ("enableControllerMode", "wrong"),
        ("flushDiskTyp", "refused"),
        ("brokerNam", "unknown"),
        ("listenPort", "wrong"),
        ("sendMessageThreadPoolNums", "no effect"),
        ("haListenPort", "set"),
        ("innerClientAuthenticationCredentials", "wrong"),
    ]
    by_key = {row["key"]: row["sentence"] for row in ran.rows}
    assert by_key["brokerNam"] == "brokerNam=x is unknown; did you mean brokerName?"
    assert "write flushDiskType instead" in by_key["flushDiskTyp"]
    assert "whole number" in by_key["listenPort"]
    assert "hidden" not in ran.stdout


def test_a_file_without_mistakes(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("brokerName=broker-a\n")
    assert run("config", "check", path).exit_code == 0
    assert run("config", "check", tmp_path / "gone").exit_code == 2


def test_config_check_reads_keys_that_depend_on_each_other_together(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("storePathCommitLog=/s/commitlog\nstorePathRootDir=/s\nfetchNamesrvAddrByAddressServer=true\n")
    ran = run("config", "check", path, "--json")
    assert [row["finding"] for row in ran.rows] == ["set", "set", "refused"]
    path.write_text(path.read_text() + "namesrvAddr=a:1\n")
    ran = run("config", "check", path, "--json")
    assert [row["finding"] for row in ran.rows] == ["set", "set", "changes behaviour", "set"]
