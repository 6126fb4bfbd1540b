"""`orbitlog context`: clusters by name, with their credentials."""

from __future__ import annotations

import sys
from typing import Any

import click

from orbitlog.cli.contexts import Cluster, check_name, load_contexts
from orbitlog.cli.main import WrongUse
from orbitlog.cli.name_completion import complete_contexts
from orbitlog.cli.output.json_rows import Output, output_options
from orbitlog.cli.output.row_output import show_rows
from orbitlog.cli.output.stream_table import Column

_COLUMNS = (
    Column("name"),
    Column("inUse"),
    Column("nameServers"),
    Column("accessKey"),
    Column("secretKey"),
    Column("namespace"),
)


@click.group("context", help="Name clusters, keep their credentials, and choose the one that commands ask.")
def command() -> None:
    """The group."""


def _row(name: str, cluster: Cluster, current: str | None) -> dict[str, Any]:
    return {
        "name": name,
        "inUse": name == current,
        "nameServers": cluster.address,
        "accessKey": cluster.access_key,
        # That there is one is told, never which.
        "secretKey": "kept" if cluster.secret_key else None,
        "namespace": cluster.namespace or None,
    }


def _tell(sentence: str, row: dict[str, Any], output: Output) -> None:
    """Say what was done: in a sentence, or as the row that it was done to."""
    if output.is_table:
        click.echo(sentence)
    else:
        show_rows(_COLUMNS, [row], output)


@command.command("list", help="List the contexts; the one in use is marked.")
@output_options
def list_contexts(*, output: Output) -> None:
    contexts = load_contexts()
    rows = [_row(name, cluster, contexts.current) for name, cluster in sorted(contexts.table.items())]
    show_rows(_COLUMNS, rows, output)


@command.command("show", help="Show a context, or the one in use.")
@click.argument("name", required=False, shell_complete=complete_contexts)
@output_options
def show_context(*, name: str | None, output: Output) -> None:
    contexts = load_contexts()
    wanted = name or contexts.current
    if wanted is None:
        raise WrongUse("no context is in use; `orbitlog context use NAME` chooses one")
    show_rows(_COLUMNS, [_row(wanted, contexts.get(wanted), contexts.current)], output)


@command.command(
    "add",
    help="""Add a context, or change it: where the name servers are, and who asks.

    The file of contexts can be read by its owner alone. --secret-key - reads the secret from standard input, so that
    it stands in no history of commands. The first context is in use at once.""",
)
@click.argument("name")
@click.option("-n", "--name-server", "--nameserver", "address", required=True, help="Name servers: host:port,...")
@click.option("--access-key", help="The access key, at brokers with access control.")
@click.option("--secret-key", help="The secret key; - reads it from standard input.")
@click.option("--namespace", default="", help="A namespace of topics and groups.")
@click.option("--use", "use_it", is_flag=True, help="Also use it from now on.")
@output_options
def add_context(
    *,
    name: str,
    address: str,
    access_key: str | None,
    secret_key: str | None,
    namespace: str,
    use_it: bool,
    output: Output,
) -> None:
    from orbitlog.client.connection.addresses import parse_addresses

    check_name(name)
    parse_addresses(address)
    if secret_key == "-":  # noqa: S105 - the word for standard input
        secret_key = sys.stdin.readline().rstrip("\r\n")
    if bool(access_key) != bool(secret_key):
        raise WrongUse("--access-key and --secret-key come together")
    contexts = load_contexts()
    contexts.table[name] = Cluster(address, access_key, secret_key, namespace)
    if use_it or contexts.current is None:
        contexts.current = name
    contexts.save()
    told = f"context {name} is {address}" + (", in use" if contexts.current == name else "")
    _tell(told, _row(name, contexts.table[name], contexts.current), output)


@command.command("use", help="Have commands ask this cluster where neither -n nor --context is given.")
@click.argument("name", shell_complete=complete_contexts)
@output_options
def use_context(*, name: str, output: Output) -> None:
    contexts = load_contexts()
    cluster = contexts.get(name)
    contexts.current = name
    contexts.save()
    _tell(f"context {name} is in use: {cluster.address}", _row(name, cluster, name), output)


@command.command("remove", help="Forget a context and its credentials.")
@click.argument("name", shell_complete=complete_contexts)
@output_options
def remove_context(*, name: str, output: Output) -> None:
    contexts = load_contexts()
    cluster = contexts.get(name)
    del contexts.table[name]
    if contexts.current == name:
        contexts.current = None
    contexts.save()
    told = f"context {name} is removed" + ("; no context is in use" if contexts.current is None else "")
    _tell(told, _row(name, cluster, contexts.current), output)
