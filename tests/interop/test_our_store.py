"""Stores that Orbitlog writes, judged by Apache's brokers: they open them, serve every message, and continue them."""

from __future__ import annotations

import shutil
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from orbitlog.formats import names, store_tree
from orbitlog.formats.compat import COMPAT_4_9, COMPATS, Compat
from orbitlog.formats.derived.derive import DeriveRules
from orbitlog.formats.derived.queue_entry import ENTRY_BYTES
from orbitlog.formats.hosts import parse_host
from orbitlog.formats.records import properties as props
from orbitlog.formats.records.message import Message
from orbitlog.store.offline_writer import OfflineStoreWriter
from orbitlog.testing.sample_messages import ORDERS, TELEMETRY, sample_messages
from tests.interop import our_reading
from tests.interop.harness.cluster import Cluster, Ports, running_cluster
from tests.interop.harness.packages import ApachePackages
from tests.interop.harness.processes import JsonObject
from tests.interop.our_store import GEOMETRY, STORED_BEFORE_MS, OurStore, batch_of, decisions, queue_requests

pytestmark = pytest.mark.interop

UNITS_IN_FILE = GEOMETRY.queue_file_bytes // ENTRY_BYTES
DELIVERY_SECONDS_MAX = 60
# Which store, which broker.
PAIRS = [("4.9", "4.9.7"), ("5.5", "5.5.0"), ("4.9", "5.5.0")]


def write_store(root: Path, compat: Compat, store_host: str, *, with_delayed: bool) -> OurStore:
    """Write demo messages, a batch that fills a queue file, and the outcome of transactions."""
    host_raw = parse_host(store_host).encode()
    first_ms = int(time.time() * 1000) - STORED_BEFORE_MS
    messages = [each for each in sample_messages(first_ms) if with_delayed or each.topic != names.SCHEDULE_TOPIC]
    written: dict[int, Message] = {}
    with OfflineStoreWriter(root, GEOMETRY, DeriveRules(compat=compat)) as writer:
        for group in ([[message] for message in messages], [batch_of(70, messages[-1])], decisions(messages[-1])):
            for together in group:
                here = [message._replace(store_host_raw=host_raw) for message in together]
                for message, result in zip(here, writer.append_batch(here), strict=True):
                    written[result.physical_offset] = message._replace(
                        queue_offset=result.queue_offset,
                        physical_offset=result.physical_offset,
                        store_timestamp_ms=result.store_timestamp_ms,
                    )
    return OurStore(root, compat, written)


@dataclass(frozen=True)
class Judged:
    """A store of Orbitlog after a broker had it: its answers about those messages, and what it stored after them."""

    store: OurStore
    before: Path
    packages: ApachePackages
    bounds: dict[tuple[str, int], tuple[int, int]]
    answers: list[JsonObject]
    sent: list[JsonObject]


@pytest.fixture(scope="module", params=PAIRS, ids=lambda pair: f"{pair[0]}-in-{pair[1]}")
def judged(
    request: pytest.FixtureRequest,
    packages_of: Callable[[str], ApachePackages],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Judged]:
    compat_name, version = request.param
    packages = packages_of(version)
    directory = tmp_path_factory.mktemp(f"ours-{compat_name}-{version}")
    ports = Ports.find()
    store = write_store(directory / "store", COMPATS[compat_name], f"127.0.0.1:{ports.broker}", with_delayed=True)
    shutil.copytree(store.root, directory / "before")
    settings = our_reading.broker_settings(GEOMETRY, maxMessageSize=32 * 1024)
    with running_cluster(packages, directory, store.root, settings, ports=ports) as cluster:
        bounds = wait_for_deliveries(cluster, store)
        answers = cluster.read(
            [*queue_requests(store), *key_requests(store), *view_requests(store), *time_requests(store)]
        )
        sent = cluster.send("After", "plain", "keys", "batch", "rounds=5")
    yield Judged(store, directory / "before", packages, bounds, answers, sent)


