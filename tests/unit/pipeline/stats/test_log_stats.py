"""Statistics of the golden stores compared with Java's decoding, and of stores made for one question."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from orbitlog.formats import names
from orbitlog.formats.records.message import make_message
from orbitlog.jobs.local_runner import run_here
from orbitlog.pipeline.sources.broker_stores import BrokerStore
from orbitlog.pipeline.sources.source_errors import DataLoss
from orbitlog.pipeline.stats.consumer_lag import read_progress
from orbitlog.pipeline.stats.log_stats import count_logs
from orbitlog.pipeline.stats.stats_job import TABLES, store_statistics
from orbitlog.pipeline.stats.stats_plot import plot_statistics
from orbitlog.settings.store_settings import StoreGeometry
from orbitlog.store.message_store import MessageStore
from orbitlog.storefiles.store_config import StoreConfig
from orbitlog.testing.golden import GoldenStore

HOUR_MS = 3_600_000


@pytest.fixture(params=["golden_497", "golden_550_crash"])
def golden(request: pytest.FixtureRequest) -> GoldenStore:
    return request.getfixturevalue(request.param)


def groups_of(messages: list[dict[str, Any]], kind: str) -> dict[tuple[str, Any], list[dict[str, Any]]]:
    values = {
        "topic": lambda message: None,
        "queue": lambda message: message["queueId"],
        "tag": lambda message: message["tags"],
        "hour": lambda message: message["storeTimestamp"] // HOUR_MS * HOUR_MS,
        "host": lambda message: message["bornHost"].rpartition(" ")[0],
    }
    groups = defaultdict(list)
    for message in messages:
        groups[message["topic"], values[kind](message)].append(message)
    return groups


@pytest.mark.parametrize("kind", ["topic", "queue", "tag", "hour", "host"])
def test_every_group_of_a_golden_store(golden: GoldenStore, kind: str) -> None:
    for split_bytes in (65536, 1 << 27):
        counted = count_logs(run_here, [BrokerStore("b", str(golden.store))], split_bytes=split_bytes)
        messages = golden.manifest["messages"]
        assert counted.messages == len(messages)
        expected = groups_of(messages, kind)
        found = {(key[2], key[3]): totals for key, totals in counted.groups.items() if key[0] == kind}
        assert found.keys() == expected.keys()
        for key, group in expected.items():
            totals, sizes = found[key], sorted(message["storedBodyLength"] for message in group)
            assert totals.messages == len(group)
            assert totals.stored_bytes == sum(message["storeSize"] for message in group)
            assert totals.body_bytes == sum(sizes)
            assert totals.first_ms == min(message["storeTimestamp"] for message in group)
            assert totals.last_ms == max(message["storeTimestamp"] for message in group)
            for share, exact in ((0.5, statistics.median_low(sizes)), (0.99, sizes[-(len(sizes) // 100) - 1])):
                assert exact <= totals.body_size_at(share) <= exact * 33 / 32 + 1


def test_consumer_lag_is_what_the_offsets_leave(golden: GoldenStore) -> None:
    latest = {(q["topic"], q["queueId"]): q["maxOffset"] for q in golden.manifest["afterOpen"]["queues"]}
    progress = read_progress(BrokerStore("b", str(golden.store)))
    assert progress.lag
    for row in progress.lag:
        end = latest.get((row["topic"], row["queueId"]), 0)
        assert row["latestOffset"] == end
        assert row["lag"] == max(end - row["nextOffset"], 0)
    dead = [message for message in golden.manifest["messages"] if message["topic"].startswith("%DLQ%")]
    assert sum(row["messages"] for row in progress.dead_letters) == len(dead) > 0
    retried = [message for message in golden.manifest["messages"] if message["topic"].startswith("%RETRY%")]
    assert sum(row["messages"] for row in progress.retries) == len(retried) > 0


def test_delayed_messages_that_wait(golden_497: GoldenStore) -> None:
    progress = read_progress(BrokerStore("b", str(golden_497.store)))
    pending = {row["level"]: row for row in progress.delays if row["pending"]}
    waiting = [m for m in golden_497.manifest["messages"] if m["topic"] == names.SCHEDULE_TOPIC and m["queueId"] >= 16]
    assert {17, 18} <= pending.keys()
    for level in (17, 18):
        own = [message for message in waiting if message["queueId"] == level - 1]
        assert pending[level]["pending"] == len(own)
        assert pending[level]["nextDueTimestamp"] == min(message["tagsCode"] for message in own)


def test_half_messages(golden: GoldenStore) -> None:
    (row,) = read_progress(BrokerStore("b", str(golden.store))).transactions
    half = [message for message in golden.manifest["messages"] if message["topic"] == names.HALF_TOPIC]
    assert row["halfMessages"] == len(half)
    assert 0 < row["pending"] < len(half)


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[MessageStore]:
    geometry = StoreGeometry(segment_bytes=8192, queue_file_bytes=400)
    with MessageStore.open(tmp_path / "store", StoreConfig(geometry), lambda: 1_000) as store:
        yield store


def test_half_messages_that_are_not_decided(writer: MessageStore, tmp_path: Path) -> None:
    for _ in range(10):
        writer.append(make_message(names.HALF_TOPIC, b"half"))
    for body in (b"0", b"3,5,", b"7"):
        writer.append(make_message(names.OP_HALF_TOPIC, body, properties={"TAGS": "d"}))
    writer.flush_log()
    writer.dispatch_once()
    config = tmp_path / "store/config"
    config.mkdir()
    group = f"@{names.TRANSACTION_GROUP}"
    (config / "consumerOffset.json").write_text(f'{{"offsetTable":{{"{names.HALF_TOPIC}{group}":{{0:2}}}}}}')
    (row,) = read_progress(BrokerStore("b", str(tmp_path / "store"))).transactions
    assert row == {"brokerName": "b", "queueId": 0, "halfMessages": 10, "pending": 8 - 3}


def test_what_retention_removed_is_no_lag(writer: MessageStore, tmp_path: Path) -> None:
    for _ in range(100):
        writer.append(make_message("T", bytes(100)))
    writer.flush_log()
    writer.dispatch_once()
    config = tmp_path / "store/config"
    config.mkdir()
    (config / "consumerOffset.json").write_text('{"offsetTable":{"T@g":{0:1},"U@g":{0:5}}}')
    writer.close()
    (tmp_path / "store/commitlog" / f"{0:020d}").unlink()
    rows = read_progress(BrokerStore("b", str(tmp_path / "store"))).lag
    assert 0 < rows[0]["lag"] < 99
    assert (rows[1]["topic"], rows[1]["lag"]) == ("U", 0)


def test_damage_ends_it_unless_it_may_be_left_out(writer: MessageStore, tmp_path: Path) -> None:
    for _ in range(100):
        writer.append(make_message("T", bytes(100)))
    writer.flush_log()
    writer.dispatch_once()
    writer.close()
    path = tmp_path / "store/commitlog" / f"{0:020d}"
    damaged = bytearray(path.read_bytes())
    damaged[20 * 192 + 4 : 20 * 192 + 8] = b"gone"
    path.write_bytes(damaged)
    store = BrokerStore("b", str(tmp_path / "store"))
    with pytest.raises(DataLoss, match="is damaged at physical offset"):
        count_logs(run_here, [store])
    assert 0 < count_logs(run_here, [store], fail_on_damage=False).messages < 100


def test_all_tables_and_a_picture(golden_497: GoldenStore, tmp_path: Path) -> None:
    found = store_statistics(run_here, [BrokerStore("b", str(golden_497.store))])
    assert set(found.tables) == set(TABLES)
    assert all(found.tables[table] for table in TABLES)
    plot_statistics(found, tmp_path / "stats.png")
    assert (tmp_path / "stats.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "stats.png").stat().st_size > 20_000
