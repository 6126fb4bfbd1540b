"""Shutdown of streaming queries: stops a query, and extracts one line from the failure of one that ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_LINE_MAX = 500


def query_failure(error: Exception) -> str:
    """Return the line of a query's failure that names its cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if "Error: " in line or line.startswith("orbitlog.")]
    return (causes or lines or [type(error).__name__])[-1 if causes else 0][:_LINE_MAX]


def is_orbitlog_failure(error: Exception) -> bool:
    """Return whether an Orbitlog error ended the query: restarted, it would fail the same way."""
    return any(line.strip().startswith("orbitlog.") for line in str(error).splitlines())


def stop_query(query: StreamingQuery) -> None:
    """Stop a query; its own failure stays available as `query.exception()`."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        query.stop()
    except (PySparkException, Py4JError):
        pass  # it stops anyway; the caller reads the cause from query.exception()
