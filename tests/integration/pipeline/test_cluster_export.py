"""Exports from a cluster, without Spark: the tables of stores, exactly once, and the command's sentences."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from click.testing import CliRunner

from orbitlog.cli.main import cli
from orbitlog.cli.pipeline.pipeline_options import chosen_cluster
from orbitlog.jobs.local_runner import run_here
from orbitlog.pipeline.export.export_job import ExportRequest, export_topic, open_table
from orbitlog.pipeline.export.export_plan import ExportState
from orbitlog.pipeline.network.cluster_session import close_sessions
from orbitlog.pipeline.network.network_options import ClusterOptions
from orbitlog.pipeline.sources.broker_stores import BrokerStore
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
