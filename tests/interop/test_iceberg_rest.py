"""Exports into a table of an Iceberg REST catalog: Iceberg's own servlet, in a Java process."""

from __future__ import annotations

import os
import shutil
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyiceberg")

from orbitlog.jobs.local_runner import run_here
from orbitlog.pipeline.export.export_job import ExportRequest, export_topic
from orbitlog.pipeline.export.export_plan import ExportError
from orbitlog.pipeline.export.iceberg_export import IcebergCatalog
from orbitlog.pipeline.network.cluster_session import close_sessions
from orbitlog.pipeline.network.network_options import ClusterOptions
from orbitlog.pipeline.sources.json_columns import parse_json_columns
from orbitlog.testing.running_broker import RunningBroker
from tests.interop.harness.packages import JAVA_SOURCES, NotAvailable, iceberg_rest_jars
from tests.interop.harness.processes import ServerProcess
from tests.support.free_ports import free_port

pytestmark = [
    pytest.mark.interop,
    pytest.mark.filterwarnings("ignore:.*:DeprecationWarning", "ignore:.*:FutureWarning", "ignore:.*:UserWarning"),
]

TABLE = "shop.orders"
READY_SECONDS_MAX = 120


@pytest.fixture(scope="module")
def catalog_uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    try:
        jars = iceberg_rest_jars()
    except NotAvailable as reason:
        pytest.skip(str(reason))
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java") or "java"
    directory = tmp_path_factory.mktemp("iceberg-rest")
    port = free_port()
    program = JAVA_SOURCES / "iceberg" / "IcebergRest.java"
    words = [java, "-Xmx256m", "-cp", os.pathsep.join(jars), str(program), str(port), str(directory)]
    server = ServerProcess("Iceberg's REST catalog", words, directory / "server.log")
    uri = f"http://127.0.0.1:{port}"
    try:
        server.wait_until(lambda: _answers(uri), READY_SECONDS_MAX)
        yield uri
    finally:
        server.stop()


@pytest.fixture(autouse=True)
def closed_sessions() -> Iterator[None]:
    yield
    close_sessions()


def _answers(uri: str) -> bool:
    try:
        with urllib.request.urlopen(f"{uri}/v1/config", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def test_table_of_a_rest_catalog_has_each_message_once(tmp_path: Path, catalog_uri: str) -> None:
    from pyiceberg.catalog import load_catalog

    catalog = IcebergCatalog(TABLE, (("type", "rest"), ("uri", catalog_uri)))
    with RunningBroker(tmp_path / "store", {"brokerName": "b"}) as running, running.connect() as mq:
        request = ExportRequest(
            (),
            "Orders",
            tmp_path / "lake",
            "iceberg",
            cluster=ClusterOptions(running.address),
            catalog=catalog,
            batch_messages=20,
            json_columns=parse_json_columns("id bigint"),
        )
        mq.send_batch("Orders", [f'{{"id":{number}}}' for number in range(30)])
        assert sum(batch.messages for batch in export_topic(run_here, request)) == 30
        mq.send_batch("Orders", [f'{{"id":{number},"note":"n"}}' for number in range(30, 40)])

        def killed(*_: object, **__: object) -> None:
            raise RuntimeError("killed")

        with pytest.raises(RuntimeError, match="killed"):
            list(export_topic(killed, request))  # type: ignore[arg-type]
        more = replace(request, json_columns=parse_json_columns("id bigint, note string"))
        assert sum(batch.messages for batch in export_topic(run_here, more)) == 10
        assert list(export_topic(run_here, more)) == []
        elsewhere = replace(more, target=tmp_path / "other")
        with pytest.raises(ExportError, match=r"table shop\.orders is at file://"):
            list(export_topic(run_here, elsewhere))
    table = load_catalog("default", **dict(catalog.properties)).load_table(TABLE)
    rows = table.scan().to_arrow().to_pylist()
    assert sorted((row["id"], row["note"]) for row in rows) == sorted(
        (number, "n" if number >= 30 else None) for number in range(40)
    )
    assert len({(row["queueId"], row["queueOffset"]) for row in rows}) == 40
    assert all(row["body"] is None for row in rows)
    assert not (tmp_path / "lake" / "metadata" / "v1.metadata.json").exists()
