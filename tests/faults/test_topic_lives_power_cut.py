"""The power goes while a store without a state file is recovered: the next recovery comes to the same result.

Such a store is what a Java broker leaves: topics were deleted and created again, queue files may be lost or torn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

import pytest

from orbitlog.formats import store_tree as tree
from orbitlog.formats.compat import COMPAT_5_5
from orbitlog.formats.derived.store_state import STATE_FILE
from orbitlog.formats.tables.topic_config import TOPICS, TopicConfig, TopicTable
from orbitlog.store.message_store import MessageStore
from orbitlog.storefiles.store_config import StoreConfig
from orbitlog.testing.crash_disk import CrashDisk, PowerCut
from tests.support.workloads import BEGIN_MS, ROOT, Clock, random_message, small_config

IMAGES = "images of a disk after a power cut in the recovery of a Java broker's store"
UseKernels = Callable[[bool], None]
Files = dict[Path, bytes]


def java_store(chance: Random, config: StoreConfig, *, closed: bool) -> Files:
    """Return the files of a store whose topics were deleted now and then, and created again mostly."""
    disk, clock = CrashDisk(), Clock(chance)
    store = MessageStore.open(ROOT, config, clock, disk)
    topics: set[str] = set()
    for number in range(120):
        message = random_message(chance, number)
        topics.add(message.topic)
        assert store.append(message).is_stored
        if chance.random() < 0.06:
            clock.now_ms += chance.choice([0, 5000])
            while store.dispatched_to < store.written_to:
                store.dispatch_once()
            deleted = chance.choice(sorted(topic for topic in topics if not topic.startswith("SCHEDULE")) or ["none"])
            store.delete_topics(lambda topic, deleted=deleted: topic == deleted)
            topics.discard(deleted)
    store.close()
    files = {path: content for path, content in disk.files().items() if path.name != STATE_FILE}
    table = TopicTable({topic: TopicConfig(topic) for topic in {*topics, "Always"}})
    files[ROOT / tree.CONFIG / TOPICS.name] = TOPICS.encode(table, COMPAT_5_5).encode()
    if not closed:
        files[ROOT / tree.ABORT] = b""
    return files


def harm(chance: Random, files: Files) -> Files:
    """Lose or tear some queue files, or all of them; or none."""
    queues = [path for path in files if tree.CONSUMEQUEUE in path.parts]
    kind = chance.choice(["none", "one", "torn", "all"])
    if kind == "all":
        return {path: content for path, content in files.items() if path not in queues}
    harmed = dict(files)
    for path in chance.sample(queues, min(3, len(queues))) if kind != "none" else ():
        if kind == "one":
            del harmed[path]
        else:
            start = chance.randrange(len(files[path]))
            harmed[path] = files[path][:start] + bytes(len(files[path]) - start)
    return harmed


def recovered(disk: CrashDisk, config: StoreConfig) -> Files:
    """Open and close a store; return its queue files, and its index in the order of its files."""
    MessageStore.open(ROOT, config, lambda: BEGIN_MS + 10_000_000, disk).close()
    files = disk.files()
    queues = {path: content for path, content in files.items() if tree.CONSUMEQUEUE in path.parts}
    index = [content for path, content in sorted(files.items()) if tree.INDEX in path.parts]
    return queues | {Path(f"index {number}"): content for number, content in enumerate(index)}


@pytest.mark.parametrize("closed", [False, True], ids=["killed", "closed"])
@pytest.mark.parametrize("part", range(4))
def test_interrupted_recovery_of_a_java_store_has_the_same_result(
    closed: bool, part: int, scale: int, checked: Counter[str], use_kernels: UseKernels
) -> None:
    use_kernels(part % 2 == 1)
    for run in range(3 * scale):
        seed = part + 4 * run
        print(f"seed {seed}")
        chance = Random(seed)
        config = small_config(chance, sync_flush=False)
        whole = java_store(chance, config, closed=closed)
        files = harm(chance, whole)
        expected = recovered(CrashDisk.of_files(files), config)
        if closed and files == whole:
            untouched = {path: whole[path] for path in whole if tree.CONSUMEQUEUE in path.parts}
            assert {path: expected[path] for path in untouched} == untouched
        disk = CrashDisk.of_files(files)
        disk.on_step = partial(look, disk, config, chance, expected, checked)
        recovered(disk, config)


def look(disk: CrashDisk, config: StoreConfig, chance: Random, expected: Files, checked: Counter[str]) -> None:
    """Recover an image of the disk before a step now and then."""
    if chance.randrange(6) == 0:
        image = chance.randrange(1 << 30)
        assert recovered(disk.crash(image), config) == expected, f"image {image} before step {disk.steps}"
        checked.update([IMAGES])


@pytest.mark.parametrize("part", range(2))
def test_recovery_interrupted_many_times_has_the_same_result(
    part: int, scale: int, checked: Counter[str], use_kernels: UseKernels
) -> None:
    use_kernels(part % 2 == 1)
    for run in range(6 * scale):
        seed = 500 + part + 2 * run
        print(f"seed {seed}")
        chance = Random(seed)
        config = small_config(chance, sync_flush=False)
        files = harm(chance, java_store(chance, config, closed=chance.random() < 0.7))
        expected = recovered(CrashDisk.of_files(files), config)
        disk = CrashDisk.of_files(files)
        for _ in range(5):
            disk.cut_at = disk.steps + int(chance.expovariate(1 / 30))
            try:
                MessageStore.open(ROOT, config, lambda: BEGIN_MS + 10_000_000, disk)
            except PowerCut:
                pass
            disk = disk.crash(chance.randrange(1 << 30)) if chance.random() < 0.6 else disk.kill()
            checked.update([IMAGES])
        assert recovered(disk, config) == expected
