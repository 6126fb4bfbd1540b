"""Options of commands that talk to a running cluster: its address, and the form of the output."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import click

from orbitlog.cli.contexts import choose_cluster
from orbitlog.cli.name_completion import complete_contexts
from orbitlog.cli.output.json_rows import output_options

F = TypeVar("F", bound=Callable[..., Any])


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
