"""Spark part of the tour: one session dispatches a live store, queries, exports and rebuilds it."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from orbitlog.cli.tour.tour_orders import EVENTS, ORDERS
from orbitlog.errors import OrbitlogError

if TYPE_CHECKING:
    from orbitlog.jobs.rebuild.store_rebuild import StoreRebuild
    from orbitlog.pipeline.dispatch.dispatch_query import DispatchProgress
    from orbitlog.pipeline.sources.broker_stores import BrokerStore
    from orbitlog.settings.store_settings import StoreSettings

MASTER = "local[2]"
SQL = """select tags as event, count(*) as orders, round(sum(get_json_object(string(body), '$.price')), 2) as money
from messages where topic = 'Orders' group by tags order by orders desc, event"""
_TAKEN_SECONDS_MAX = 120.0
_JSON_COLUMNS = "`order` string, event string, items int, price double"


def why_no_spark() -> str | None:
    """Return the reason why Spark is unavailable, or None; starts nothing."""
    from orbitlog.pipeline.runtime.session import SparkUnavailable, check_java

    if find_spec("pyspark") is None:
        return "PySpark is not installed: pip install 'orbitlog[spark]'"
    try:
        check_java()
    except SparkUnavailable as error:
        return str(error)
    return None


@dataclass(frozen=True, slots=True)
class Exported:
    """Totals of an exported table."""

    messages: int
    files: int
    size_bytes: int


class TourSpark:
    """One Spark session for all acts."""

    def __init__(self, store: Path) -> None:
        from orbitlog.pipeline.runtime.session import build_session

        self._store = store
        started_s = time.perf_counter()
        self._spark: Any = build_session(MASTER, app_name="orbitlog demo")
        self.start_seconds = time.perf_counter() - started_s

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        from orbitlog.pipeline.runtime.session import end_session

        end_session(self._spark)

    def dispatching(self) -> Dispatching:
        """Take over dispatch from the running broker while the block runs."""
        return Dispatching(self._spark, self._store)

    def find_by_key(self, key: str) -> list[str]:
        from orbitlog.pipeline.sources.message_query import MessageFilter, messages_frame

        frame = messages_frame(self._spark, self._stores(), MessageFilter(topic=ORDERS, key=key), ["uniqKey"])
        return [row.uniqKey for row in frame.collect()]

    def query(self, sql: str = SQL) -> list[dict[str, Any]]:
        """Return the rows of a SQL query over the view `messages`."""
        from orbitlog.pipeline.sources.message_query import query_sql

        return [row.asDict() for row in query_sql(self._spark, self._stores(), sql).collect()]

    def export(self, target: Path) -> Exported:
        """Export the topic as a table, with JSON bodies as columns."""
        from orbitlog.pipeline.export.export_job import ExportRequest, export_topic
        from orbitlog.pipeline.runtime.spark_runner import runner
        from orbitlog.pipeline.sources.json_columns import parse_json_columns

        request = ExportRequest(
            stores=self._stores(),
            topic=ORDERS,
            target=target.absolute(),
            table_format="parquet",
            json_columns=parse_json_columns(_JSON_COLUMNS),
            starting="earliest",
            batch_messages=4_000_000,
            fail_on_data_loss=True,
        )
        batches = list(export_topic(runner(self._spark), request))
        return Exported(
            *(sum(getattr(batch, name) for batch in batches) for name in ("messages", "files", "file_bytes"))
        )

    def count_table(self, target: Path) -> int:
        """Count the rows of the table with Spark's Parquet reader."""
        return int(self._spark.read.parquet(str(target)).count())

    def plot(self, picture: Path) -> bool:
        """Plot the store's statistics; return False if matplotlib is missing."""
        from orbitlog.pipeline.runtime.spark_runner import runner
        from orbitlog.pipeline.stats.stats_job import store_statistics
        from orbitlog.pipeline.stats.stats_plot import PlotUnavailable, plot_statistics

        try:
            plot_statistics(store_statistics(runner(self._spark), self._stores()), picture)
        except PlotUnavailable:
            return False
        return True

    def rebuild(self, out: Path, settings: StoreSettings) -> StoreRebuild:
        """Rebuild queues, index and checkpoint from the log into a directory."""
        from orbitlog.pipeline.rebuild import rebuild

        (result,) = rebuild(self._spark, [self._store], out=out, settings=settings)
        return result

    def _stores(self) -> tuple[BrokerStore, ...]:
        from orbitlog.pipeline.sources.broker_stores import name_stores

        return name_stores([f"tour={self._store}"])


class Dispatching:
    """Dispatch of a live store by Spark: runs the streaming query of `pipeline dispatch` in a thread."""

    def __init__(self, spark: Any, store: Path) -> None:
        from orbitlog.pipeline.dispatch.dispatch_query import DispatchQuery

        self._query = DispatchQuery(spark, store, on_progress=self._on_progress)
        self._stop = threading.Event()
        self._taken = threading.Event()
        self._failure: OrbitlogError | None = None
        self._thread = threading.Thread(target=self._run, name="orbitlog tour dispatch", daemon=True)
        self.progress: DispatchProgress | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._taken.wait(_TAKEN_SECONDS_MAX) or self._failure is not None:
            self._stop.set()
            self._thread.join()
            raise self._failure or OrbitlogError(f"the broker did not hand dispatch over in {_TAKEN_SECONDS_MAX:.0f} s")
        return self

    def __exit__(self, *_: object) -> None:
        """Hand dispatch back to the broker."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._query.run(self._stop)
        except OrbitlogError as error:
            self._failure = error
            self._taken.set()

    def _on_progress(self, progress: DispatchProgress) -> None:
        self.progress = progress
        if progress.epoch:
            self._taken.set()


def bars(rows: list[dict[str, Any]], width: int = 40) -> list[str]:
    """Return the result of `SQL` as a bar chart of characters."""
    most = max((row["orders"] for row in rows), default=1)
    widest = max(len(event) for event in EVENTS)
    return [f"{row['event']:<{widest}} {'#' * round(width * row['orders'] / most)} {row['orders']:,}" for row in rows]
