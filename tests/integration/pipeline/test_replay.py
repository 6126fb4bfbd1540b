"""Replays without Spark: tables and stores back into topics, each message once, with filters and a record."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
import pyarrow.parquet as pq
from click.testing import CliRunner

from orbitlog.cli.main import cli
from orbitlog.jobs.local_runner import run_here
from orbitlog.pipeline.export.export_job import ExportRequest, export_topic
from orbitlog.pipeline.network.cluster_session import close_sessions
from orbitlog.pipeline.network.network_options import ClusterOptions
from orbitlog.pipeline.replay.replay_job import ReplayRequest, replay, replay_dry
from orbitlog.pipeline.replay.replay_rows import ReplayRules
from orbitlog.pipeline.replay.replay_tables import ReplayError
from orbitlog.pipeline.sink.row_sender import RowSender
from orbitlog.pipeline.sources.broker_stores import BrokerStore
from orbitlog.pipeline.sources.topic_source import TopicSource
from orbitlog.testing.running_broker import RunningBroker
from tests.support.source_runs import read_batch

pytestmark = pytest.mark.filterwarnings("ignore:.*:DeprecationWarning", "ignore:.*:FutureWarning")
COUNT = 40
FIELDS = ("body", "tags", "keys", "flag")


@pytest.fixture(autouse=True)
def closed_sessions() -> Iterator[None]:
    yield
    close_sessions()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path_factory.mktemp("store"), {"brokerName": "b"}) as running:
        with running.connect() as mq:
            for number in range(COUNT):
                mq.send(
                    "Source",
                    f"body {number}",
                    tags="even" if number % 2 == 0 else "odd",
                    keys=[f"k{number}", "all"],
                    properties={"number": str(number)},
                    ordered_by=f"s{number % 3}",
                )
        yield running


def cluster_of(broker: RunningBroker) -> ClusterOptions:
    return ClusterOptions(broker.address, broker_timeout_s=20.0)


def store_of(broker: RunningBroker) -> tuple[BrokerStore, ...]:
    return (BrokerStore("b", str(broker.store)),)


def rows(broker: RunningBroker, topic: str) -> list[dict[str, Any]]:
    found = read_batch(TopicSource, {"nameServer": broker.address, "subscribe": topic}).to_pylist()
    return sorted(found, key=lambda row: int(dict(row["properties"])["number"]))


@pytest.fixture(scope="module", params=["parquet", "delta", "iceberg"])
def table(request: pytest.FixtureRequest, broker: RunningBroker, tmp_path_factory: pytest.TempPathFactory) -> Any:
    target = tmp_path_factory.mktemp("lake") / request.param
    list(export_topic(run_here, ExportRequest(store_of(broker), "Source", target, request.param)))
    return target, request.param


def test_table_replay_equals_its_source(broker: RunningBroker, table: tuple[Path, str], tmp_path: Path) -> None:
    path, table_format = table
    target = f"Again-{table_format}"
    request = ReplayRequest(
        tmp_path / "state", ReplayRules(topic_map=(("Source", target),)), table=path, table_format=table_format
    )
    assert replay_dry(run_here, request).topics[target][0] == COUNT
    assert not (tmp_path / "state").exists()
    report = replay(run_here, request, cluster_of(broker))
    assert (report.sent, report.found, report.failed) == (COUNT, 0, 0)
    source, copies = rows(broker, "Source"), rows(broker, target)
    assert [[row[name] for name in FIELDS] for row in copies] == [[row[name] for name in FIELDS] for row in source]
    assert [dict(row["properties"])["__SHARDINGKEY"] for row in copies] == [f"s{n % 3}" for n in range(COUNT)]
    again = replay(run_here, request, cluster_of(broker))
    assert (again.resumed_tasks, again.sent) == (again.tasks, COUNT)
    assert len(rows(broker, target)) == COUNT
    recorded = pq.read_table(tmp_path / "state" / "sent").to_pylist()
    places = {(row["_fromQueueId"], row["_fromQueueOffset"]): row["uniqKey"] for row in recorded}
    ids = {dict(row["properties"])["number"]: row["uniqKey"] for row in copies}
    for row in source:
        assert places[row["queueId"], row["queueOffset"]] == ids[dict(row["properties"])["number"]]


def test_interrupted_replay_is_resumed_without_duplicates(
    broker: RunningBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = ReplayRules(topics=("Source",), to_topic="Resumed")
    request = ReplayRequest(tmp_path / "state", rules, store_of(broker))
    original, sent = RowSender._request, []

    async def failing(self: RowSender, queue: Any, group: Any) -> None:
        if len(sent) == 1:
            raise RuntimeError("killed")
        sent.append(len(group))
        await original(self, queue, group)

    monkeypatch.setattr(RowSender, "_request", failing)
    with pytest.raises(RuntimeError, match="killed"):
        replay(run_here, request, cluster_of(broker), rate=2000)
    monkeypatch.undo()
    with broker.connect() as mq:
        mq.send("Source", "later", properties={"number": "1000"})  # the plan is older
    report = replay(run_here, request, cluster_of(broker))
    assert report.sent + report.found == COUNT
    assert report.found > 0
    assert [row["body"] for row in rows(broker, "Resumed")] == [b"body %d" % number for number in range(COUNT)]
    with pytest.raises(ReplayError, match="holds a replay with other settings"):
        replay(
            run_here, ReplayRequest(tmp_path / "state", ReplayRules(("Source",)), store_of(broker)), cluster_of(broker)
        )
    # The marks state what this cluster has: another one would lack the messages of finished tasks.
    with pytest.raises(ReplayError, match="another cluster"):
        replay(run_here, request, ClusterOptions("127.0.0.1:1", broker_timeout_s=1.0))


def test_filters_select_keys_tags_and_times(broker: RunningBroker, tmp_path: Path) -> None:
    stored = rows(broker, "Source")[:COUNT]
    middle = int(stored[COUNT // 2]["storeTimestamp"].timestamp() * 1000)

    def counted(**rules: Any) -> int:
        request = ReplayRequest(None, ReplayRules(topics=("Source",), **rules), store_of(broker))
        return sum(messages for messages, _ in replay_dry(run_here, request).topics.values())

    assert counted(keys=("k7", "k9")) == 2
    assert counted(keys=(stored[3]["uniqKey"],)) == 1
    assert counted(tags=("odd",), keys=("all",)) == COUNT // 2
    before = sum(int(row["storeTimestamp"].timestamp() * 1000) < middle for row in stored)
    assert counted(to_ms=middle) == before


def test_rate_is_kept(broker: RunningBroker, tmp_path: Path) -> None:
    rules = ReplayRules(topics=("Source",), tags=("even",), to_topic="Slow")
    began = time.monotonic()
    report = replay(
        run_here, ReplayRequest(tmp_path / "s", rules, store_of(broker)), cluster_of(broker), rate=10, slots=4
    )
    assert report.sent == COUNT // 2
    assert time.monotonic() - began > 0.9


def test_queues_are_kept_in_order(broker: RunningBroker, tmp_path: Path) -> None:
    rules = ReplayRules(topics=("Source",), tags=("even", "odd"), to_topic="Kept", keeps_queues=True)
    with broker.connect() as mq:
        mq.admin.create_topic("Kept", 16)
    replay(run_here, ReplayRequest(tmp_path / "s", rules, store_of(broker)), cluster_of(broker))
    by_queue: dict[int, list[int]] = {}
    for row in read_batch(TopicSource, {"nameServer": broker.address, "subscribe": "Kept"}).to_pylist():
        by_queue.setdefault(row["queueId"], []).append(int(dict(row["properties"])["number"]))
    source: dict[int, list[int]] = {}
    for row in rows(broker, "Source")[:COUNT]:
        source.setdefault(row["queueId"], []).append(int(dict(row["properties"])["number"]))
    assert by_queue == source


def test_table_without_bodies_is_refused_and_invalid_rows_are_recorded(broker: RunningBroker, tmp_path: Path) -> None:
    for name, columns in (("none", {"x": [1]}), ("some", {"value": [b"good", None], "topic": ["Plain", "Plain"]})):
        (tmp_path / name).mkdir()
        pq.write_table(pa.table(columns), tmp_path / name / "part.parquet")
    with pytest.raises(ReplayError, match="has no column body"):
        replay_dry(run_here, ReplayRequest(None, ReplayRules(), table=tmp_path / "none"))
    request = ReplayRequest(tmp_path / "state", ReplayRules(), table=tmp_path / "some")
    report = replay(run_here, request, cluster_of(broker))
    assert (report.sent, report.failed) == (1, 1)
    assert pq.read_table(tmp_path / "state" / "failed").to_pylist()[0]["_error"] == "column body is null"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--dry-run"], "give the directories of stores, or a table with --table, but not both"),
        (["S", "--dry-run"], "give --topic: which topic of the stores to replay"),
        (["S", "--topic", "T"], "a replay needs --name-server or --context, and --state"),
        (["S", "--topic", "T", "--map", "x"], "'x' is not OLD=NEW"),
        (["S", "--topic", "T", "--map", "a=b", "--to-topic", "c"], "--map and --to-topic are both given"),
    ],
)
def test_wrong_use_has_one_sentence(words: list[str], sentence: str) -> None:
    done = CliRunner().invoke(cli, ["pipeline", "replay", *words])
    assert (done.exit_code, sentence in done.output) == (2, True), done.output
