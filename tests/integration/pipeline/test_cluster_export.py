"""Exports from a cluster, without Spark: the tables of stores, exactly once, and the command's sentences."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from click.testing import CliRunner

from orbitlog.cli.main import cli
from orbitlog.cli.pipeline.pipeline_options import chosen_cluster
from orbitlog.jobs.local_runner import run_here
from orbitlog.pipeline.export.export_job import ExportRequest, export_topic, open_table
from orbitlog.pipeline.export.export_plan import ExportState
from orbitlog.pipeline.export.export_stream import await_topic
from orbitlog.pipeline.network.cluster_session import close_sessions
from orbitlog.pipeline.network.network_options import ClusterOptions
from orbitlog.pipeline.sources.broker_stores import BrokerStore, TopicNotFound
from orbitlog.testing.running_broker import RunningBroker
from tests.support.exported_rows import read_table

pytestmark = pytest.mark.filterwarnings("ignore:.*:DeprecationWarning", "ignore:.*:FutureWarning")


@pytest.fixture(autouse=True)
def closed_sessions() -> Iterator[None]:
    yield
    close_sessions()


def send(broker: RunningBroker, count: int) -> None:
    with broker.connect() as mq:
        mq.send_batch("T", [f"body {number}" for number in range(count)], tags="x", keys=["k"] * count)


def cluster_of(broker: RunningBroker) -> ClusterOptions:
    return ClusterOptions(broker.address, access_key="key", secret_key="hidden", broker_timeout_s=20.0)


@pytest.mark.parametrize("table_format", ["parquet", "delta", "iceberg"])
def test_cluster_export_equals_that_of_the_store(tmp_path: Path, table_format: str) -> None:
    with RunningBroker(tmp_path / "store", {"brokerName": "b"}) as running:
        request = ExportRequest((), "T", tmp_path / "lake", table_format, cluster=cluster_of(running))
        send(running, 50)
        assert [batch.messages for batch in export_topic(run_here, request)] == [50]
        send(running, 30)
        running.restart_broker()
        assert [batch.messages for batch in export_topic(run_here, request)] == [30]
        assert list(export_topic(run_here, request)) == []
        stored = ExportRequest((BrokerStore("b", str(tmp_path / "store")),), "T", tmp_path / "other", table_format)
        list(export_topic(run_here, stored))
    exported = read_table(request.target, table_format)
    assert len(exported) == 80
    assert exported == read_table(stored.target, table_format)
    plans = [path.read_text() for path in (tmp_path / "lake" / "_orbitlog").rglob("*.json")]
    assert plans
    assert not any("hidden" in text for text in plans)


def test_interrupted_batch_is_repeated_with_the_same_rows(tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "store", {"brokerName": "b"}) as running:
        request = ExportRequest((), "T", tmp_path / "lake", cluster=cluster_of(running))
        send(running, 40)

        def killed(*_: object, **__: object) -> None:
            raise RuntimeError("killed")

        with pytest.raises(RuntimeError, match="killed"):
            list(export_topic(killed, request))  # type: ignore[arg-type]
        planned = ExportState(request.target).load(0)
        send(running, 5)
        assert [batch.messages for batch in export_topic(run_here, request)] == [40, 5]
        assert planned == ExportState(request.target).load(0)
        assert open_table(request).committed() == 1
        assert ExportRequest.from_text(request.as_text()) == request


def test_followed_topic_that_appears_later_is_exported_from_its_start(tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "store", {"brokerName": "b"}) as running:
        request = ExportRequest((), "T", tmp_path / "lake", starting="latest", cluster=cluster_of(running))
        with running.connect() as mq:
            mq.admin.create_topic("Ta", 1)
        stop, warned = threading.Event(), list[str]()
        assert await_topic(replace(request, topic="Ta"), stop, 0.1, warned.append).starting == "latest"
        timers = [threading.Timer(1.0, send, (running, 20)), threading.Timer(20.0, stop.set)]
        for timer in timers:
            timer.start()
        found = await_topic(request, stop, 0.1, warned.append)
        timers[0].join()
        assert not stop.is_set()
        timers[1].cancel()
        (sentence,) = warned
        assert sentence.startswith("no broker serves topic 'T'; ")
        assert sentence.endswith("waiting until it exists")
        assert found == replace(request, starting="earliest")
        list(export_topic(run_here, found))
    assert len(read_table(request.target, "parquet")) == 20


def test_wait_for_a_topic_ends_with_the_command(tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "store", {"brokerName": "b"}) as running:
        request = ExportRequest((), "T", tmp_path / "lake", cluster=cluster_of(running))
        stop = threading.Event()
        threading.Timer(0.5, stop.set).start()
        await_topic(request, stop, 60.0, lambda _: None)
        assert stop.is_set()
        with pytest.raises(TopicNotFound, match="no broker serves topic 'T'"):
            list(export_topic(run_here, request))  # without --follow


def test_keys_and_token_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("ACCESS_KEY", "key"), ("SECRET_KEY", "hidden"), ("SECURITY_TOKEN", "token")):
        monkeypatch.setenv(f"ORBITLOG_{name}", value)
    chosen = chosen_cluster("127.0.0.1:9876", None, uses_tls=False)
    assert chosen == ClusterOptions("127.0.0.1:9876", "key", "hidden", "token")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "give the directories of stores, or a cluster with --name-server, but not both"),
        (["DIR", "--name-server", "h:1"], "give the directories of stores, or a cluster"),
        (["--tls"], "--tls is given without --name-server or --context"),
        (["--name-server", "h:99999"], "is not a valid host:port address"),
    ],
)
def test_wrong_use_has_one_sentence(words: list[str], sentence: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["pipeline", "export", *words, "--topic", "T", "--to", str(tmp_path / "x")])
    assert done.exit_code == 2
    assert sentence in done.output
