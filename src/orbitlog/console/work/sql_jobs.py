"""SQL over stores and topics, run by `orbitlog pipeline query` on Spark in a child process."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated

import msgspec
from msgspec import Meta

from orbitlog.console.console_options import ConsoleOptions
from orbitlog.console.views.answers import ConsoleError
from orbitlog.console.work.background_jobs import ROWS_MAX, Job
from orbitlog.console.work.child_process import json_lines

SQL_SECONDS = 600.0
MISSING_EXTRA = "SQL needs Spark; install it with `pip install 'orbitlog[console,spark]'` and Java 17"
_MASTER = "local[2]"
_TITLE_CHARACTERS = 80


class SqlRequest(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """A query over the view `messages` of one store, or of one topic of a cluster."""

    sql: Annotated[str, Meta(min_length=1, max_length=20_000)]
    store: Annotated[str, Meta(max_length=255)] = ""
    cluster: Annotated[str, Meta(max_length=255)] = ""
    topic: Annotated[str, Meta(max_length=255)] = ""


def has_spark() -> bool:
    """Return whether Spark is installed; it is not imported."""
    return find_spec("pyspark") is not None


def query_words(options: ConsoleOptions, request: SqlRequest) -> list[str]:
    """Return the arguments that name what is queried; only configured stores and clusters exist."""
    if bool(request.store) == bool(request.cluster):
        raise ConsoleError(400, "give a store, or a cluster and one of its topics")
    if request.store:
        path = options.stores.get(request.store)
        if path is None:
            raise ConsoleError(404, f"no store is named {request.store[:80]!r}")
        return [f"store={path}", *(("--topic", request.topic) if request.topic else ())]
    choice = next((choice for choice in options.clusters if choice.name == request.cluster), None)
    if choice is None:
        raise ConsoleError(404, f"unknown cluster {request.cluster[:80]!r}")
    if not request.topic:
        raise ConsoleError(400, "a query over a cluster needs a topic")
    words = ["--context", choice.context] if choice.context else ["--name-server", choice.address]
    if choice.tls is not None and not choice.context:
        words.append("--tls")
    return [*words, "--topic", request.topic]


def sql_title(sql: str) -> str:
    text = " ".join(sql.split())
    return text if len(text) <= _TITLE_CHARACTERS else text[: _TITLE_CHARACTERS - 1] + "…"


async def run_sql(job: Job, words: list[str], sql: str) -> None:
    """Run a query and keep its rows; one row more than is kept shows that there are more."""
    job.note = "Spark starts"
    limits = ("--limit", str(ROWS_MAX + 1), "--master", _MASTER)
    command = ("pipeline", "query", *words, "--sql", sql, "--restricted", *limits, "--json")
    async for row, size_bytes in json_lines(*command, seconds=SQL_SECONDS):
        if not job.columns:
            job.columns = list(row)
        job.add_row([row.get(name) for name in job.columns], size_bytes)
        job.steps_done += 1
        job.note = f"{job.steps_done:,} rows read"
    job.note = f"{job.steps_done:,} rows"
