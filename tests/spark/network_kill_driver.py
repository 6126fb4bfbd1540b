"""A Spark driver that runs network pipelines one after the other, to be killed at any of them; run by tests.

python -m tests.spark.network_kill_driver MASTER

It prints `ready`, reads jobs from stdin, a line of JSON each, and answers each with `done`, or with the failure. A job
is one of three pipelines: `copy` reads a topic as a stream, changes each message and writes another topic; `lake`
exports a topic to a Delta table; `replay` sends the rows of that table into a topic.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

from orbitlog.errors import OrbitlogError
from orbitlog.pipeline.export.export_job import ExportRequest, export_topic
from orbitlog.pipeline.export.export_stream import ExportQuery
from orbitlog.pipeline.network.network_options import ClusterOptions, parse_cluster_options
from orbitlog.pipeline.replay.replay_job import ReplayRequest, replay
from orbitlog.pipeline.replay.replay_rows import ReplayRules
from orbitlog.pipeline.runtime.session import build_session
from orbitlog.pipeline.runtime.spark_runner import runner
from orbitlog.pipeline.sources.source_options import TOPIC_OPTIONS, OptionReader

# The marks of the sink name an attempt only by its partition: speculation is documented as excluded.
SETTINGS = {"spark.speculation": "false"}
_MESSAGES_PER_BATCH = 50


def main(master: str) -> None:
    from pyspark.errors import PySparkException

    spark = build_session(master, app_name="orbitlog-network-kills", settings=SETTINGS)
    _print("ready")
    for line in sys.stdin:
        try:
            _run(spark, json.loads(line))
        except (OrbitlogError, PySparkException) as error:
            _print(f"failed: {' '.join(str(error).split())[:600]}")
        else:
            _print("done")


def _run(spark: Any, job: dict[str, Any]) -> None:
    {"copy": _copy, "lake": _export, "replay": _replay}[job["job"]](spark, job)


def _copy(spark: Any, job: dict[str, Any]) -> None:
    from pyspark.sql import functions as F

    options = {"nameServer": job["nameServer"], "brokerTimeoutMs": "60000"}
    stream = spark.readStream.format("rocketmq").options(
        **options, subscribe=job["topic"], startingOffsets="earliest", maxOffsetsPerTrigger=_MESSAGES_PER_BATCH
    )
    place = F.concat_ws("/", "brokerName", "queueId", "queueOffset")
    changed = stream.load().select(F.concat(F.lit("copy of "), place).alias("body"), place.alias("keys"))
    query = (
        changed.writeStream.format("rocketmq")
        .options(**options, topic=job["to"], batchRows="8", checkpointLocation=job["checkpoint"])
        .options(transactional=str(job["transactional"]).lower())
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def _export(spark: Any, job: dict[str, Any]) -> None:
    target = Path(job["to"])
    request = ExportRequest(
        (), job["topic"], target, "delta", batch_messages=2 * _MESSAGES_PER_BATCH, cluster=_cluster(job["nameServer"])
    )
    if job["follow"]:
        ExportQuery(spark, request).run(threading.Event(), trigger_s=None)
    else:
        list(export_topic(runner(spark), request))


def _replay(spark: Any, job: dict[str, Any]) -> None:
    rules = ReplayRules(to_topic=job["topic"])
    request = ReplayRequest(Path(job["state"]), rules, table=Path(job["table"]), table_format="delta")
    replay(runner(spark), request, _cluster(job["nameServer"]), rate=job["rate"], slots=2)


def _cluster(name_server: str) -> ClusterOptions:
    options = {"nameServer": name_server, "brokerTimeoutMs": "60000"}
    cluster = parse_cluster_options(OptionReader(options, TOPIC_OPTIONS))
    assert cluster is not None
    return cluster


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
