"""Slots of the timer wheel."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from orbitlog.testing.golden import GoldenStore

Copy = Callable[[GoldenStore], GoldenStore]


def test_every_slot_is_as_the_manifest_states(golden_550_crash: GoldenStore, run: Any) -> None:
    shown = {
        row["deliverTimestamp"]: (row["messages"], row["firstLogPosition"], row["lastLogPosition"])
        for row in run("dump", "timerwheel", golden_550_crash.store, "--json", "--all").rows
    }
    written = [slot for slot in golden_550_crash.manifest["timerSlots"] if slot["slotTimeMs"] != -1]
    assert written
    for slot in written:
        assert shown[slot["slotTimeMs"]] == (slot["num"], slot["firstPos"], slot["lastPos"])
    assert list(shown) == sorted(shown)


def test_only_what_is_still_due(golden_550_crash: GoldenStore, run: Any) -> None:
    due = run("dump", "timerwheel", golden_550_crash.store, "--json").rows
    everything = run("dump", "timerwheel", golden_550_crash.store / "timerwheel", "--json").rows
    assert 0 < len(due) < len(everything)
    assert everything[-len(due) :] == due
    assert run("dump", "timerwheel", golden_550_crash.store, "--json", "--limit", "1").rows == due[:1]
    assert run("dump", "timerwheel", golden_550_crash.store).stdout.splitlines()[-1] == f"{len(due)} slots"


def test_damaged_and_missing_wheels(golden_497: GoldenStore, run: Any, tmp_path: Path) -> None:
    ran = run("dump", "timerwheel", golden_497.store)
    assert (ran.exit_code, ran.stdout) == (0, "")
    assert "has no timer wheel" in ran.stderr
    wheel = tmp_path / "timerwheel"
    for content in (b"", bytes(100), b"\xff" * 6400):
        wheel.write_bytes(content)
        ran = run("dump", "timerwheel", wheel, "--json")
        assert (ran.exit_code, ran.stdout, len(ran.sentences)) == (1, "", 1)
