"""Rebuilding, with the tasks run in this process: the bytes that brokers wrote, or an exact report and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from orbitlog.errors import StoreLayoutError, StoreLocked
from orbitlog.formats.compat import COMPAT_4_9, COMPAT_5_5, Compat
from orbitlog.formats.derived.checkpoint import decode_checkpoint
from orbitlog.formats.records.message import encode_message
from orbitlog.formats.records.properties import encode_properties
from orbitlog.jobs.local_runner import run_here
from orbitlog.jobs.rebuild import index_tasks, rebuild_tasks
from orbitlog.jobs.rebuild.rebuild_publish import STAGING
from orbitlog.jobs.rebuild.store_rebuild import StoreRebuild, rebuild_with
from orbitlog.settings.store_settings import StoreSettings
from orbitlog.storefiles.disk import RealDisk
from orbitlog.storefiles.log_walk import LogWalk
from orbitlog.storefiles.store_files import find_store_files
from orbitlog.testing.golden import GoldenStore
from tests.support.logs import KINDS, Log, make_log, random_kinds
from tests.support.stores import (
    SEGMENT_BYTES,
    copy_store,
    expected_files,
    files_below,
    forged_log,
    settings,
    write_log,
)


def run(
    root: Path,
    out: Path | None,
    *,
    split_bytes: int = 1000,
    given: StoreSettings | None = None,
    check_crc: bool = True,
    index_writers: int = 1,
) -> StoreRebuild:
    chosen = settings() if given is None else given
    (result,) = rebuild_with(
        run_here,
        [root],
        out=out,
        settings=chosen,
        split_bytes=split_bytes,
        check_crc=check_crc,
        index_writers=index_writers,
    )
    return result


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_tasks, "_PIECE_KEYS_MIN", 1)
    monkeypatch.setattr(index_tasks, "_SLOT_COST", 0)


@pytest.mark.parametrize("name", ["golden_497", "golden_550_crash"])
@pytest.mark.parametrize("split_bytes", [3000, 65536])
def test_what_apache_brokers_wrote_is_made_again(
    name: str, split_bytes: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    golden: GoldenStore = request.getfixturevalue(name)
    result = run(golden.store, tmp_path / "out", split_bytes=split_bytes, given=StoreSettings())
    assert result.findings == ()
    assert result.messages == len(golden.manifest["messages"])
    assert result.log_end == golden.manifest["endOfLastRecord"]
    made, live = files_below(tmp_path / "out"), files_below(golden.store)
    assert made[0].keys() == live[0].keys()
    assert [path for path in live[0] if made[0][path] != live[0][path]] == []
    assert made[1] == live[1]
    checkpoint = decode_checkpoint((tmp_path / "out" / "checkpoint").read_bytes())
    assert checkpoint.physic_msg_timestamp_ms == golden.manifest["messages"][-1]["storeTimestamp"]


@pytest.mark.parametrize("compat", [COMPAT_4_9, COMPAT_5_5], ids=lambda compat: compat.name)
@pytest.mark.parametrize(("seed", "split_bytes"), [(1, 100), (2, 517), (3, 4096), (4, 1 << 20)])
def test_every_kind_of_record_in_any_split(compat: Compat, seed: int, split_bytes: int, tmp_path: Path) -> None:
    log = make_log([*KINDS, *random_kinds(50, seed)], first_queue_offset=seed * 3)
    root = write_log(tmp_path / "store", log)
    result = run(root, tmp_path / "out", split_bytes=split_bytes, given=settings(compat))
    assert result.findings == ()
    assert files_below(tmp_path / "out") == expected_files(log, compat)


@pytest.mark.parametrize("count", range(14))
def test_index_files_begin_where_java_begins_them(count: int, tmp_path: Path) -> None:
    """Thirteen entries a file: keys end in the middle of messages, at their ends, and are followed by none."""
    log = make_log(["plain"] * count + ["empty"] * (count % 3))
    result = run(write_log(tmp_path / "store", log), tmp_path / "out", split_bytes=300)
    made = files_below(tmp_path / "out")
    assert made == expected_files(log)
    assert (result.index_files, result.messages) == (len(made[1]), len(log.messages))


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("writers", [2, 3, 7, 30])
@pytest.mark.parametrize("count", range(14))
def test_index_files_that_several_write_are_those_that_one_writes(count: int, writers: int, tmp_path: Path) -> None:
    log = make_log(["plain"] * count + ["empty"] * (count % 3))
    run(write_log(tmp_path / "store", log), tmp_path / "out", split_bytes=300, index_writers=writers)
    assert files_below(tmp_path / "out") == expected_files(log)
    assert not (tmp_path / "out" / STAGING).exists()


def test_forged_records_in_bodies_are_not_accepted(tmp_path: Path) -> None:
    log = forged_log()
    root = write_log(tmp_path / "store", log)
    for split_bytes in (64, 97, 1000):
        result = run(root, tmp_path / f"out{split_bytes}", split_bytes=split_bytes)
        assert (result.findings, result.messages) == ((), 4)
        assert files_below(tmp_path / f"out{split_bytes}") == expected_files(log)


def test_light_queues(tmp_path: Path) -> None:
    log = make_log(["plain"] * 9)
    light = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b", "KEYS": "k"}
    messages = [
        message._replace(properties_raw=encode_properties(light | {"INNER_MULTI_QUEUE_OFFSET": f"{number},{number}"}))
        for number, message in enumerate(log.messages)
    ]
    data, placed = b"", []
    for message in messages:
        placed.append(message._replace(physical_offset=len(data)))
        data += encode_message(placed[-1])
    root = write_log(tmp_path / "store", Log([(0, data.ljust(SEGMENT_BYTES, b"\0"))], placed))
    run(root, tmp_path / "out", split_bytes=300, given=settings(COMPAT_5_5, "enableMultiDispatch=true"))
    queues, _ = files_below(tmp_path / "out")
    units = b"".join(content for name, content in sorted(queues.items()) if name.startswith("%LMQ%b/0/"))
    assert [int.from_bytes(units[at : at + 8], "big") for at in range(0, 9 * 20, 20)] == [
        message.physical_offset for message in placed
    ]


def test_files_carry_the_time_of_their_last_message(tmp_path: Path) -> None:
    log = make_log(["plain"] * 20)
    run(write_log(tmp_path / "store", log), tmp_path / "out")
    for path in (tmp_path / "out" / "consumequeue" / "Plain").glob("*/*"):
        first = int(path.name) // 20
        units = [m for m in log.messages if m.queue_id == int(path.parent.name) and first <= m.queue_offset < first + 5]
        assert path.stat().st_mtime_ns == units[-1].store_timestamp_ms * 1_000_000


@pytest.mark.parametrize("seed", range(12))
def test_a_damaged_log_is_reported_and_nothing_is_made(seed: int, tmp_path: Path) -> None:
    """The report is that of the walk in plain Python, whatever the splits."""
    log = make_log(random_kinds(60, seed))
    root = write_log(tmp_path / "store", log)
    message = log.messages[seed * 4]
    path = root / "commitlog" / f"{message.physical_offset // SEGMENT_BYTES * SEGMENT_BYTES:020d}"
    data = bytearray(path.read_bytes())
    position = message.physical_offset % SEGMENT_BYTES
    match seed % 4:
        case 0:
            data[position + 4] ^= 0xFF
        case 1:
            data[position : position + 150] = bytes(150)
        case 2:
            data[position + 2] ^= 0x10
        case 3:
            data = data[: position + 40]
    path.write_bytes(data)
    walk = LogWalk(find_store_files(root).segments, SEGMENT_BYTES)
    list(walk.records())
    assert walk.damage
    for split_bytes in (150, 1000, 1 << 20):
        result = run(root, tmp_path / f"out{split_bytes}", split_bytes=split_bytes)
        damage = [finding for finding in result.findings if finding.kind == "record"]
        assert [(finding.path, finding.position, finding.count) for finding in damage] == [
            (str(found.path), found.position, found.size_bytes) for found in walk.damage
        ]
        assert all(found.reason in finding.reason for finding, found in zip(damage, walk.damage, strict=True))
        assert not result.is_published
        assert not (tmp_path / f"out{split_bytes}" / "consumequeue").exists()


def test_a_body_that_was_changed_is_found_unless_checksums_are_not_wanted(tmp_path: Path) -> None:
    log = make_log(["plain"] * 20)
    root = write_log(tmp_path / "store", log)
    path = root / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[log.messages[3].physical_offset + 90] ^= 1
    path.write_bytes(data)
    finding, gap = run(root, tmp_path / "a").findings
    assert (gap.kind, gap.topic, gap.reason) == ("queue order", "Plain", "queue offset 2 follows 0")
    assert finding.physical_offset == log.messages[3].physical_offset
    assert "CRC" in finding.reason
    assert run(root, tmp_path / "b", check_crc=False).is_published
    assert files_below(tmp_path / "b") == expected_files(log)


@pytest.mark.parametrize(("found", "expected"), [(7, 2), (1, 2), (0, 1)])
def test_queue_offsets_that_do_not_follow_each_other(found: int, expected: int, tmp_path: Path) -> None:
    log = make_log(["empty"] * 12)
    in_queue = [number for number, message in enumerate(log.messages) if message.queue_id == 0]
    changed = log.messages[in_queue[2]]._replace(queue_offset=found)
    data = bytearray(log.segments[0][1])
    raw = encode_message(changed)
    data[changed.physical_offset : changed.physical_offset + len(raw)] = raw
    root = write_log(tmp_path / "store", Log([(0, bytes(data))], log.messages))
    for split_bytes in (100, 1 << 20):
        result = run(root, tmp_path / f"out{split_bytes}", split_bytes=split_bytes)
        assert not result.is_published
        assert {(finding.kind, finding.topic, finding.queue_id) for finding in result.findings} == {
            ("queue order", "E", 0)
        }


def test_a_missing_segment_is_reported(tmp_path: Path) -> None:
    root = write_log(tmp_path / "store", make_log(random_kinds(60, 1)))
    (root / "commitlog" / f"{SEGMENT_BYTES:020d}").unlink()
    kinds = {finding.kind for finding in run(root, tmp_path / "out").findings}
    assert "segment" in kinds


def test_several_stores_in_one_job(tmp_path: Path) -> None:
    logs = {f"broker{number}": make_log(random_kinds(20, number)) for number in range(3)}
    roots = [write_log(tmp_path / name, log) for name, log in logs.items()]
    (roots[1] / "commitlog" / f"{0:020d}").write_bytes(b"\xff" * SEGMENT_BYTES)
    results = rebuild_with(run_here, roots, out=tmp_path / "out", settings=settings(), split_bytes=500)
    assert [result.is_published for result in results] == [True, False, True]
    for name in ("broker0", "broker2"):
        assert files_below(tmp_path / "out" / name) == expected_files(logs[name])


def test_outputs_that_would_lose_something_are_refused(tmp_path: Path) -> None:
    root = write_log(tmp_path / "store", make_log(["plain"]))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("x")
    with pytest.raises(StoreLayoutError, match="is not empty; give a new directory"):
        run(root, tmp_path / "full")
    with pytest.raises(StoreLayoutError, match="use --in-place"):
        run(root, root)
    write_log(tmp_path / "other" / "store", make_log(["plain"]))
    with pytest.raises(StoreLayoutError, match="have the same name"):
        rebuild_with(
            run_here,
            [root, tmp_path / "other" / "store"],
            out=tmp_path / "out",
            settings=settings(),
            split_bytes=1000,
        )


@pytest.mark.parametrize("name", ["lock", "orbitlog.lease-lock"])
def test_a_store_in_use_is_not_rebuilt_in_place(name: str, tmp_path: Path) -> None:
    root = write_log(tmp_path / "store", make_log(["plain"]))
    lock = RealDisk().lock_file(root / name, b"lock")
    try:
        with pytest.raises(StoreLocked):
            run(root, None)
    finally:
        lock.release()


def test_a_second_run_finds_its_work_done(tmp_path: Path) -> None:
    root = write_log(tmp_path / "store", make_log(["plain"] * 20))
    first = run(root, tmp_path / "out")
    again = run(root, tmp_path / "out")
    assert (first.was_finished, again.was_finished) == (False, True)
    assert again.messages == first.messages
    with pytest.raises(StoreLayoutError, match="another rebuild's files"):
        run(root, tmp_path / "out", split_bytes=2000)


def test_files_that_certify_replaced_ones_are_removed(tmp_path: Path) -> None:
    root = write_log(tmp_path / "store", make_log(["plain"]))
    for name in ("orbitlog.state", "orbitlog.dispatched"):
        (root / name).write_bytes(b"x")
    run(root, None)
    assert sorted(path.name for path in root.iterdir()) == ["checkpoint", "commitlog", "consumequeue", "index", "lock"]


class Killed(BaseException):
    """Stands for SIGKILL: nothing may catch it."""


def kill_at(monkeypatch: pytest.MonkeyPatch, number: int) -> list[str]:
    """Let the `number`-th change of a name fail, before or after it happened; returns what was done so far."""
    done: list[str] = []

    def counted(name: str, real: object) -> object:
        def change(*args: object, **more: object) -> object:
            if len(done) == number and number % 2:
                done.append(name)
                raise Killed
            result = real(*args, **more)  # type: ignore[operator]
            if len(done) == number:
                done.append(name)
                raise Killed
            done.append(name)
            return result

        return change

    for owner, name in ((Path, "rename"), (Path, "replace"), (Path, "unlink"), (os, "link")):
        monkeypatch.setattr(owner, name, counted(name, getattr(owner, name)))
    monkeypatch.setattr(RealDisk, "remove_tree", counted("rmtree", RealDisk.remove_tree))
    return done


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("writers", [1, 3])
@pytest.mark.parametrize("is_in_place", [True, False])
def test_a_run_killed_at_any_step_is_ended_by_the_next(is_in_place: bool, writers: int, tmp_path: Path) -> None:
    log = make_log(random_kinds(12, 5))
    expected = expected_files(log)
    original = write_log(tmp_path / "original", log)
    run(original, None)
    stale = original / "consumequeue" / "Plain" / "0" / f"{0:020d}"
    stale.parent.mkdir(parents=True, exist_ok=True)
    stale.write_bytes(b"stale" * 20)
    for number in range(1000):
        root = copy_store(original, tmp_path / f"store{number}")
        out = None if is_in_place else tmp_path / f"out{number}"
        place = out or root
        with pytest.MonkeyPatch.context() as patch:
            done = kill_at(patch, number)
            try:
                run(root, out, index_writers=writers)
            except Killed:
                pass
            else:
                break
        if is_in_place:
            staged = [path.parent for path in root.rglob("old/consumequeue")]
            assert (root / "consumequeue").exists() or staged, "a derived file went before its replacement stood"
        assert run(root, out, index_writers=writers).findings == ()
        assert files_below(place) == expected, f"killed at step {number}: {done}"
        assert not (place / STAGING).exists()
    assert number > 20, "too few steps were seen: did the names of the calls change?"


def test_publication_killed_at_any_step_leaves_sizes_that_can_be_inferred(
    golden_497: GoldenStore, tmp_path: Path
) -> None:
    """Sizes are inferred from the derived files, which are not in their place in the middle of a publication."""
    with pytest.MonkeyPatch.context() as patch:
        done = kill_at(patch, 1_000_000)
        run(golden_497.copy_to(tmp_path / "counted").store, None, split_bytes=1 << 20, given=StoreSettings())
    assert len(done) > 30
    for number in range(len(done) - 16, len(done)):
        root = golden_497.copy_to(tmp_path / f"store{number}").store
        with pytest.MonkeyPatch.context() as patch:
            kill_at(patch, number)
            with pytest.raises(Killed):
                run(root, None, split_bytes=1 << 20, given=StoreSettings())
        assert run(root, None, split_bytes=1 << 20, given=StoreSettings()).findings == ()
        assert files_below(root) == files_below(golden_497.store), f"killed at step {number}: {done[number]}"


def test_a_split_that_a_power_cut_left_half_written_is_derived_again(tmp_path: Path) -> None:
    log = make_log(["plain"] * 30)
    root = write_log(tmp_path / "store", log)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rebuild_tasks, "assemble", lambda task, disk: (_ for _ in ()).throw(Killed))
        patch.setattr("orbitlog.jobs.rebuild.store_rebuild.assemble", lambda task, disk: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            run(root, tmp_path / "out", split_bytes=700)
    staged = sorted((tmp_path / "out" / STAGING / "splits").iterdir())
    for cut, path in enumerate(staged[:5]):
        path.write_bytes(path.read_bytes()[: -1 - 40 * cut])
    result = run(root, tmp_path / "out", split_bytes=700)
    assert 0 < result.resumed_splits < len(staged)
    assert files_below(tmp_path / "out") == expected_files(log)


def test_log_that_grew_since_a_killed_run_is_rebuilt_from_the_start(tmp_path: Path) -> None:
    long = make_log(["plain"] * 25)
    short = Log(make_log(["plain"] * 12).segments, long.messages[:12])
    root = write_log(tmp_path / "store", short)
    with pytest.MonkeyPatch.context() as patch:
        kill_at(patch, 20)
        with pytest.raises(Killed):
            run(root, None)
    for base, content in long.segments:
        (root / "commitlog" / f"{base:020d}").write_bytes(content)
    run(root, None)
    assert files_below(root) == expected_files(long)