def wait_for_deliveries(cluster: Cluster, store: OurStore) -> dict[tuple[str, int], tuple[int, int]]:
    """Ask for the bounds of every queue until the due messages were delivered: there was time enough for them."""
    requests = [("bounds", *queue) for queue in store.queue_ends]
    wanted = store.queue_ends[ORDERS, 0] + len(store.due(int(time.time() * 1000)))
    deadline = time.monotonic() + DELIVERY_SECONDS_MAX
    while True:
        found = {
            (answer["topic"], answer["queueId"]): (answer["minOffset"], answer["maxOffset"])
            for answer in cluster.read(requests)
        }
        if found[ORDERS, 0][1] >= wanted or time.monotonic() > deadline:
            return found
        time.sleep(1)


def key_requests(store: OurStore) -> list[tuple[str, str, str]]:
    """Every eleventh message's keys, and keys that no message has."""
    keys = {
        (message.topic, key)
        for message in list(store.messages.values())[::11]
        for key in message.properties.get(props.KEYS, "").split()
    }
    return [("key", *pair) for pair in sorted(keys | {(ORDERS, "nobody"), (TELEMETRY, "order-0001")})]


def view_requests(store: OurStore) -> list[tuple[str, str, str]]:
    sample = [message for message in list(store.messages.values())[::17] if message.transaction_type.enters_queue]
    printed = [our_reading.as_client_prints(message, store.compat) for message in sample]
    return [("view", each["topic"], each["offsetMsgId"]) for each in printed]


def time_requests(store: OurStore) -> list[tuple[str, str, int, int]]:
    """Ask for the times of messages, and for the millisecond after, in queues without doubled times."""
    sample = [message for message in store.messages.values() if message.topic in (ORDERS, TELEMETRY)][::23]
    return [
        ("time", message.topic, message.queue_id, message.store_timestamp_ms + later)
        for message in sample
        for later in (0, 1)
    ]


def test_bounds_of_every_queue(judged: Judged) -> None:
    due = judged.store.due(int(time.time() * 1000))
    assert len(due) >= 3
    expected = {queue: (0, end) for queue, end in judged.store.queue_ends.items()}
    minimum, maximum = expected[ORDERS, 0]
    expected[ORDERS, 0] = minimum, maximum + len(due)
    assert judged.bounds == expected


def test_every_message_is_served_with_equal_fields(judged: Judged) -> None:
    ours = [answer for answer in judged.answers if answer.get("commitLogOffset", judged.store.end) < judged.store.end]
    client = our_reading.compat_of(judged.packages)
    served = our_reading.assert_served(judged.store.messages, ours, client)
    viewed = sum(answer["answer"] == "view" for answer in ours)
    assert served - viewed == sum(judged.store.queue_ends.values()) > 1000
    assert viewed > 50


def test_due_messages_were_delivered_as_they_were_meant(judged: Judged) -> None:
    delivered = [
        answer
        for answer in judged.answers
        if answer["answer"] == "message" and answer["commitLogOffset"] >= judged.store.end
    ]
    due = {message.properties[props.UNIQ_KEY]: message for message in judged.store.due(int(time.time() * 1000))}
    assert {answer["msgId"] for answer in delivered} == due.keys()
    for answer in delivered:
        assert (answer["topic"], answer["queueId"]) == (ORDERS, 0)
        assert answer["keys"] == due[answer["msgId"]].properties[props.KEYS]


def test_key_queries_find_what_was_stored(judged: Judged) -> None:
    expected: dict[tuple[str, str], list[int]] = {}
    for message in judged.store.messages.values():
        if message.transaction_type.enters_index:
            for key in set(message.properties.get(props.KEYS, "").split()):
                expected.setdefault((message.topic, key), []).append(message.physical_offset)
    found = [answer for answer in judged.answers if answer["answer"] == "key"]
    for answer in found:
        ours = sorted(at for at in answer["commitLogOffsets"] if at < judged.store.end)
        assert ours == expected.get((answer["topic"], answer["key"]), []), answer
    assert sum(bool(answer["commitLogOffsets"]) for answer in found) > 60


