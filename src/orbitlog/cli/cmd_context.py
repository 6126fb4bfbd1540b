"""`orbitlog context`: manages named clusters and their credentials."""

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


@click.group("context", help="Name clusters, store their credentials, and choose the default cluster.")
def command() -> None:
    """The group."""


def _row(name: str, cluster: Cluster, current: str | None) -> dict[str, Any]:
    return {
        "name": name,
        "inUse": name == current,
        "nameServers": cluster.address,
        "accessKey": cluster.access_key,
        # Whether a secret is stored, never the secret itself.
        "secretKey": "kept" if cluster.secret_key else None,
        "namespace": cluster.namespace or None,
    }


def _report(sentence: str, row: dict[str, Any], output: Output) -> None:
    """Print the result: as a sentence, or as the row of the context."""
    if output.is_table:
        click.echo(sentence)
    else:
        show_rows(_COLUMNS, [row], output)


@command.command("list", help="List the contexts and mark the one in use.")
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
        raise WrongUse("no context is in use; choose one with `orbitlog context use NAME`")
    show_rows(_COLUMNS, [_row(wanted, contexts.get(wanted), contexts.current)], output)


@command.command(
    "add",
    help="""Add or change a context: its name servers, credentials and namespace.

    Only the owner can read the file of contexts. --secret-key - reads the secret from standard input, which keeps it
    out of the shell history. The first context is in use at once.""",
)
@click.argument("name")
@click.option("-n", "--name-server", "--nameserver", "address", required=True, help="Name servers: host:port,...")
@click.option("--access-key", help="Access key, for brokers with access control.")
@click.option("--secret-key", help="Secret key; - reads it from standard input.")
@click.option("--namespace", default="", help="Namespace of topics and groups.")
@click.option("--use", "use_it", is_flag=True, help="Also make it the context in use.")
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
    if secret_key == "-":  # noqa: S105 - means standard input
        secret_key = sys.stdin.readline().rstrip("\r\n")
    if bool(access_key) != bool(secret_key):
        raise WrongUse("--access-key and --secret-key must be given together")
    contexts = load_contexts()
    contexts.table[name] = Cluster(address, access_key, secret_key, namespace)
    if use_it or contexts.current is None:
        contexts.current = name
    contexts.save()
    sentence = f"context {name} is {address}" + (", in use" if contexts.current == name else "")
    _report(sentence, _row(name, contexts.table[name], contexts.current), output)


@command.command("use", help="Use this cluster if neither -n nor --context is given.")
@click.argument("name", shell_complete=complete_contexts)
@output_options
def use_context(*, name: str, output: Output) -> None:
    contexts = load_contexts()
    cluster = contexts.get(name)
    contexts.current = name
    contexts.save()
    _report(f"context {name} is in use: {cluster.address}", _row(name, cluster, name), output)


@command.command("remove", help="Delete a context and its credentials.")
@click.argument("name", shell_complete=complete_contexts)
@output_options
def remove_context(*, name: str, output: Output) -> None:
    contexts = load_contexts()
    cluster = contexts.get(name)
    del contexts.table[name]
    if contexts.current == name:
        contexts.current = None
    contexts.save()
    sentence = f"context {name} is removed" + ("; no context is in use" if contexts.current is None else "")
    _report(sentence, _row(name, cluster, contexts.current), output)
