"""Shutdown of streaming queries."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


def stop_query(query: StreamingQuery) -> None:
    """Stop a query; its own failure stays available as `query.exception()`."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        query.stop()
    except (PySparkException, Py4JError):
        pass  # it stops anyway; the caller reads the cause from query.exception()
