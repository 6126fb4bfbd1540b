"""Damage to a store of an Apache broker: Orbitlog finds the same ends of the log and of each queue as the broker.

If the two differ on purpose, a separate test states why.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orbitlog.errors import StoreLayoutError
from orbitlog.formats.derived.index_layout import IndexLayout
from orbitlog.formats.records.message import make_message
from orbitlog.settings.store_settings import StoreGeometry
from orbitlog.store.message_store import MessageStore
from orbitlog.storefiles.store_config import StoreConfig
from orbitlog.testing.golden import GoldenStore
from tests.support.store_kinds import fingerprint

CONFIG = StoreConfig(StoreGeometry(131072, 1000, index_layout=IndexLayout(100, 300)))
MANIFEST = json.loads((Path(__file__).parents[1] / "golden" / "apache-5.5.0-crash" / "manifest.json").read_text())
MUTATIONS: list[dict[str, Any]] = MANIFEST["mutations"]
# Java recovers from a late segment only, and loses what was derived from those before it; we derive it all again.
JAVA_LOSES = "consumequeue and index deleted, checkpoint left"

Bounds = dict[tuple[str, int], tuple[int, int]]


def apply(edit: dict[str, Any], store: Path) -> None:
    path = store / edit["file"]
    if edit["op"] == "delete":
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        return
    content = bytearray(path.read_bytes())
    start = edit["offset"]
    if edit["op"] == "zero":
        content[start : start + edit["length"]] = bytes(edit["length"])
    else:
        assert edit["op"] == "xor"
        content[start] ^= edit["value"]
    path.write_bytes(content)


def bounds(queues: list[dict[str, Any]]) -> Bounds:
    return {(queue["topic"], queue["queueId"]): (queue["minOffset"], queue["maxOffset"]) for queue in queues}


def java_bounds(mutation: dict[str, Any]) -> Bounds:
    """What the Java broker made of it, except for empty queues, for which Orbitlog has no files."""
    after = mutation["afterLoad"]
    made = bounds(MANIFEST["afterOpen"]["queues"]) | bounds(after["queuesThatDiffer"])
    for topic, queue_id in after["queuesMissing"]:
        made.pop((topic, queue_id), None)
    return not_empty(made)


def not_empty(queues: Bounds) -> Bounds:
    return {queue: limits for queue, limits in queues.items() if limits[1] > 0}


def our_bounds(store: MessageStore) -> Bounds:
    return {(queue.topic, queue.queue_id): (queue.min_offset, queue.max_offset) for queue in store._queues}


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation["name"])
def test_a_mutation_is_recovered_from(
    mutation: dict[str, Any], golden_550_crash: GoldenStore, golden_copy: Callable[[GoldenStore], GoldenStore]
) -> None:
    root = golden_copy(golden_550_crash).store
    for edit in mutation["edits"]:
        apply(edit, root)
    with MessageStore.open(root, CONFIG, lambda: 0) as store:
        assert store.min_physical_offset == mutation["afterLoad"]["minPhyOffset"]
        assert store.written_to == mutation["afterLoad"]["maxPhyOffset"]
        if mutation["name"] == JAVA_LOSES:
            assert our_bounds(store) == not_empty(bounds(MANIFEST["afterOpen"]["queues"]))
        else:
            assert our_bounds(store) == java_bounds(mutation)
        assert store.damage == []


def test_torn_properties_of_the_last_record_end_a_log_of_our_own(
    golden_550_crash: GoldenStore, golden_copy: Callable[[GoldenStore], GoldenStore]
) -> None:
    """Java keeps a record whose last property bytes are zero. So does Orbitlog in Java's log, but not in its own."""
    root, crashed = golden_copy(golden_550_crash).store, golden_copy(golden_550_crash).store
    with MessageStore.open(root, CONFIG, lambda: 0) as store:
        start_of_last = store.written_to
        store.append(make_message("CrashOrders", b"torn", properties={"KEYS": "k"}))
        end_of_last = store.written_to
        shutil.rmtree(crashed)
        shutil.copytree(root, crashed)
    segment = crashed / "commitlog" / f"{start_of_last // 131072 * 131072:020}"
    content = bytearray(segment.read_bytes())
    content[end_of_last % 131072 - 3 : end_of_last % 131072] = bytes(3)
    segment.write_bytes(content)
    with MessageStore.open(crashed, CONFIG, lambda: 0) as store:
        assert store.written_to == start_of_last


def test_torn_properties_of_a_record_that_the_state_file_covers_refuse_the_store(
    golden_550_crash: GoldenStore, golden_copy: Callable[[GoldenStore], GoldenStore]
) -> None:
    (mutation,) = (mutation for mutation in MUTATIONS if mutation["name"].startswith("properties of the last record"))
    root = golden_copy(golden_550_crash).store
    MessageStore.open(root, CONFIG, lambda: 0).close()  # it has a state file of Orbitlog from now on
    for edit in mutation["edits"]:
        apply(edit, root)
    before = fingerprint(root)
    start_of_last = max(message["commitLogOffset"] for message in MANIFEST["messages"])
    with pytest.raises(StoreLayoutError, match=r"orbitlog\.state records messages up to \d+") as refused:
        MessageStore.open(root, CONFIG, lambda: 0)
    assert f"at physical offset {start_of_last} of {root / 'commitlog'}, has zeros in place" in str(refused.value)
    assert fingerprint(root) == before
