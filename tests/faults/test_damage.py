"""Damaged files: a log cut anywhere, bits flipped anywhere. Opening never fails oddly, no wrong message is served."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from random import Random

import pytest

from orbitlog.doctor.repair.store_repair import apply_repair, plan_repair
from orbitlog.errors import OrbitlogError, StoreLayoutError
from orbitlog.formats import store_tree as tree
from orbitlog.formats.derived.index_layout import INDEX_HEADER
from orbitlog.formats.derived.store_state import STATE_FILE, decode_state
from orbitlog.formats.records.message import Message, decode_message, encode_message
from orbitlog.formats.records.message_scan import MAGIC_BLANK
from orbitlog.formats.records.properties import UNIQ_KEY
from orbitlog.store.message_store import MessageStore
from orbitlog.store.reads.key_query import KeyQuery
from orbitlog.store.reads.queue_reader import ReadRequest
from orbitlog.storefiles.store_config import StoreConfig
from orbitlog.testing.crash_disk import CrashDisk
from tests.support.invariants import check_derived, check_goes_on, messages_in, reopen
from tests.support.mirrored_disk import write_image
from tests.support.workloads import ROOT, Workload

CUTS = "cuts of a log"
REMEDIES = "repairs of cut logs"
OPENED, REFUSED = "opened", "refused"
REMEDY_EVERY = 37
"""Of the cuts that are refused, one in so many is repaired: each takes half a second."""
FLIPS = "flipped bits"
UseKernels = Callable[[bool], None]


@cache
def whole_store(*, closed: bool, rounds: int = 170) -> tuple[StoreConfig, dict[Path, bytes]]:
    """Messages in several segments, all of them flushed and dispatched."""
    workload, disk = Workload(77, sync_flush=True), CrashDisk()
    store = workload.open(disk)
    workload.run(rounds)
    if closed:
        store.close()
    else:
        store.flush_log()
        while store.dispatched_to < store.written_to:
            store.dispatch_once()
        store.flush_derived()
    return workload.config, disk.files()


def log_paths(files: dict[Path, bytes]) -> list[Path]:
    return sorted(path for path in files if path.parent == ROOT / tree.COMMITLOG)


@pytest.mark.parametrize("closed", [False, True], ids=["crashed", "closed"])
def test_a_log_cut_anywhere_in_its_last_two_segments(
    closed: bool,
    scale: int,
    checked: Counter[str],
    use_kernels: UseKernels,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Zeros from some byte on: the store opens with what is whole before it, or is refused for what was flushed."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    config, files = whole_store(closed=closed, rounds=50)
    before = messages_in(files)
    *_, last_but_one, last = log_paths(files)
    size, first = len(files[last]), int(last_but_one.name)
    used = max(message.physical_offset + message.size_bytes for message in before) - first
    recorded = decode_state(files[ROOT / STATE_FILE]).dispatched_to
    step = max(1, 20 // scale)  # every byte from 20 on
    outcomes: Counter[str] = Counter()
    for cut in range(Random(scale).randrange(step), min(used + 3 * step, 2 * size), step):
        kept = dict(files)
        kept[last_but_one] = kept[last_but_one][:cut].ljust(size, b"\0")
        kept[last] = kept[last][: max(cut - size, 0)].ljust(size, b"\0")
        for is_fast in (False, True) if step == 1 else (cut // step % 2 == 1,):
            use_kernels(is_fast)
            outcome = check_cut(kept, config, before, first + cut, recorded, check_all=cut % 10 == 0)
            if outcome == REFUSED and outcomes[REFUSED] % REMEDY_EVERY == 0:
                check_remedy(kept, config, before, first + cut, tmp_path / f"{cut}-{is_fast}")
                checked.update([REMEDIES])
            outcomes[outcome] += 1
            checked.update([CUTS])
    assert outcomes[OPENED] and outcomes[REFUSED], outcomes


def check_cut(
    kept: dict[Path, bytes], config: StoreConfig, before: list[Message], cut: int, recorded: int, *, check_all: bool
) -> str:
    """Open a store that was cut; a refusal needs a record of later messages, and changes no byte."""
    disk = CrashDisk.of_files(kept)
    try:
        store = reopen(disk, config)
    except StoreLayoutError as error:
        assert disk.files() == kept, f"cut at {cut}: the refusal changed the store"
        assert cut < recorded, f"cut at {cut}, after all that {STATE_FILE} records: {error}"
        assert f"{STATE_FILE} records messages up to {recorded}" in str(error)
        assert f"orbitlog doctor repair {ROOT} --apply" in str(error)
        return REFUSED
    found, whole = messages_in(disk.files()), whole_before(cut, before)
    # The cut may hit zeros that were there anyway, at the end of a record.
    assert found[: len(whole)] == whole, f"cut at {cut}"
    assert found == before[: len(found)], f"cut at {cut}"
    finish(store, disk, config, check_all=check_all)
    return OPENED


def whole_before(cut: int, messages: list[Message]) -> list[Message]:
    return [message for message in messages if message.physical_offset + message.size_bytes <= cut]


def finish(store: MessageStore, disk: CrashDisk, config: StoreConfig, *, check_all: bool) -> None:
    store.close()
    check_derived(disk, config)
    if check_all:
        check_goes_on(disk, config)


def check_remedy(kept: dict[Path, bytes], config: StoreConfig, before: list[Message], cut: int, root: Path) -> None:
    """The command that the refusal names gives up what is after the cut, and nothing else."""
    write_image(CrashDisk.of_files(kept), ROOT, root)
    repaired = apply_repair(root)
    assert repaired.is_sound, f"cut at {cut}: {repaired.problems}"
    paths = [path for path in root.rglob("*") if path.is_file() and tree.DOCTOR not in path.parts]
    disk = CrashDisk.of_files({ROOT / path.relative_to(root): path.read_bytes() for path in paths})
    store = reopen(disk, config)
    found, whole = messages_in(disk.files()), whole_before(cut, before)
    assert found[: len(whole)] == whole, f"cut at {cut}: the repair lost messages before it"
    assert found == before[: len(found)], f"cut at {cut}: a message that was cut is there"
    finish(store, disk, config, check_all=True)


@pytest.mark.parametrize("closed", [False, True], ids=["crashed", "closed"])
@pytest.mark.parametrize("is_last", [False, True], ids=["of an earlier record", "of the last record"])
@pytest.mark.parametrize("kept_bytes", ["none", "half", "all but one"])
def test_properties_cut_off_are_given_up_with_their_record(
    closed: bool,
    is_last: bool,
    kept_bytes: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No checksum of the record covers them: repair, the first start and every later start have to agree."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    config, files = whole_store(closed=closed, rounds=50)
    before = messages_in(files)
    one = next(message for message in before[-1 if is_last else -7 :] if 0 not in message.properties_raw)
    assert (one == before[-1]) == is_last
    count = {"none": 0, "half": len(one.properties_raw) // 2, "all but one": len(one.properties_raw) - 1}[kept_bytes]
    cut = one.physical_offset + one.size_bytes - len(one.properties_raw) + count
    kept = cut_log(files, cut)
    recorded = decode_state(files[ROOT / STATE_FILE]).dispatched_to
    assert check_cut(kept, config, before, cut, recorded, check_all=True) == REFUSED
    write_image(CrashDisk.of_files(kept), ROOT, tmp_path / "store")
    planned = plan_repair(tmp_path / "store").actions
    assert any("zeros in place of properties; " in action for action in planned), planned
    check_remedy(kept, config, before, cut, tmp_path / "repaired")


def cut_log(files: dict[Path, bytes], cut: int) -> dict[Path, bytes]:
    kept = dict(files)
    for path in log_paths(files):
        position = max(cut - int(path.name), 0)
        kept[path] = files[path][:position].ljust(len(files[path]), b"\0")
    return kept


def test_last_message_by_another_broker_with_zero_bytes_in_properties_is_kept() -> None:
    """Java writes no checksum of them: at each start of Orbitlog the message is there, also after a crash."""
    config, files = whole_store(closed=True, rounds=50)
    before = messages_in(files)
    last = before[-1]
    for position in (0, len(last.properties_raw) - 1):
        raw = bytearray(last.properties_raw)
        raw[position] = 0
        sent = last._replace(properties_raw=bytes(raw))
        segment = next(path for path in reversed(log_paths(files)) if int(path.name) <= last.physical_offset)
        content = bytearray(files[segment])
        start = last.physical_offset - int(segment.name)
        content[start : start + last.size_bytes] = encode_message(sent)
        disk = CrashDisk.of_files({path: old for path, old in files.items() if path != ROOT / STATE_FILE})
        disk = CrashDisk.of_files(disk.files() | {segment: bytes(content)})
        for is_killed in (False, True, False, False):
            store = reopen(disk, config)
            assert messages_in(disk.files())[-1] == sent
            assert [message for _, message in served(store, config) if message == sent] == [sent]
            if is_killed:
                disk = disk.crash(7)
            else:
                store.close()


def served(store: MessageStore, config: StoreConfig) -> Iterator[tuple[tuple[str, int], Message]]:
    """Read every queue from end to end, as a consumer does."""
    for queue in list(store._queues):
        queue_offset = queue.min_offset
        while queue_offset < queue.max_offset:
            result = store.get(queue.topic, queue.queue_id, ReadRequest(queue_offset, 32))
            for record in result.records:
                yield (queue.topic, queue.queue_id), decode_message(record)
            assert result.next_offset > queue_offset, "reading stands still"
            queue_offset = result.next_offset


def kind_of(path: Path) -> str:
    return path.parts[1]


@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("how", ["crashed", "closed", "gone through"])
def test_flipped_bits(part: int, how: str, scale: int, checked: Counter[str], use_kernels: UseKernels) -> None:
    """Log, queues, index, checkpoint and state, one bit each time; with no checkpoint the whole log is gone through."""
    config, files = whole_store(closed=how == "closed")
    if how == "gone through":
        files = {path: content for path, content in files.items() if path != ROOT / tree.CHECKPOINT}
    originals = {message.physical_offset: message for message in messages_in(files)}
    paths = sorted(path for path in files if path.name not in (tree.LOCK, tree.ABORT) and files[path])
    kinds = sorted({kind_of(path) for path in paths})
    chance = Random(part)
    use_kernels(part % 2 == 1)
    for _ in range(30 * scale):
        kind = chance.choice(kinds)
        path = chance.choice([path for path in paths if kind_of(path) == kind])
        bit = random_bit(chance, files[path])
        damaged = bytearray(files[path])
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            check_flipped(CrashDisk.of_files(files | {path: bytes(damaged)}), config, originals, path, bit // 8)
        except AssertionError as error:
            raise AssertionError(f"bit {bit} of {path} flipped: {error}") from error
        checked.update([FLIPS])


def random_bit(chance: Random, content: bytes) -> int:
    """Mostly where something stands: flipping zeros behind the end is worth a few tries only."""
    used = len(content.rstrip(b"\0")) or len(content)
    return chance.randrange(8 * (used if chance.random() < 0.9 else len(content)))


def check_flipped(
    disk: CrashDisk, config: StoreConfig, originals: dict[int, Message], path: Path, position: int
) -> None:
    try:
        store = reopen(disk, config)
    except OrbitlogError:
        return
    hit = int(path.name) + position if kind_of(path) == tree.COMMITLOG else None
    untouched = {
        start: message
        for start, message in originals.items()
        if hit is None or not start <= hit < start + message.size_bytes
    }
    seen: set[int] = set()
    for queue, message in served(store, config):
        original = originals[message.physical_offset]
        assert message.body == original.body, "a wrong body is served"
        if message.physical_offset in untouched:
            assert message == original, "other bytes are served than were written"
            assert queue == (message.topic, message.queue_id), f"served in the wrong queue {queue}"
        seen.add(message.physical_offset)
    missing = [start for start, message in untouched.items() if start not in seen and enters_queue(message)]
    # A flipped bit in a unit that is not read hides its message until the queues are rebuilt.
    assert len(missing) <= (kind_of(path) == tree.CONSUMEQUEUE), f"messages at {missing[:5]} can no longer be read"
    if missing:
        assert store.damage, "a message cannot be read, and no error reports it"
    check_queries(store, originals, untouched)
    store.close()
    if missing:
        check_mended(disk, config, missing)


def check_queries(store: MessageStore, originals: dict[int, Message], untouched: dict[int, Message]) -> None:
    """Whatever the index contains, a query finds messages with that key only, byte for byte."""
    for message in list(originals.values())[::7]:
        key = message.properties[UNIQ_KEY]
        for found in store.query(KeyQuery(message.topic, key)).messages:
            assert found.properties[UNIQ_KEY] == key, "a query finds a message with another key"
            if found.physical_offset in untouched:
                assert found == originals[found.physical_offset], "a query finds other bytes than were written"


def check_mended(disk: CrashDisk, config: StoreConfig, missing: list[int]) -> None:
    """Without the state file queues are scanned and repaired."""
    disk.remove_file(ROOT / STATE_FILE)
    store = reopen(disk, config)
    seen = {message.physical_offset for _, message in served(store, config)}
    assert seen.issuperset(missing), "queues that were scanned are not repaired"
    store.close()


def enters_queue(message: Message) -> bool:
    return message.transaction_type.enters_queue


def test_missing_segment_is_reported_and_nothing_is_removed() -> None:
    config, files = whole_store(closed=False)
    missing = log_paths(files)[2]
    disk = CrashDisk.of_files({path: content for path, content in files.items() if path != missing})
    with pytest.raises(StoreLayoutError, match=f"starts at {int(missing.name)}"):
        reopen(disk, config)
    assert messages_in(disk.files() | {missing: files[missing]}) == messages_in(files)


def test_a_flipped_blank_does_not_end_the_log() -> None:
    """Nor does a damaged record before it: the next segment begins with a message that was on the disk."""
    config, files = whole_store(closed=False)
    first = log_paths(files)[0]
    last_record = max(message.physical_offset for message in messages_in({first: files[first]}))
    blank = files[first].rindex(MAGIC_BLANK.to_bytes(4, "big"))
    for position in (blank, last_record + 100):
        damaged = bytearray(files[first])
        damaged[position] ^= 4
        found = {path: content for path, content in files.items() if path != ROOT / tree.CHECKPOINT}
        disk = CrashDisk.of_files(found | {first: bytes(damaged)})
        store = reopen(disk, config)
        assert [damage.physical_offset for damage in store.damage] in ([blank - 4], [last_record])
        assert messages_in(disk.files())[-1] == messages_in(files)[-1]
        store.close()


@pytest.mark.parametrize(
    "position", [INDEX_HEADER.position("index_count"), INDEX_HEADER.position("end_physical_offset")]
)
@pytest.mark.parametrize("mask", [0x10, 0x80], ids=["too large", "negative"])
@pytest.mark.parametrize("closed", [False, True], ids=["crashed", "closed"])
def test_an_index_file_with_a_damaged_header_is_made_again(position: int, closed: bool, mask: int) -> None:
    config, files = whole_store(closed=closed)
    for path in (path for path in files if kind_of(path) == tree.INDEX):
        damaged = bytearray(files[path])
        damaged[position] ^= mask
        disk = CrashDisk.of_files(files | {path: bytes(damaged)})
        reopen(disk, config).close()
        check_derived(disk, config)
