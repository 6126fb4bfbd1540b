"""A Spark driver that runs jobs one after the other, to be killed at any of them; run by tests.

python -m tests.spark.kill_driver MASTER

It says `ready`, reads jobs from stdin, a line of JSON each, and answers each with `done`, or with what went wrong.
Tasks are tried twice at once where Spark thinks them slow, which is soon. In local mode index files are written in
pieces, though they are small.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

from orbitlog.errors import LeaseLost, OrbitlogError
from orbitlog.jobs.rebuild import index_tasks
from orbitlog.pipeline import rebuild as rebuild_job
from orbitlog.pipeline.dispatch.dispatch_query import DispatchQuery
from orbitlog.pipeline.export.export_job import ExportRequest, export_topic
from orbitlog.pipeline.export.export_stream import ExportQuery
from orbitlog.pipeline.runtime.session import build_session, is_local
from orbitlog.pipeline.runtime.spark_runner import runner
from orbitlog.pipeline.sources.broker_stores import BrokerStore

SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "20ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.minTaskRuntime": "10ms",
}

_INDEX_WRITERS = 20


def main(master: str) -> None:
    spark = build_session(master, app_name="orbitlog-kills", settings=SPECULATION)
    if is_local(master):
        index_tasks._PIECE_KEYS_MIN, index_tasks._SLOT_COST = 100, 0
        rebuild_job.index_writers = lambda _: _INDEX_WRITERS
    _say("ready")
    for line in sys.stdin:
        try:
            _run(spark, json.loads(line))
        except OrbitlogError as error:
            _say(f"failed: {error}")
        else:
            _say("done")


def _run(spark: Any, job: dict[str, Any]) -> None:
    root = Path(job["root"])
    if job["job"] == "rebuild":
        (result,) = rebuild_job.rebuild(spark, [root], out=None, split_bytes=65536)
        assert result.is_published, result.findings
    elif job["job"] == "dispatch":
        _dispatch(spark, root, job["seconds"])
    else:
        stores = (BrokerStore("b", str(root)),)
        request = ExportRequest(stores, job["topic"], Path(job["to"]), job["format"], batch_messages=500)
        if job["follow"]:
            ExportQuery(spark, request).run(threading.Event(), trigger_s=None)
        else:
            list(export_topic(runner(spark), request))


def _dispatch(spark: Any, root: Path, seconds: float | None) -> None:
    """Dispatch what there is, or for a while from when the lease is taken."""
    if seconds is None:
        DispatchQuery(spark, root).run_once()
        return
    stop = threading.Event()
    timer = threading.Timer(seconds, stop.set)
    query = DispatchQuery(
        spark, root, on_progress=lambda progress: timer.start() if _is_first(timer, progress) else None
    )
    try:
        query.run(stop)
    except LeaseLost as reason:
        raise AssertionError(f"the broker is gone: {reason}") from reason
    finally:
        timer.cancel()


def _is_first(timer: threading.Timer, progress: Any) -> bool:
    return progress.epoch > 0 and timer.ident is None


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
