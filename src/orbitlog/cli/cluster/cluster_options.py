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
    """Add the options that select a cluster; the command receives it as `cluster`."""

    @functools.wraps(function)
    def run(*arguments: Any, address: str | None, context_name: str | None, uses_tls: bool, **words: Any) -> Any:
        return function(*arguments, cluster=choose_cluster(address, context_name, uses_tls=uses_tls), **words)

    decorated = click.option(
        "--tls",
        "uses_tls",
        is_flag=True,
        help="Connect with TLS, also by -n rocketmqs://... or a context; files [ORBITLOG_TLS_CA, ..._CERT, ..._KEY].",
    )(run)
    decorated = click.option(
        "--context",
        "context_name",
        metavar="NAME",
        shell_complete=complete_contexts,
        help="Cluster by its name in `orbitlog context list`.",
    )(decorated)
    decorated = click.option(
        "-n",
        "--name-server",
        "--nameserver",
        "address",
        metavar="HOST:PORT,...",
        help="Name servers [ORBITLOG_NAME_SERVER, NAMESRV_ADDR, the context in use, or 127.0.0.1:9876].",
    )(decorated)
    return cast("F", decorated)


def cluster_options(function: F) -> F:
    """Add the options that select a cluster and the form of the output."""
    return address_options(output_options(function))
