"""Data sources, statistics and lag over DLedger stores: what the manifest of the golden store states, no entry more."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadMaxBytes

from orbitlog.errors import StoreLayoutError
from orbitlog.formats.records.dledger import ENTRY_HEADER_BYTES
from orbitlog.jobs.local_runner import run_here
from orbitlog.jobs.rebuild.store_rebuild import rebuild_with
from orbitlog.pipeline.sources.broker_stores import BrokerStore, OptionError
from orbitlog.pipeline.sources.commitlog_source import CommitLogSource
from orbitlog.pipeline.sources.source_errors import DataLoss
from orbitlog.pipeline.sources.topic_source import TopicSource
from orbitlog.pipeline.stats.consumer_lag import read_progress
from orbitlog.pipeline.stats.log_stats import count_logs
from orbitlog.settings.store_settings import StoreSettings
from orbitlog.testing.golden import GoldenStore
from tests.support.source_runs import EVERYTHING, Stream, read_batch
from tests.support.store_kinds import KINDS, make_dledger_store, make_store

COLUMNS = "topic string, queueId int, queueOffset bigint, commitLogOffset bigint, storeSize int, bodyCRC int"
DATA = "dledger-n0/data"


def rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


def stated(golden: GoldenStore) -> list[tuple[Any, ...]]:
    names = ("topic", "queueId", "queueOffset", "commitLogOffset", "storeSize", "bodyCRC")
    return [tuple(message[name] for name in names) for message in golden.manifest["messages"]]


def in_queues(golden: GoldenStore) -> list[tuple[Any, ...]]:
    """The messages that queues lead to: brokers put neither prepared nor rolled back transactions there."""
    return [
        row
        for row, message in zip(stated(golden), golden.manifest["messages"], strict=True)
        if (message["sysFlag"] >> 2) & 3 in (0, 2)
    ]


def log_of(root: Path, **more: str) -> pa.Table:
    return read_batch(CommitLogSource, {"storePath": f"b={root}", **more}, COLUMNS)


def topics_of(root: Path, **more: str) -> pa.Table:
    return read_batch(TopicSource, {"storePath": f"b={root}", "subscribePattern": ".*", **more}, COLUMNS)


@pytest.mark.parametrize("split_bytes", ["65536", "134217728"])
def test_log_has_the_messages_of_the_manifest_in_order(golden_497_dledger: GoldenStore, split_bytes: str) -> None:
    assert rows(log_of(golden_497_dledger.store, splitBytes=split_bytes)) == stated(golden_497_dledger)


def test_topics_have_the_messages_of_the_manifest(golden_497_dledger: GoldenStore) -> None:
    assert sorted(rows(topics_of(golden_497_dledger.store))) == sorted(in_queues(golden_497_dledger))


def test_streams_deliver_every_message_once_in_small_batches(golden_497_dledger: GoldenStore) -> None:
    path = f"b={golden_497_dledger.store}"
    stream = Stream(CommitLogSource, {"storePath": path, "startingOffsets": "earliest"}, COLUMNS)
    found: list[tuple[Any, ...]] = []
    while batch := rows(stream.batch(ReadMaxBytes(10_000))):
        found += batch
        stream.start()  # nothing but the checkpoint is kept
    assert found == stated(golden_497_dledger)
    options = {"storePath": path, "subscribePattern": ".*", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "50"}
    topics = Stream(TopicSource, options, COLUMNS)
    delivered = [row for table in topics.available_now() for row in rows(table)]
    assert sorted(delivered) == sorted(in_queues(golden_497_dledger))


@pytest.mark.parametrize("header_bytes", [0, ENTRY_HEADER_BYTES], ids=["record", "entry"])
def test_read_starts_at_a_record_or_at_its_entry(golden_497_dledger: GoldenStore, header_bytes: int) -> None:
    wanted = stated(golden_497_dledger)
    start = wanted[200][3] - header_bytes
    assert rows(log_of(golden_497_dledger.store, startingOffsets=f'{{"b":{start}}}')) == wanted[200:]
    with pytest.raises(OptionError, match="no record"):
        log_of(golden_497_dledger.store, startingOffsets=f'{{"b":{start + 1}}}')


def test_statistics_and_lag_count_what_the_manifest_states(golden_497_dledger: GoldenStore) -> None:
    store = BrokerStore("b", str(golden_497_dledger.store))
    counted = count_logs(run_here, [store], check_crc=True)
    assert counted.messages == len(golden_497_dledger.manifest["messages"])
    per_topic = {row["topic"]: (row["messages"], row["storedBytes"]) for row in counted.rows("topic")}
    counts = Counter(message["topic"] for message in golden_497_dledger.manifest["messages"])
    sizes: Counter[str] = Counter()
    for message in golden_497_dledger.manifest["messages"]:
        sizes[message["topic"]] += message["storeSize"]
    assert per_topic == {topic: (count, sizes[topic]) for topic, count in counts.items()}
    ends = {(queue["topic"], queue["queueId"]): queue["maxOffset"] for queue in golden_497_dledger.manifest["queues"]}
    progress = read_progress(store)
    assert progress.lag
    assert all(row["latestOffset"] == ends.get((row["topic"], row["queueId"]), 0) for row in progress.lag)


def test_store_switched_to_dledger_has_the_old_part_first(tmp_path: Path) -> None:
    root = tmp_path / "store"
    make_store(root)
    before = rows(log_of(root))
    KINDS["converted to DLedger"](root)
    found = rows(log_of(root))
    assert (found[:60], len(found)) == (before, 72)
    derived = tmp_path / "derived"
    rebuild_with(run_here, [root], out=derived, settings=StoreSettings(), split_bytes=65536)
    shutil.rmtree(root / "consumequeue")
    shutil.copytree(derived / "consumequeue", root / "consumequeue")
    assert sorted(rows(topics_of(root))) == sorted(found)
    stream = Stream(CommitLogSource, {"storePath": f"b={root}", "startingOffsets": "earliest"}, COLUMNS)
    assert rows(stream.batch(EVERYTHING)) == found
    start = found[60][3]
    assert rows(log_of(root, startingOffsets=f'{{"b":{start}}}')) == found[60:]
    assert count_logs(run_here, [BrokerStore("b", str(root))]).messages == 72


def test_entries_after_the_committed_index_are_delivered_once_they_are_committed(tmp_path: Path) -> None:
    root = tmp_path / "store"
    make_dledger_store(root, 60)
    (root / "dledger-n0/checkpoint").write_text("committedIndex=39\nendIndex=59\n")
    log = Stream(CommitLogSource, {"storePath": f"b={root}", "startingOffsets": "earliest"}, COLUMNS)
    topics = Stream(TopicSource, {"storePath": f"b={root}", "subscribe": "T", "startingOffsets": "earliest"}, COLUMNS)
    assert len(log_of(root)) == len(topics_of(root)) == 40
    assert count_logs(run_here, [BrokerStore("b", str(root))]).messages == 40
    assert (len(log.batch(EVERYTHING)), len(topics.batch(EVERYTHING))) == (40, 40)
    (root / "dledger-n0/checkpoint").write_text("committedIndex=59\nendIndex=59\n")
    assert (len(log.batch(EVERYTHING)), len(topics.batch(EVERYTHING))) == (20, 20)
    assert len(log_of(root)) == len(topics_of(root)) == 60


@pytest.mark.parametrize("damage", ["flipped bit", "flipped header", "zeroed page", "cut"])
def test_damaged_entries_fail_the_read_with_their_place(damage: str, tmp_path: Path) -> None:
    root = tmp_path / "store"
    make_dledger_store(root)
    path = sorted((root / DATA).iterdir())[1]
    raw = bytearray(path.read_bytes())
    if damage == "flipped bit":
        raw[ENTRY_HEADER_BYTES + 120] ^= 1
    elif damage == "flipped header":
        raw[27] ^= 1
    elif damage == "zeroed page":
        raw[:512] = bytes(512)
    else:
        del raw[300:]
    path.write_bytes(raw)
    with pytest.raises(DataLoss, match="damaged at physical offset"):
        log_of(root)
    with pytest.raises(DataLoss, match="failOnDataLoss=false"):
        count_logs(run_here, [BrokerStore("b", str(root))], check_crc=True)
    if damage == "flipped header":
        assert len(topics_of(root)) == 60  # queues lead to the records, which are intact
    else:
        with pytest.raises(StoreLayoutError if damage == "cut" else DataLoss):
            topics_of(root)
    assert 0 < len(log_of(root, failOnDataLoss="false")) < 60


def test_lost_last_files_fail_the_read(tmp_path: Path) -> None:
    root = tmp_path / "store"
    make_dledger_store(root)
    max((root / DATA).iterdir()).unlink()
    for read in (log_of, topics_of):
        with pytest.raises(DataLoss, match="committed end"):
            read(root)
    with pytest.warns(UserWarning, match="data was lost"):
        assert 0 < len(topics_of(root, failOnDataLoss="false")) < 60


def test_lost_last_entries_before_the_committed_one_fail_the_read(tmp_path: Path) -> None:
    root = tmp_path / "store"
    make_dledger_store(root)
    path = max((root / DATA).iterdir())
    path.write_bytes(bytes(path.stat().st_size))
    with pytest.raises(DataLoss, match="committed end"):
        log_of(root)
