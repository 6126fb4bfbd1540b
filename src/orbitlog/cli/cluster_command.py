"""What the commands that talk to a running cluster share: where it is, how to ask it, tables or JSON."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from orbitlog.cli.line_writer import LineWriter
from orbitlog.cli.main import Problem
from orbitlog.cli.stream_table import Column, StreamTable
from orbitlog.errors import ConnectFailed

if TYPE_CHECKING:
    from orbitlog.client.rocketmq import RocketMQ

R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

_DEFAULT_ADDRESS = "127.0.0.1:9876"


def cluster_options(function: F) -> F:
    """Give a command the options by which it finds its cluster and chooses its output."""
    function = click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")(function)
    return click.option(
        "-n",
        "--name-server",
        "address",
        default=_DEFAULT_ADDRESS,
        envvar=["ORBITLOG_NAME_SERVER", "NAMESRV_ADDR"],
        show_default=True,
        help="Name servers, host:port with commas between; also from NAMESRV_ADDR.",
    )(function)


def ask_cluster(address: str, work: Callable[[RocketMQ], Awaitable[R]]) -> R:
    """Connect, do the work, close."""
    from orbitlog.client.connecting import connect

    logging.basicConfig(level=logging.ERROR, format="orbitlog: %(message)s")

    async def run() -> R:
        async with connect(address) as mq:
            return await work(mq)

    try:
        return asyncio.run(run())
    except ConnectFailed as error:
        raise Problem(f"{error}; is a cluster running there? `orbitlog up` starts one, -n says where it is") from error


def show_rows(columns: Sequence[Column], rows: Iterable[Mapping[str, Any]], *, as_json: bool) -> None:
    """Print rows as a table, or each as a JSON object; the titles of the columns are the JSON names."""
    with LineWriter() as writer:
        if as_json:
            for row in rows:
                writer.line(json.dumps(row, ensure_ascii=False))
            return
        table = StreamTable(writer, columns)
        for row in rows:
            table.row([_cell(row[column.title]) for column in columns])
        table.finish()


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
