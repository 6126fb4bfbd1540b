"""Spark reads and writes an S3 server through Hadoop's s3a: exported tables, results of queries, checkpoints."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("moto")

from pyarrow import fs

from orbitlog.testing.running_broker import RunningBroker
from tests.interop.harness.packages import NotAvailable, hadoop_aws_jars
from tests.support.s3_server import aws_settings, s3_server

HAS_JAVA = bool(os.environ.get("JAVA_HOME") or shutil.which("java"))
pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.xdist_group("spark"),
    pytest.mark.skipif(not HAS_JAVA, reason="Spark needs Java 17 or newer"),
]
MESSAGES = 30
COMMAND = [sys.executable, "-c", "from orbitlog.cli.main import main; main()", "pipeline"]

# One JVM for all: an export that follows, reads by Spark, and a stream whose table and checkpoint are on s3a.
PROGRAM = """
import json, sys, threading
from orbitlog.pipeline.export.export_job import ExportRequest
from orbitlog.pipeline.export.export_stream import ExportQuery
from orbitlog.pipeline.export.hadoop_s3a import enable_s3a
from orbitlog.pipeline.network.network_options import ClusterOptions
from orbitlog.pipeline.runtime.session import build_session

address = sys.argv[1]
spark = build_session("local[2]")
enable_s3a(spark)
request = ExportRequest((), "Orders", "s3a://lake/orders", batch_messages=12, cluster=ClusterOptions(address))
ExportQuery(spark, request).run(threading.Event(), trigger_s=None)
exported = spark.read.parquet("s3a://lake/orders")
topic = spark.readStream.format("rocketmq").option("nameServer", address).option("subscribe", "Orders")
topic = topic.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 7).load()
for _ in range(2):  # the second run starts at the checkpoint
    writer = topic.select("queueId", "queueOffset", "body").writeStream.format("parquet")
    writer = writer.option("path", "s3a://lake/stream").option("checkpointLocation", "s3a://lake/checkpoint")
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
found = {
    "exported": sorted(bytes(row["body"]).decode() for row in exported.select("body").collect()),
    "days": len(exported.select("dt").distinct().collect()),
    "streamed": sorted(bytes(row["body"]).decode() for row in spark.read.parquet("s3a://lake/stream").collect()),
    "queried": spark.read.parquet("s3a://lake/found").count(),
}
print(json.dumps(found))
spark.stop()
"""


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3_server() as address:
        files = fs.S3FileSystem(
            endpoint_override=address,
            access_key="key",
            secret_key="secret",
            region="us-east-1",
            allow_bucket_creation=True,
        )
        files.create_dir("lake")
        yield address


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path_factory.mktemp("store")) as running:
        with running.connect() as mq:
            for number in range(MESSAGES):
                mq.send("Orders", f"body {number:02}")
        yield running


def run(words: list[str], endpoint: str, directory: Path, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **aws_settings(endpoint), **more}
    return subprocess.run(
        words, env=environment, cwd=directory, capture_output=True, text=True, check=False, timeout=300
    )


def query(broker: RunningBroker, out: str) -> list[str]:
    words = [*COMMAND, "query", "--name-server", broker.address, "--topic", "Orders", "--master", "local[2]"]
    return [*words, "--out", out]


def test_spark_without_hadoop_aws_is_reported_in_one_sentence(
    broker: RunningBroker, endpoint: str, tmp_path: Path
) -> None:
    done = run(query(broker, "s3a://lake/nothing"), endpoint, tmp_path)
    assert done.returncode == 1
    (sentence,) = done.stderr.splitlines()
    assert "Spark has no s3a, because org.apache.hadoop.fs.s3a.S3AFileSystem is not on its class path" in sentence
    assert "--packages org.apache.hadoop:hadoop-aws:3." in sentence


def test_spark_reads_and_writes_through_s3a(broker: RunningBroker, endpoint: str, tmp_path: Path) -> None:
    try:
        class_path = os.pathsep.join(hadoop_aws_jars())
    except NotAvailable as reason:
        pytest.skip(str(reason))
    arguments = f"--driver-class-path {class_path} pyspark-shell"
    queried = run(query(broker, "s3://lake/found"), endpoint, tmp_path, PYSPARK_SUBMIT_ARGS=arguments)
    assert queried.returncode == 0, queried.stderr
    done = run([sys.executable, "-c", PROGRAM, broker.address], endpoint, tmp_path, PYSPARK_SUBMIT_ARGS=arguments)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    bodies = [f"body {number:02}" for number in range(MESSAGES)]
    assert found["exported"] == bodies
    assert found["streamed"] == bodies
    assert found["queried"] == MESSAGES
    assert found["days"] >= 1
