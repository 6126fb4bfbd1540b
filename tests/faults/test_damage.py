"""Damaged files: a log cut anywhere, bits flipped anywhere. Opening never fails oddly, no wrong message is served."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from random import Random

import pytest

from orbitlog.errors import OrbitlogError, StoreLayoutError
from orbitlog.formats import store_tree as tree
from orbitlog.formats.derived.index_layout import INDEX_HEADER
from orbitlog.formats.derived.store_state import STATE_FILE
from orbitlog.formats.records.message import Message, decode_message
from orbitlog.formats.records.message_scan import MAGIC_BLANK
from orbitlog.formats.records.properties import UNIQ_KEY
from orbitlog.store.message_store import MessageStore
from orbitlog.store.reads.key_query import KeyQuery
from orbitlog.store.reads.queue_reader import ReadRequest
from orbitlog.storefiles.store_config import StoreConfig
from orbitlog.testing.crash_disk import CrashDisk
from tests.support.invariants import check_derived, check_goes_on, messages_in, reopen
from tests.support.workloads import ROOT, Workload

CUTS = "cuts of a log"
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
    closed: bool, scale: int, checked: Counter[str], use_kernels: UseKernels
) -> None:
    """Zeros from some byte on, as a file system leaves them: what is whole before it is there, and nothing else."""
    config, files = whole_store(closed=closed, rounds=50)
    before = messages_in(files)
    *_, last_but_one, last = log_paths(files)
    size = len(files[last])
    used = max(message.physical_offset + message.size_bytes for message in before) - int(last_but_one.name)
    step = max(1, 20 // scale)  # every byte from 20 on
    for cut in range(Random(scale).randrange(step), min(used, 2 * size), step):
        kept = dict(files)
        kept[last_but_one] = kept[last_but_one][:cut].ljust(size, b"\0")
        kept[last] = kept[last][: max(cut - size, 0)].ljust(size, b"\0")
        for is_fast in (False, True) if step == 1 else (cut // step % 2 == 1,):
            use_kernels(is_fast)
            end = int(last_but_one.name) + cut
            check_cut(CrashDisk.of_files(kept), config, before, end, check_all=cut % 10 == 0)
            checked.update([CUTS])


def check_cut(disk: CrashDisk, config: StoreConfig, before: list[Message], cut: int, *, check_all: bool) -> None:
    store = reopen(disk, config)
    whole = [message for message in before if message.physical_offset + message.size_bytes <= cut]
    found = messages_in(disk.files())
    # The cut may hit zeros that were there anyway, at the end of a record.
    assert found[: len(whole)] == whole, f"cut at {cut}"
    assert found == before[: len(found)], f"cut at {cut}"
    store.close()
    check_derived(disk, config)
    if check_all:
        check_goes_on(disk, config)


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
@pytest.mark.parametrize("closed", [False, True], ids=["crashed", "closed"])
def test_an_index_file_with_a_damaged_header_is_made_again(position: int, closed: bool) -> None:
    config, files = whole_store(closed=closed)
    for path in (path for path in files if kind_of(path) == tree.INDEX):
        damaged = bytearray(files[path])
        damaged[position] ^= 0x10
        disk = CrashDisk.of_files(files | {path: bytes(damaged)})
        reopen(disk, config).close()
        check_derived(disk, config)
