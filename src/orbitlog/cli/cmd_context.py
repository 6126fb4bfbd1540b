"""`orbitlog context`: manages named clusters and their credentials."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from orbitlog.cli.contexts import TLS_CHECKS, Cluster, check_name, check_tls_choice, load_contexts
from orbitlog.cli.main import WrongUse
from orbitlog.cli.name_completion import complete_contexts
from orbitlog.cli.output.json_rows import Output, output_options
from orbitlog.cli.output.row_output import show_rows
from orbitlog.cli.output.stream_table import Column

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_COLUMNS = (
    Column("name"),
    Column("inUse"),
    Column("nameServers"),
    Column("accessKey"),
    Column("secretKey"),
    Column("namespace"),
    Column("tls"),
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
        "tls": cluster.tls or None,
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
    help="""Add or change a context: its name servers, credentials, namespace and TLS.

    Only the owner can read the file of contexts. --secret-key - reads the secret from standard input, which keeps it
    out of the shell history. The first context is in use at once.""",
)
@click.argument("name")
@click.option("-n", "--name-server", "--nameserver", "address", required=True, help="Name servers: host:port,...")
@click.option("--access-key", help="Access key, for brokers with access control.")
@click.option("--secret-key", help="Secret key; - reads it from standard input.")
@click.option("--security-token", default="", help="Token of temporary credentials; - reads it after the secret key.")
@click.option("--namespace", default="", help="Namespace of topics and groups.")
@click.option("--tls", "tls", is_flag=True, help="Connect with TLS; implied by the TLS options below.")
@click.option("--ca-file", type=_FILE, help="CA certificates that servers need, PEM [those of the system].")
@click.option("--cert-file", type=_FILE, help="Client certificate, PEM, if the servers require one.")
@click.option("--key-file", type=_FILE, help="Private key of the client certificate, PEM.")
@click.option(
    "--tls-check",
    type=click.Choice(TLS_CHECKS),
    help="Verify CA and host name of servers, the CA alone, or nothing [full].",
)
@click.option("--use", "use_it", is_flag=True, help="Also make it the context in use.")
@output_options
def add_context(
    *,
    name: str,
    address: str,
    access_key: str | None,
    secret_key: str | None,
    security_token: str,
    namespace: str,
    tls: bool,
    ca_file: Path | None,
    cert_file: Path | None,
    key_file: Path | None,
    tls_check: str | None,
    use_it: bool,
    output: Output,
) -> None:
    from orbitlog.client.connection.addresses import parse_addresses

    check_name(name)
    parse_addresses(address)
    if secret_key == "-":  # noqa: S105 - means standard input
        secret_key = sys.stdin.readline().rstrip("\r\n")
    if security_token == "-":  # noqa: S105 - means standard input
        security_token = sys.stdin.readline().rstrip("\r\n")
    if security_token and not access_key:
        raise WrongUse("--security-token needs --access-key and --secret-key")
    if bool(access_key) != bool(secret_key):
        raise WrongUse("--access-key and --secret-key must be given together")
    ca, cert, key = (str(path.absolute()) if path is not None else "" for path in (ca_file, cert_file, key_file))
    check = tls_check or ("full" if tls else "")
    cluster = Cluster(address, access_key, secret_key, namespace, check, ca, cert, key, security_token=security_token)
    cluster = check_tls_choice(cluster)
    contexts = load_contexts()
    contexts.table[name] = cluster
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
