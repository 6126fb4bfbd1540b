"""Spark errors: extracts the cause from the multi-line messages of failed jobs and streaming queries."""

from __future__ import annotations

import logging

_LINE_MAX = 500


def failure_line(error: BaseException) -> str:
    """Return the line with the cause: the last error of a traceback, else the first line of Spark's message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # py4j wraps the traceback in its own errors, which name only the call.
    causes = [line for line in lines if line.startswith("orbitlog.") or ("Error: " in line and "py4j" not in line)]
    return (causes or lines or [type(error).__name__])[-1 if causes else 0][:_LINE_MAX]


def is_orbitlog_failure(error: BaseException) -> bool:
    """Return whether an Orbitlog error is the cause: a restarted query would fail the same way."""
    return any(line.strip().startswith("orbitlog.") for line in str(error).splitlines())


def silence_sql_errors() -> None:
    """Stop PySpark from printing errors of SQL as a line of JSON: the caller reports them."""
    from pyspark.logger import PySparkLogger

    PySparkLogger.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)
