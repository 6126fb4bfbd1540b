"""`orbitlog console`: serves the web console until interrupted, and manages its users."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orbitlog.cli.cluster_connection import credentials_of, tls_of
from orbitlog.cli.contexts import Cluster, choose_cluster, load_contexts
from orbitlog.cli.main import Problem, WrongUse
from orbitlog.cli.output.log_lines import line_formatter
from orbitlog.cli.serve.console_user_commands import user_commands
from orbitlog.cli.serve.serving import json_option, log_format_option, serve
from orbitlog.observe.metrics_settings import LOG_TEXT
from orbitlog.settings.user_directories import user_directory

if TYPE_CHECKING:
    from orbitlog.console.console_options import ClusterChoice

_PORT = 8082
_LOCAL = "cluster"


def default_data_directory() -> Path:
    """Return the default directory of users, audit log and replay records."""
    return user_directory("XDG_DATA_HOME") / "console"


def require_console_packages() -> None:
    """Raise `Problem` with the extra to install if a package of the console is missing."""
    import importlib.util

    missing = [name for name in ("starlette", "uvicorn", "jinja2", "msgspec") if importlib.util.find_spec(name) is None]
    if missing:
        raise Problem(f"the console needs {', '.join(missing)}; install it with `pip install 'orbitlog[console]'`")


@click.group(
    "console",
    invoke_without_command=True,
    help="""Serve the web console until interrupted: clusters, and stores without a broker.

    Listens on loopback, only reads unless --write, and prints one line when browsers can connect. Beyond loopback
    visitors must sign in; add users with `orbitlog console user add`.""",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Listen address; 0.0.0.0 for all interfaces.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=_PORT,
    show_default=True,
    help="Listen port, 0 for any free port.",
)
@click.option(
    "-n",
    "--name-server",
    "address",
    metavar="HOST:PORT,...",
    help="Name servers of a cluster [ORBITLOG_NAME_SERVER, NAMESRV_ADDR, the context in use, or 127.0.0.1:9876].",
)
@click.option(
    "--context", "context_names", multiple=True, metavar="NAME", help="Cluster of `orbitlog context list`; repeatable."
)
@click.option("--tls", "uses_tls", is_flag=True, help="Connect to the cluster of -n with TLS.")
@click.option(
    "--data",
    "data_directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory of users, audit log and replay records [~/.local/share/orbitlog/console].",
)
@click.option(
    "--store",
    "stores",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Directory of a store to look into, without a broker; repeatable.",
)
@click.option(
    "--write",
    "may_write",
    is_flag=True,
    help="Allow changes: operators and admins see their forms. Without users the start prints an address for an admin.",
)
@click.option(
    "--sql",
    "allows_sql",
    is_flag=True,
    help="Allow admins to query stores and topics with SQL, on Spark in a process of its own.",
)
@click.option(
    "--hide-bodies",
    "hides_bodies",
    is_flag=True,
    help="Show bodies and properties of messages only to operators and admins.",
)
@click.option(
    "--public-url", default="", help="Address of the console if a proxy serves it, e.g. https://mq.example.org."
)
@click.option(
    "--stuck-after",
    type=click.FloatRange(0),
    default=600,
    show_default=True,
    help="Wait in seconds after which a group with members counts as stuck.",
)
@log_format_option
@json_option
@click.pass_context
def command(
    context: click.Context,
    *,
    host: str,
    port: int,
    address: str | None,
    context_names: tuple[str, ...],
    uses_tls: bool,
    data_directory: Path | None,
    stores: tuple[Path, ...],
    may_write: bool,
    allows_sql: bool,
    hides_bodies: bool,
    public_url: str,
    stuck_after: float,
    log_format: str | None,
    as_json: bool,
) -> None:
    directory = data_directory or default_data_directory()
    context.obj = directory
    require_console_packages()
    if context.invoked_subcommand is not None:
        return
    from orbitlog.console.console_options import ConsoleOptions
    from orbitlog.console.console_server import ConsoleServer
    from orbitlog.console.explorer.store_reading import named_stores

    if public_url and not public_url.startswith(("http://", "https://")):
        raise WrongUse(f"--public-url {public_url!r} does not begin with http:// or https://")
    to_stderr = logging.StreamHandler(sys.stderr)
    to_stderr.setFormatter(line_formatter(log_format or LOG_TEXT, "orbitlog: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[to_stderr])
    options = ConsoleOptions(
        data_directory=directory,
        host=host,
        port=port,
        clusters=() if stores and not (address or context_names) else _clusters(address, context_names, uses_tls),
        stores=named_stores(stores),
        may_write=may_write,
        allows_sql=allows_sql,
        hides_bodies=hides_bodies,
        public_url=public_url,
        stuck_after_seconds=stuck_after,
    )
    serve(lambda: ConsoleServer(options), as_json=as_json)


command.add_command(user_commands)


def _clusters(address: str | None, context_names: tuple[str, ...], uses_tls: bool) -> tuple[ClusterChoice, ...]:
    """Return the clusters that the options name; one by the usual rules if they name none."""
    chosen: dict[str, Cluster] = {name: choose_cluster(None, name) for name in context_names}
    if address is not None or not chosen:
        cluster = choose_cluster(address, None, uses_tls=uses_tls)
        current = load_contexts().current if address is None else None
        chosen = {current or _LOCAL: cluster, **chosen}
    return tuple(_choice(name, cluster, name if name in context_names else "") for name, cluster in chosen.items())


def _choice(name: str, cluster: Cluster, context_name: str) -> ClusterChoice:
    from orbitlog.console.console_options import ClusterChoice

    return ClusterChoice(name, cluster.address, credentials_of(cluster), tls_of(cluster), context_name)
