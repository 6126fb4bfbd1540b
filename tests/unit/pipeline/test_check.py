"""Checking, with the tasks run in this process: nothing is wrong with sound stores, and each damage is named."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from orbitlog.formats.compat import COMPAT_4_9, COMPAT_5_5
from orbitlog.formats.derived.checkpoint import Checkpoint, encode_checkpoint
from orbitlog.formats.derived.derive import DeriveRules, index_hashes
from orbitlog.formats.derived.derived_files import DerivedFiles
from orbitlog.formats.derived.queue_entry import PRE_BLANK_RAW
from orbitlog.formats.records.message import Message
from orbitlog.jobs.check import check_index as index_module
from orbitlog.jobs.check import store_check as check_module
from orbitlog.jobs.check.store_check import StoreCheck, check_with
from orbitlog.jobs.local_runner import run_here
from orbitlog.jobs.rebuild.store_rebuild import rebuild_with
from orbitlog.settings.store_settings import StoreSettings
from orbitlog.storefiles.findings import FindingKind
from orbitlog.storefiles.log_walk import LogWalk
from orbitlog.storefiles.store_files import find_store_files
from orbitlog.testing.golden import GoldenStore
from tests.support.logs import make_log, random_kinds
from tests.support.stores import LAYOUT, QUEUE_FILE_BYTES, SEGMENT_BYTES, copy_store, settings, write_log


def run(
    root: Path, *, split_bytes: int = 1000, given: StoreSettings | None = None, state: Path | None = None
) -> StoreCheck:
    chosen = settings() if given is None else given
    (result,) = check_with(run_here, [root], settings=chosen, split_bytes=split_bytes, state=state)
    assert {finding.kind for finding in result.findings} <= set(FindingKind)
    return result


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of several segments, queue files and index files, closed in order."""
    root = write_log(tmp_path_factory.mktemp("sound") / "store", make_log(random_kinds(80, 7)))
    rebuild_with(run_here, [root], out=None, settings=settings(), split_bytes=4096)
    return root


@pytest.mark.parametrize("name", ["golden_497", "golden_550_crash"])
@pytest.mark.parametrize("split_bytes", [3000, 65536])
def test_stores_of_apache_brokers_are_sound(name: str, split_bytes: int, request: pytest.FixtureRequest) -> None:
    golden: GoldenStore = request.getfixturevalue(name)
    result = run(golden.store, split_bytes=split_bytes, given=StoreSettings())
    assert result.findings == []
    assert result.messages == len(golden.manifest["messages"])
    assert (result.units_behind, result.keys_behind) == (0, 0)
    assert result.index_files >= 5


@pytest.mark.parametrize("split_bytes", [100, 700, 1 << 20])
def test_a_sound_store(sound: Path, split_bytes: int) -> None:
    result = run(sound, split_bytes=split_bytes)
    assert result.findings == []
    assert result.messages == 80


Change = Callable[[Path], Path]


def first_file(pattern: str) -> Callable[[Path], Path]:
    return lambda root: sorted(root.glob(pattern))[0]


def flipped(find: Callable[[Path], Path], position: int) -> Change:
    def change(root: Path) -> Path:
        path = find(root)
        data = bytearray(path.read_bytes())
        data[position] ^= 1
        path.write_bytes(data)
        return path

    return change


def removed(find: Callable[[Path], Path]) -> Change:
    def change(root: Path) -> Path:
        path = find(root)
        path.unlink()
        return path

    return change


def cut(find: Callable[[Path], Path], size_bytes: int) -> Change:
    def change(root: Path) -> Path:
        path = find(root)
        os.truncate(path, size_bytes)
        return path

    return change


def last_queue_file(root: Path) -> Path:
    return sorted((root / "consumequeue" / "Plain" / "0").iterdir())[-1]


