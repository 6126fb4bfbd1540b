"""What the commands that talk to a running cluster share: which cluster, how to ask it, and how to print rows."""

from __future__ import annotations

import functools
import json
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from orbitlog.cli.cluster.stream_table import Column, StreamTable
from orbitlog.cli.contexts import Cluster, choose_cluster
from orbitlog.cli.json_rows import Output, output_options
from orbitlog.cli.line_writer import LineWriter
from orbitlog.cli.main import Problem
from orbitlog.cli.name_completion import complete_contexts
from orbitlog.cli.row_format import RowFormat, cell
from orbitlog.cli.serve.light_asyncio import load_asyncio
from orbitlog.errors import BrokerRefused, ConnectFailed, NoRoute, OrbitlogError

if TYPE_CHECKING:
    from orbitlog.client.admin.administration import Administration
    from orbitlog.client.rocketmq import RocketMQ

R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

_TOPIC_UNKNOWN, _NO_PERMISSION = 17, 16
# Brokers of Apache's answer with the exception itself, under whatever code.
_ACCESS_DENIED = "AclException"


def address_options(function: F) -> F:
    """Give a command the options by which it finds its cluster; it is called with `cluster`."""

    @functools.wraps(function)
    def run(*arguments: Any, address: str | None, context_name: str | None, **words: Any) -> Any:
        return function(*arguments, cluster=choose_cluster(address, context_name), **words)

    decorated = click.option(
        "--context",
        "context_name",
        metavar="NAME",
        shell_complete=complete_contexts,
        help="A cluster by its name in `orbitlog context list`.",
    )(run)
    decorated = click.option(
        "-n",
        "--name-server",
        "--nameserver",
        "address",
        metavar="HOST:PORT,...",
        help="Name servers; else ORBITLOG_NAME_SERVER, NAMESRV_ADDR, the context in use, 127.0.0.1:9876.",
    )(decorated)
    return cast("F", decorated)


def cluster_options(function: F) -> F:
    """Give a command the options by which it finds its cluster and chooses its output."""
    return address_options(output_options(function))


def ask_cluster(cluster: Cluster, work: Callable[[RocketMQ], Awaitable[R]], *, topic: str | None = None) -> R:
    """Connect, do the work, close; `topic` is what the work is about, for a hint if there is none of that name."""
    load_asyncio()
    from orbitlog.client.connection.connect import connect

    async def run() -> R:
        async with connect(cluster.address, credentials=_credentials(cluster), namespace=cluster.namespace) as mq:
            try:
                return await work(mq)
            except (NoRoute, BrokerRefused) as error:
                raise await _explained(error, mq.admin, topic) from error

    return _run(run())


def ask_admin(cluster: Cluster, work: Callable[[Administration], Awaitable[R]], *, topic: str | None = None) -> R:
    """The same for what neither sends nor consumes: it starts in half the time."""
    load_asyncio()
    from orbitlog.client.admin.administration import administer

    async def run() -> R:
        async with administer(cluster.address, credentials=_credentials(cluster)) as admin:
            try:
                return await work(admin)
            except (NoRoute, BrokerRefused) as error:
                raise await _explained(error, admin, topic) from error

    return _run(run())


def _credentials(cluster: Cluster) -> Any:
    if not cluster.access_key or not cluster.secret_key:
        return None
    from orbitlog.client.connection.signature import Credentials

    return Credentials(cluster.access_key, cluster.secret_key)


def _run(work: Coroutine[Any, Any, R]) -> R:
    import asyncio
    import logging

    logging.basicConfig(level=logging.ERROR, format="orbitlog: %(message)s")
    try:
        return asyncio.run(work)
    except ConnectFailed as error:
        hint = "is a cluster running there? `orbitlog up` starts one, -n or --context says where it is"
        raise Problem(f"{error}; {hint}") from error


async def _explained(
    error: NoRoute | BrokerRefused, admin: Administration, topic: str | None
) -> OrbitlogError | Problem:
    """Say what to do about a refusal where the client alone cannot know it."""
    if isinstance(error, BrokerRefused) and (error.code == _NO_PERMISSION or _ACCESS_DENIED in error.remark):
        return Problem(
            f"{_first_line(error)}; credentials come from the context (`orbitlog context add NAME --access-key ...`)"
        )
    is_unknown = isinstance(error, NoRoute) or error.code == _TOPIC_UNKNOWN
    if topic is None or not is_unknown:
        return error
    import difflib

    try:
        topics = await admin.topics()
    except OrbitlogError:
        return error
    if topic in topics or not topics:
        return error
    near = difflib.get_close_matches(topic, topics, n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else "`orbitlog topic list` lists those that are there"
    return Problem(f"no broker serves topic {topic}; {hint}")


def _first_line(error: BrokerRefused) -> str:
    """A refusal in one line: Apache's brokers send whole stack traces."""
    return " ".join(str(error).split("\n", 1)[0].split())


def show_rows(columns: Sequence[Column], rows: Iterable[Mapping[str, Any]], output: Output) -> None:
    """Print rows; the titles of the columns are the JSON names and the fields of format strings."""
    if output.template is not None:
        template = RowFormat(output.template, [column.title for column in columns])
        for row in rows:
            # As bytes: a body that is no text goes out as it came in.
            click.echo(template.text(row).encode("utf-8", "surrogateescape"), nl=False)
        return
    with LineWriter() as writer:
        if output.as_json:
            for row in rows:
                writer.line(json.dumps(row, ensure_ascii=False))
            return
        table = StreamTable(writer, columns)
        for row in rows:
            table.row([cell(row[column.title]) for column in columns])
        table.finish()


def check_template(output: Output, fields: Sequence[str]) -> RowFormat | None:
    """Understand a format string before the cluster is asked: a mistake in it should cost nothing."""
    return None if output.template is None else RowFormat(output.template, fields)
