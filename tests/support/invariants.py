"""What must be true of a store after whatever happened to it."""

from __future__ import annotations

from pathlib import Path
from random import Random

from orbitlog.formats import store_tree as tree
from orbitlog.formats.derived.derived_files import DerivedFiles
from orbitlog.formats.records.message import Message, encode_message
from orbitlog.formats.records.message_scan import scan_messages
from orbitlog.store.message_store import MessageStore
from orbitlog.storefiles.store_config import StoreConfig
from orbitlog.testing.crash_disk import CrashDisk
from tests.support.workloads import BEGIN_MS, ROOT, Ledger, random_message


def reopen(disk: CrashDisk, config: StoreConfig) -> MessageStore:
    return MessageStore.open(ROOT, config, lambda: BEGIN_MS + 10_000_000, disk)


def messages_in(files: dict[Path, bytes], end: int | None = None) -> list[Message]:
    """Read the whole log, segment by segment, up to `end`."""
    found: list[Message] = []
    for path, content in sorted(files.items(), key=lambda item: item[0].name):  # a log may be in several directories
        if path.parent.name != tree.COMMITLOG:
            continue
        base = int(path.name)
        found += [
            item
            for item in scan_messages(content, base_physical_offset=base)
            if isinstance(item, Message) and (end is None or item.physical_offset < end)
        ]
    return found


def check_recovered(disk: CrashDisk, config: StoreConfig, ledger: Ledger) -> int:
    """Open what was found after a crash and check everything that was promised; returns where the log ends."""
    store = reopen(disk, config)
    end = store.written_to
    assert not store.damage, f"damage was reported that was not done: {store.damage}"
    assert end >= ledger.durable_to, f"the log ends at {end}, but was promised up to {ledger.durable_to}"
    check_log(disk, ledger, end)
    check_derived(disk, config)
    check_closing_changes_nothing(store, disk, config)
    check_goes_on(disk, config)
    return end


def check_log(disk: CrashDisk, ledger: Ledger, end: int) -> None:
    """The log holds what was taken, byte for byte, up to its end and without a gap."""
    found = {message.physical_offset: encode_message(message) for message in messages_in(disk.files())}
    known = {start: record for start, record in ledger.records.items() if start in found}
    assert {start: found[start] for start in known} == known, "a message has other bytes than were taken"
    lost = [start for start in ledger.records if start < end and start not in found]
    assert not lost, f"messages at {lost} are missing before the end of the log at {end}"
    assert all(start < end for start in found), "there are records past the end of the log"


def check_derived(disk: CrashDisk, config: StoreConfig) -> None:
    """Queues and index are, byte for byte, what plain Python makes of the log."""
    files = disk.files()
    geometry = config.geometry
    expected = DerivedFiles(
        config.rules, queue_file_bytes=geometry.queue_file_bytes, index_layout=geometry.index_layout
    )
    expected.add(messages_in(files))
    queues = {
        ROOT / tree.queue_directory(topic, queue_id) / tree.offset_file_name(base): bytes(content)
        for (topic, queue_id), made in expected.queues.items()
        for base, content in made.items()
    }
    found = {path: content for path, content in files.items() if tree.CONSUMEQUEUE in path.parts}
    assert sorted(map(str, found)) == sorted(map(str, queues)), "other queue files than the log makes"
    wrong = [str(path) for path, content in queues.items() if found[path] != content]
    assert not wrong, f"queue files differ from what the log makes: {wrong}"
    index = [content for path, content in sorted(files.items()) if tree.INDEX in path.parts]
    assert index == [bytes(content) for content in expected.index_files], "the index differs from what the log makes"


def check_closing_changes_nothing(store: MessageStore, disk: CrashDisk, config: StoreConfig) -> None:
    """A clean close and another opening leave every byte of log, queues and index as it was."""
    before = _stored(disk)
    store.close()
    assert _stored(disk) == before, "closing changed the store"
    reopen(disk, config).close()
    assert _stored(disk) == before, "opening again changed the store"


def _stored(disk: CrashDisk) -> dict[Path, bytes]:
    places = {tree.COMMITLOG, tree.CONSUMEQUEUE, tree.INDEX}
    return {path: content for path, content in disk.files().items() if places & set(path.parts)}


def check_goes_on(disk: CrashDisk, config: StoreConfig) -> None:
    """The store takes messages, numbers them right, and derives them right."""
    following: dict[tuple[str, int], int] = {}
    for message in messages_in(disk.files()):
        if message.transaction_type.enters_queue:
            following[message.topic, message.queue_id] = message.queue_offset + 1
    store = reopen(disk, config)
    chance = Random(1)
    for number in range(4):
        message = random_message(chance, 900_000 + number)
        result = store.append(message)
        assert result.is_stored, result.reason
        if message.transaction_type.enters_queue:
            key = message.topic, message.queue_id
            assert result.queue_offset == following.get(key, 0), f"wrong queue offset in {key}"
            following[key] = result.queue_offset + 1
    store.close()
    check_derived(disk, config)