def unit_too_many(root: Path) -> Path:
    path = last_queue_file(root)
    data = bytearray(path.read_bytes())
    end = -(-len(data.rstrip(b"\0")) // 20) * 20
    if end >= len(data):
        path = path.with_name(f"{int(path.name) + 100:020d}")
        data, end = bytearray(100), 0
    data[end : end + 20] = (100).to_bytes(8, "big") + (91).to_bytes(4, "big") + bytes(8)
    path.write_bytes(data)
    return path


def newer_checkpoint(root: Path) -> Path:
    raw = encode_checkpoint(Checkpoint(physic_msg_timestamp_ms=1_900_000_000_000), COMPAT_5_5)
    (root / "checkpoint").write_bytes(raw)
    return root / "checkpoint"


ENTRY = LAYOUT.entry_position(3)
DAMAGES: dict[str, tuple[str, Change]] = {
    "a unit's offset": ("queue unit", flipped(first_file("consumequeue/Plain/0/*"), 7)),
    "a unit's size": ("queue unit", flipped(first_file("consumequeue/Plain/0/*"), 11)),
    "a unit's tags": ("queue unit", flipped(first_file("consumequeue/Plain/0/*"), 19)),
    "a unit too many": ("queue unit", unit_too_many),
    "a queue file gone": ("queue file", removed(first_file("consumequeue/Plain/0/*"))),
    "a queue file cut": ("queue file", cut(first_file("consumequeue/Plain/0/*"), 60)),
    "an index header": ("index", flipped(first_file("index/*"), 7)),
    "an index slot": ("index", flipped(first_file("index/*"), 43)),
    "an index hash": ("index", flipped(first_file("index/*"), ENTRY + 3)),
    "an index offset": ("index", flipped(first_file("index/*"), ENTRY + 11)),
    "an index time": ("index", flipped(first_file("index/*"), ENTRY + 15)),
    "an index link": ("index", flipped(first_file("index/*"), ENTRY + 19)),
    "an index file cut": ("index", cut(first_file("index/*"), 200)),
    "the first index file gone": ("index", removed(first_file("index/*"))),
    "an index file gone": ("index", removed(lambda root: sorted(root.glob("index/*"))[3])),
    "the last index file gone": ("index", removed(lambda root: sorted(root.glob("index/*"))[-1])),
    "a checkpoint of the future": ("checkpoint", newer_checkpoint),
    "a checkpoint cut": ("checkpoint", cut(lambda root: root / "checkpoint", 30)),
    "a segment gone": ("segment", removed(lambda root: sorted(root.glob("commitlog/*"))[2])),
    "a segment emptied": ("segment", cut(lambda root: sorted(root.glob("commitlog/*"))[1], 0)),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_each_damage_is_named(name: str, sound: Path, tmp_path: Path) -> None:
    kind, change = DAMAGES[name]
    root = copy_store(sound, tmp_path / "store")
    path = change(root)
    findings = {split_bytes: run(root, split_bytes=split_bytes).findings for split_bytes in (300, 1 << 20)}
    for found in findings.values():
        assert kind in {finding.kind for finding in found}
        if "gone" not in name:
            assert str(path) in {finding.path for finding in found}
    assert [str(finding) for finding in findings[300] if finding.kind == kind] == [
        str(finding) for finding in findings[1 << 20] if finding.kind == kind
    ]


@pytest.mark.parametrize("seed", range(8))
def test_damage_of_the_log_is_that_of_the_plain_walk(seed: int, sound: Path, tmp_path: Path) -> None:
    root = copy_store(sound, tmp_path / "store")
    path = sorted((root / "commitlog").iterdir())[seed % 3]
    data = bytearray(path.read_bytes())
    for number in range(3):
        data[(seed * 997 + number * 1201) % (SEGMENT_BYTES - 600)] ^= 0x55
    path.write_bytes(data)
    walk = LogWalk(find_store_files(root).segments, SEGMENT_BYTES)
    list(walk.records())
    for split_bytes in (200, 1 << 20):
        found = [finding for finding in run(root, split_bytes=split_bytes).findings if finding.kind == "record"]
        assert [(finding.path, finding.position, finding.count) for finding in found] == [
            (str(damage.path), damage.position, damage.size_bytes) for damage in walk.damage
        ]


def test_killed_broker_may_lag_and_a_closed_one_not(sound: Path, tmp_path: Path) -> None:
    root = copy_store(sound, tmp_path / "store")
    path = last_queue_file(root)
    data = path.read_bytes()
    kept = -(-len(data.rstrip(b"\0")) // 20) * 20 - 20
    path.write_bytes(data[:kept].ljust(len(data), b"\0"))
    last_index = sorted((root / "index").iterdir())[-1]
    last_index.unlink()
    closed = run(root)
    assert {finding.kind for finding in closed.findings} == {"queue unit", "index"}
    (root / "abort").write_text("1")
    killed = run(root)
    assert killed.findings == []
    assert killed.units_behind == 1
    assert killed.keys_behind > 0


def test_units_and_entries_older_than_the_log_are_only_old(sound: Path, tmp_path: Path) -> None:
    root = copy_store(sound, tmp_path / "store")
    for path in sorted((root / "commitlog").iterdir())[:2]:
        path.unlink()
    assert run(root).findings == []
    data = bytearray(first_file("consumequeue/Plain/0/*")(root).read_bytes())
    data[:20] = PRE_BLANK_RAW
    first_file("consumequeue/Plain/0/*")(root).write_bytes(data)
    assert run(root).findings == []


def test_killed_check_continues(sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []
    real = check_module.check_split

    def check_split(task: object) -> dict[str, object]:
        seen.append(task)
        if len(seen) == 5:
            raise KeyboardInterrupt
        return real(task)  # type: ignore[arg-type]

    monkeypatch.setattr(check_module, "check_split", check_split)
    with pytest.raises(KeyboardInterrupt):
        run(sound, state=tmp_path / "state")
    del seen[:]
    monkeypatch.setattr(check_module, "check_split", lambda task: seen.append(task) or real(task))
    check_module.check_split.__name__ = "check_split"
    result = run(sound, state=tmp_path / "state")
    assert result.findings == []
    everything = len(check_module.plan_splits(find_store_files(sound), SEGMENT_BYTES, split_bytes=1000))
    assert len(seen) == everything - 4
    assert list((tmp_path / "state").iterdir()) == []


def without_proofs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_module, "prove_entries", lambda files, _: [None for _ in files])


@pytest.mark.parametrize("name", ["golden_497", "golden_550_crash"])
@pytest.mark.parametrize("split_bytes", [3000, 65536])
def test_sound_index_files_are_proved_without_being_built(
    name: str, split_bytes: int, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    golden: GoldenStore = request.getfixturevalue(name)
    monkeypatch.setattr(index_module, "_check_whole", lambda *_: pytest.fail("a sound file was built again"))
    assert run(golden.store, split_bytes=split_bytes, given=StoreSettings()).findings == []


@pytest.mark.parametrize("number", [0, 1])
def test_a_proof_hides_no_wrong_byte_of_an_index_file(
    sound: Path, tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = copy_store(sound, tmp_path / "store")
    path = sorted((root / "index").iterdir())[number]
    data = path.read_bytes()
    told = {}
    for proves in (True, False):
        if not proves:
            without_proofs(monkeypatch)
        for position in range(0, len(data), 13):
            path.write_bytes(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
            result = run(root, split_bytes=1500)
            told[proves, position] = (result.figures(), result.findings)
    positions = range(0, len(data), 13)
    assert [place for place in positions if told[True, place] != told[False, place]] == []
    assert sum(bool(told[True, place][1]) for place in positions) > len(positions) // 2


def test_message_that_a_recovery_put_into_the_index_again_is_no_damage(sound: Path, tmp_path: Path) -> None:
    """Java keeps full files, and derives from the last message in them on: its keys are there twice."""
    root = copy_store(sound, tmp_path / "store")
    messages = make_log(random_kinds(80, 7)).messages
    again = next(number for number in range(10, 70) if _is_full_after(messages[:number]))
    derived = DerivedFiles(DeriveRules(COMPAT_5_5), queue_file_bytes=QUEUE_FILE_BYTES, index_layout=LAYOUT)
    derived.add([*messages[:again], *messages[again - 1 :]])
    for path in (root / "index").iterdir():
        path.unlink()
    for number, content in enumerate(derived.index_files):
        (root / "index" / f"{20260101000000000 + number}").write_bytes(bytes(content))
    assert len(index_hashes(messages[again - 1], COMPAT_5_5)) > 0
    for split_bytes in (300, 1 << 20):
        assert run(root, split_bytes=split_bytes).findings == []


def _is_full_after(messages: list[Message]) -> bool:
    keys = [len(index_hashes(message, COMPAT_5_5)) for message in messages]
    return keys[-1] > 1 and sum(keys) % LAYOUT.capacity == 0


@pytest.mark.parametrize("kind", ["commitlog", "consumequeue/Plain/0", "index"])
def test_last_file_without_bytes_is_what_a_killed_broker_leaves(kind: str, sound: Path, tmp_path: Path) -> None:
    """5.5 deletes an empty last segment or queue file and gives an index file its size; 4.9 refuses the first two."""
    root = copy_store(sound, tmp_path / "store")
    names = sorted(path.name for path in (root / kind).iterdir())
    step = {"commitlog": SEGMENT_BYTES, "index": 1}.get(kind, QUEUE_FILE_BYTES)
    (root / kind / f"{int(names[-1]) + step:0{len(names[-1])}d}").touch()
    assert run(root).findings
    (root / "abort").write_text("1")
    assert run(root).findings == []
    if kind != "index":
        assert run(root, given=settings(COMPAT_4_9)).findings
