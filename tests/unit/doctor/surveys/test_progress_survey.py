"""Files with delivery offsets: invalid ones are reported, and repaired so that no pending message is passed over."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from orbitlog.doctor.examination import examine
from orbitlog.doctor.repair.repair_journal import undo_last
from orbitlog.doctor.repair.store_repair import apply_repair
from orbitlog.formats.derived.timer_checkpoint import decode_timer_checkpoint
from orbitlog.testing.golden import GoldenStore
from tests.support.damage_zoo import patch_file
from tests.support.repaired_stores import fingerprint

NEVER_MS = 4_102_444_800_000


@pytest.fixture
def root(golden_550_crash: GoldenStore, tmp_path: Path) -> Path:
    root = tmp_path / "store"
    shutil.copytree(golden_550_crash.store, root, ignore=shutil.ignore_patterns("timerwheel"))
    timers = {"doneToMs": 1_700_000_000_000, "queueOffset": 9, "firstPending": 3, "timerCheckCrc": 0}
    (root / "config" / "orbitlogTimers.json").write_text(json.dumps(timers))
    (root / "config" / "orbitlogPops.json").write_text(json.dumps({"queues": []}))
    return root


def patch_json(root: Path, **numbers: int) -> None:
    path = root / "config" / "orbitlogTimers.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | numbers))


def timers_behind_the_end(root: Path) -> None:
    patch_json(root, queueOffset=10**9, firstPending=10**9)


def timers_before_the_beginning(root: Path) -> None:
    patch_json(root, firstPending=-1)


def timers_of_a_time_to_come(root: Path) -> None:
    patch_json(root, doneToMs=NEVER_MS)


def popped_to_behind_the_end(root: Path) -> None:
    popped = {"topic": "%RETRY%none", "group": "g", "queueId": 0, "committed": 5, "nextToPop": 3}
    (root / "config" / "orbitlogPops.json").write_text(json.dumps({"queues": [popped]}))


def java_timers_behind_the_end(root: Path) -> None:
    patch_file(root / "config" / "timercheck", 16, struct.pack(">qq", 10**9, 10**9))


def java_timers_of_a_time_to_come(root: Path) -> None:
    patch_file(root / "config" / "timercheck", 0, struct.pack(">q", NEVER_MS))


def garbage_in_our_timers(root: Path) -> None:
    (root / "config" / "orbitlogTimers.json").write_bytes(b"\0" * 50)


def garbage_in_our_pops(root: Path) -> None:
    (root / "config" / "orbitlogPops.json").write_text('{"queues":[{')


def test_numbers_that_can_be_are_left_alone(root: Path) -> None:
    assert examine(root).is_sound


@pytest.mark.parametrize(
    "damage,kind",
    [
        (timers_behind_the_end, "offset"),
        (timers_before_the_beginning, "offset"),
        (timers_of_a_time_to_come, "offset"),
        (popped_to_behind_the_end, "offset"),
        (java_timers_behind_the_end, "offset"),
        (java_timers_of_a_time_to_come, "timer"),
        (garbage_in_our_timers, "config"),
        (garbage_in_our_pops, "config"),
    ],
)
def test_invalid_values_are_reported_and_repaired(damage: Callable[[Path], None], kind: str, root: Path) -> None:
    damage(root)
    before = fingerprint(root)
    assert kind in {finding.kind for finding in examine(root).findings}
    assert apply_repair(root).is_sound
    undo_last(root)
    assert fingerprint(root) == before


def test_what_waits_is_looked_at_again_and_what_was_delivered_is_not(root: Path) -> None:
    timers_behind_the_end(root)
    apply_repair(root)
    mended = json.loads((root / "config" / "orbitlogTimers.json").read_text())
    assert (mended["firstPending"], mended["doneToMs"]) == (0, 1_700_000_000_000)


def test_java_resumes_at_the_end_of_the_timer_topic(root: Path) -> None:
    right = decode_timer_checkpoint((root / "config" / "timercheck").read_bytes())
    java_timers_behind_the_end(root)
    apply_repair(root)
    mended = decode_timer_checkpoint((root / "config" / "timercheck").read_bytes())
    assert mended.last_read_time_ms == right.last_read_time_ms
    assert mended.last_queue_offset == mended.master_queue_offset >= right.last_queue_offset
