"""Helpers of repair tests: fingerprints of a store, what can be read from it, whether a broker serves it."""

from __future__ import annotations

import hashlib
from pathlib import Path

from orbitlog.formats.records.flags import enters_queue
from orbitlog.settings.store_settings import StoreSettings
from orbitlog.store.message_store import MessageStore
from orbitlog.storefiles.log_walk import LogWalk
from orbitlog.storefiles.store_config import StoreConfig
from orbitlog.storefiles.store_files import find_store_files
from orbitlog.storefiles.store_inference import infer_geometry, infer_rules

GIVEN = StoreSettings()
Readable = dict[int, tuple[str, int, int, bytes]]


def fingerprint(root: Path) -> dict[str, str]:
    """Every file with its bytes; the lock, which a command takes, does not count."""
    return {
        path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.name != "lock"
    }


def readable(root: Path) -> Readable:
    """Messages that can be read from the log as it is, by physical offset; read in plain Python."""
    store = find_store_files(root)
    walk = LogWalk(store.segments, infer_geometry(store, GIVEN).segment_bytes)
    return {
        message.physical_offset: (message.topic, message.queue_id, message.queue_offset, message.body)
        for message, _ in walk.records()
        if enters_queue(message.sys_flag)
    }


def still_readable(root: Path, before: Readable) -> Readable:
    """Messages that can still be read, as they were before the damage: a wrong header field does not excuse a loss."""
    return {at: before[at] for at, found in readable(root).items() if at in before and found[3] == before[at][3]}


def assert_served(root: Path, wanted: Readable) -> None:
    """Open the store as a broker does, and read each message through its queue."""
    found = find_store_files(root)
    config = StoreConfig(infer_geometry(found, GIVEN), infer_rules(found, GIVEN))
    with MessageStore.open(root, config, lambda: 1_800_000_000_000) as store:
        for physical_offset, (topic, queue_id, queue_offset, body) in wanted.items():
            queue = store.queue(topic, queue_id)
            assert queue is not None, (topic, queue_id)
            unit = queue.entry(queue_offset)
            assert unit is not None and unit.physical_offset == physical_offset, (topic, queue_id, queue_offset)
            message = store.read_at(physical_offset)
            assert message is not None and message.body == body
