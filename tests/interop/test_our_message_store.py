"""Stores of our message store, closed and killed, judged by real brokers; and what those leave, opened by us."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from orbitlog.formats import names, store_tree
from orbitlog.formats.compat import COMPATS, Compat
from orbitlog.formats.derived.derive import DeriveRules
from orbitlog.formats.hosts import parse_host
from orbitlog.formats.records import flags
from orbitlog.formats.records.message import Message, decode_message
from orbitlog.formats.tables.config_files import config_codec
from orbitlog.formats.tables.topic_config import DataVersion, TopicConfig, TopicTable
from orbitlog.store.message_store import MessageStore
from orbitlog.store.reads.queue_reader import GetStatus, ReadRequest
from orbitlog.storefiles.store_config import StoreConfig
from orbitlog.testing.sample_messages import sample_messages
from tests.interop import our_reading
from tests.interop.harness.cluster import Ports, running_cluster
from tests.interop.harness.packages import ApachePackages
from tests.interop.our_store import GEOMETRY, STORED_BEFORE_MS, OurStore, batch_of, decisions, queue_requests

pytestmark = pytest.mark.interop

VERSIONS = [("4.9", "4.9.7"), ("5.5", "5.5.0")]


def config_for(compat: Compat) -> StoreConfig:
    return StoreConfig(GEOMETRY, DeriveRules(compat=compat))


def write_with_message_store(root: Path, compat: Compat, store_host: str, *, killed: bool) -> OurStore:
    """Write through the store, flushing now and then; killed: what is on the disk before it could close."""
    host_raw = parse_host(store_host).encode()
    first_ms = int(time.time() * 1000) - STORED_BEFORE_MS
    messages = [message for message in sample_messages(first_ms) if message.topic != names.SCHEDULE_TOPIC]
    groups = [*([message] for message in messages), batch_of(70, messages[-1]), *decisions(messages[-1])]
    now_ms = [first_ms]
    written: dict[int, Message] = {}
    directory = root.with_name("written") if killed else root
    with MessageStore.open(directory, config_for(compat), lambda: now_ms[0]) as store:
        for number, group in enumerate(groups):
            now_ms[0] = group[0].store_timestamp_ms
            here = [message._replace(store_host_raw=host_raw) for message in group]
            for message, result in zip(here, store.append_batch(here), strict=True):
                written[result.physical_offset] = message._replace(
                    queue_offset=result.queue_offset,
                    physical_offset=result.physical_offset,
                    store_timestamp_ms=result.store_timestamp_ms,
                )
            if number % 7 == 0:
                store.dispatch_once()
            if number % 200 == 199:
                store.flush_derived()
        store.prepare_once()
        if killed:
            shutil.copytree(directory, root)
            assert (root / store_tree.ABORT).exists()
    made = OurStore(root, compat, written)
    write_topics(made)
    return made


def write_topics(store: OurStore) -> None:
    """The topics are a broker's business: without them Java serves no queue."""
    counts: dict[str, int] = {}
    for topic, queue_id in store.queue_ends:
        counts[topic] = max(counts.get(topic, 0), queue_id + 1)
    topics = {topic: TopicConfig(topic, count, count) for topic, count in counts.items()}
    table = TopicTable(topics=topics, data_version=DataVersion(counter=1, timestamp_ms=1))
    path = store.root / store_tree.CONFIG / "topics.json"
    path.parent.mkdir()
    path.write_bytes(config_codec("topics.json").encode(table, store.compat))


@pytest.mark.parametrize(("compat_name", "version"), VERSIONS)
@pytest.mark.parametrize("killed", [False, True], ids=["closed", "killed"])
def test_java_broker_serves_every_message_and_orbitlog_continues_after_it(
    compat_name: str,
    version: str,
    killed: bool,
    packages_of: Callable[[str], ApachePackages],
    tmp_path: Path,
) -> None:
    packages, ports = packages_of(version), Ports.find()
    host = f"127.0.0.1:{ports.broker}"
    store = write_with_message_store(tmp_path / "store", COMPATS[compat_name], host, killed=killed)
    settings = our_reading.broker_settings(GEOMETRY, maxMessageSize=32 * 1024)
    with running_cluster(packages, tmp_path, store.root, settings, ports=ports) as cluster:
        bounds = {
            (answer["topic"], answer["queueId"]): (answer["minOffset"], answer["maxOffset"])
            for answer in cluster.read([("bounds", *queue) for queue in store.queue_ends])
        }
        answers = cluster.read(queue_requests(store))
        sent = cluster.send("After", "plain", "keys", "batch", "rounds=5")
    assert bounds == {queue: (0, end) for queue, end in store.queue_ends.items()}
    served = our_reading.assert_served(store.messages, answers, our_reading.compat_of(packages))
    assert served == sum(store.queue_ends.values()) > 1000
    go_on_after_the_broker(store, len(sent))


def go_on_after_the_broker(store: OurStore, sent_count: int) -> None:
    """Open what the broker closed: Orbitlog's messages, the broker's, then more of Orbitlog's in the same queues."""
    with MessageStore.open(store.root, config_for(store.compat), lambda: int(time.time() * 1000)) as reopened:
        assert reopened.damage == []
        messages = our_reading.read_log(our_reading.look_at(store.root), GEOMETRY)
        assert messages[: len(store.messages)] == list(store.messages.values())
        assert len(messages) >= len(store.messages) + sent_count
        for (topic, queue_id), end in store.queue_ends.items():
            mine = next(message for message in store.messages.values() if message.topic == topic)
            sys_flag = mine.sys_flag & ~flags.TRANSACTION_MASK
            result = reopened.append(mine._replace(queue_id=queue_id, sys_flag=sys_flag))
            assert result.queue_offset == end
            reopened.dispatch_once()
            got = reopened.get(topic, queue_id, ReadRequest(end, 1))
            assert got.status is GetStatus.FOUND
            assert decode_message(got.records[0]).physical_offset == result.physical_offset