def test_searches_by_time(judged: Judged) -> None:
    """4.x answers with the nearest message of a file that it chooses by its modification time, which our writer sets;
    5.x with the first message that is not older.
    """
    times: dict[tuple[str, int], list[int]] = {}
    for message in judged.store.messages.values():
        times.setdefault((message.topic, message.queue_id), []).append(message.store_timestamp_ms)
    found = [answer for answer in judged.answers if answer["answer"] == "time"]
    assert len(found) > 60
    for answer in found:
        queue_times = times[answer["topic"], answer["queueId"]]
        assert queue_times == sorted(set(queue_times))
        expected = bisect_left(queue_times, answer["time"])
        if not judged.packages.is_5x and answer["time"] - 1 in queue_times and expected % UNITS_IN_FILE:
            expected -= 1
        assert answer["queueOffset"] == expected, answer


def test_bytes_of_the_log_are_unchanged(judged: Judged) -> None:
    for before in sorted((judged.before / store_tree.COMMITLOG).iterdir()):
        count = min(GEOMETRY.segment_bytes, judged.store.end - int(before.name))
        after = judged.store.root / store_tree.COMMITLOG / before.name
        assert after.stat().st_size == GEOMETRY.segment_bytes
        assert after.read_bytes()[:count] == before.read_bytes()[:count], before.name


def test_the_broker_went_on_where_we_stopped(judged: Judged) -> None:
    """Everything derived from Orbitlog's and then Java's records is as if one broker had written all of it."""
    files = our_reading.look_at(judged.store.root)
    messages = our_reading.read_log(files, GEOMETRY)
    assert len(messages) >= len(judged.store.messages) + len(judged.sent)
    assert messages[: len(judged.store.messages)] == list(judged.store.messages.values())
    if judged.store.compat is COMPAT_4_9 and judged.packages.is_5x:
        split = len(judged.store.messages)
        derived_by_both_versions(judged, messages[:split], messages[split:])
        return
    rules = DeriveRules(compat=judged.store.compat)
    written = our_reading.derived_on_disk(files)
    for made in (
        our_reading.derive_in_python(messages, rules, GEOMETRY),
        our_reading.derive_by_kernels(files, rules, GEOMETRY),
    ):
        found = list(our_reading.differences(made, written))
        assert not found, "\n".join(found)


def derived_by_both_versions(judged: Judged, ours: list[Message], theirs: list[Message]) -> None:
    """The queues know no version; the index has the tags of the later messages only."""
    files = our_reading.look_at(judged.store.root)
    written = our_reading.derived_on_disk(files)
    made = our_reading.derive_in_python([*ours, *theirs], DeriveRules(compat=COMPAT_4_9), GEOMETRY)
    found = list(our_reading.differences(our_reading.Derived(made.queues, []), our_reading.Derived(written.queues, [])))
    assert not found, "\n".join(found)
    full = our_reading.derive_in_python(ours, DeriveRules(compat=COMPAT_4_9), GEOMETRY).indexes[:-1]
    assert [bytes(file) for file in full] == [bytes(file) for file in written.indexes[: len(full)]]


# What brokers make of our log alone


@pytest.mark.parametrize(("compat_name", "version"), PAIRS[:2])
@pytest.mark.parametrize("has_abort", [False, True], ids=["clean", "crashed"])
def test_a_broker_derives_our_queues_and_index_from_our_log(
    compat_name: str,
    version: str,
    has_abort: bool,
    packages_of: Callable[[str], ApachePackages],
    tmp_path: Path,
) -> None:
    packages = packages_of(version)
    store = write_store(tmp_path / "store", COMPATS[compat_name], "127.0.0.1:10911", with_delayed=False)
    ours = our_reading.derived_on_disk(our_reading.look_at(store.root))
    for derived in (store_tree.CONSUMEQUEUE, store_tree.INDEX):
        shutil.rmtree(store.root / derived)
    (store.root / store_tree.CHECKPOINT).unlink()
    if has_abort:
        (store.root / store_tree.ABORT).write_bytes(store_tree.encode_abort(None))
    with running_cluster(packages, tmp_path, store.root, our_reading.broker_settings(GEOMETRY)):
        pass
    files = our_reading.look_at(store.root)
    assert our_reading.read_log(files, GEOMETRY) == list(store.messages.values())
    found = list(our_reading.differences(ours, our_reading.derived_on_disk(files)))
    assert not found, "\n".join(found)
