"""Units of the timer log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from orbitlog.testing.golden import GoldenStore

Copy = Callable[[GoldenStore], GoldenStore]


def test_units_lead_to_messages_of_the_timer_topic(golden_550_crash: GoldenStore, run: Any) -> None:
    ran = run("dump", "timerlog", golden_550_crash.store, "--json")
    assert (ran.exit_code, ran.stderr) == (0, "")
    sizes = {message["commitLogOffset"]: message for message in golden_550_crash.manifest["messages"]}
    for row in ran.rows:
        message = sizes[row["commitLogOffset"]]
        assert (message["topic"], message["storeSize"]) == ("rmq_sys_wheel_timer", row["size"])
    assert {row["isRoll"] for row in ran.rows} == {row["isDelete"] for row in ran.rows} == {True, False}


def test_parts(golden_550_crash: GoldenStore, golden_497: GoldenStore, run: Any) -> None:
    rows = run("dump", "timerlog", golden_550_crash.store, "--json").rows
    directory = golden_550_crash.store / "timerlog"
    assert run("dump", "timerlog", directory, "--json").rows == rows
    assert run("dump", "timerlog", directory / ("0" * 20), "--json").rows == rows
    assert run("dump", "timerlog", directory, "--json", "--from", "104", "--limit", "2").rows == rows[2:4]
    assert run("dump", "timerlog", directory).stdout.splitlines()[-1] == f"{len(rows)} units"
    assert run("dump", "timerlog", golden_497.store, "--json").stdout == ""


def test_damage(golden_550_crash: GoldenStore, golden_copy: Copy, run: Any) -> None:
    copy = golden_copy(golden_550_crash)
    path = copy.store / "timerlog" / ("0" * 20)
    data = bytearray(path.read_bytes())
    data[104:108] = b"\7\7\7\7"
    path.write_bytes(data)
    ran = run("dump", "timerlog", copy.store, "--json")
    assert (ran.exit_code, len(ran.rows), len(ran.sentences)) == (1, 2, 1)
    assert "timer log position 104 (byte 104 of the file)" in ran.stderr
