"""How streaming queries end: stopped by whoever started them, or with a failure that one sentence tells."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_SENTENCE_MAX = 500


def query_failure(error: Exception) -> str:
    """Return the line of a query's failure that names its cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if "Error: " in line or line.startswith("orbitlog.")]
    return (causes or lines or [type(error).__name__])[-1 if causes else 0][:_SENTENCE_MAX]


def has_our_reason(error: Exception) -> bool:
    """Tell whether a query ended for a reason that we gave: begun again, it would end the same way."""
    return any(line.strip().startswith("orbitlog.") for line in str(error).splitlines())


def stop_query(query: StreamingQuery) -> None:
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        query.stop()
    except (PySparkException, Py4JError):
        pass  # it is stopping; what went wrong in it is told by whoever asks it
