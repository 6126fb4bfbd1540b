"""`orbitlog access tls`: creates a CA and certificates for development."""

from __future__ import annotations

from pathlib import Path

import click

from orbitlog.cli.output.json_rows import Output, output_options
from orbitlog.cli.output.row_output import show_rows
from orbitlog.cli.output.stream_table import Column
from orbitlog.remoting.tls.development_certificates import DevelopmentCa, default_hosts, refuse_existing
from orbitlog.settings.atomic_file import replace_file
from orbitlog.settings.tls_options import TlsFiles

_COLUMNS = (Column("file"), Column("content"))
_PROPERTIES = "tls.properties"
_CONTENTS = {
    "ca.pem": "certificate of the CA: servers and clients trust it",
    "ca.key": "key of the CA: only for further certificates",
    "server.pem": "certificate of the server",
    "server.key": "key of the server",
    "client.pem": "certificate of a client",
    "client.key": "key of that client",
    _PROPERTIES: "settings of servers and clients, also Java's (tls.config.file)",
}


@click.group("tls", help="Create a CA and certificates for development.")
def command() -> None:
    """The group."""


@command.command(
    "init",
    help="""Write a new CA, certificates of a server and a client, and tls.properties into DIRECTORY.

    For development: the key of the CA is a file like the others. All files are readable by their owner only, and
    existing ones are not overwritten. Needs the program openssl.""",
)
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="Host name or address of the servers; repeatable [localhost, 127.0.0.1, ::1 and the name of this machine].",
)
@click.option(
    "--client-name",
    default="client",
    show_default=True,
    help="Common name of the client, which can name a user (tlsPrincipalFrom=subjectCN).",
)
@output_options
def init(*, directory: Path, hosts: tuple[str, ...], client_name: str, output: Output) -> None:
    directory = directory.absolute()
    refuse_existing(directory / name for name in _CONTENTS)
    ca = DevelopmentCa(directory)
    ca.create()
    server = ca.issue_server("server", hosts or default_hosts())
    client = ca.issue_client("client", client_name)
    replace_file(directory / _PROPERTIES, _properties(server, client).encode(), mode=0o600)
    show_rows(_COLUMNS, [{"file": str(directory / name), "content": text} for name, text in _CONTENTS.items()], output)


def _properties(server: TlsFiles, client: TlsFiles) -> str:
    """Return the text of `tls.properties`; backslashes of paths are escaped as Java's files require."""
    values = {
        "tls.test.mode.enable": "false",
        "tls.server.certPath": server.certificate,
        "tls.server.keyPath": server.key,
        "tls.server.trustCertPath": server.trust,
        "tls.client.authServer": "true",
        "tls.client.trustCertPath": client.trust,
        "tls.client.certPath": client.certificate,
        "tls.client.keyPath": client.key,
    }
    lines = (f"{key}={text}\n".replace("\\", "\\\\") for key, text in values.items())
    return "".join(lines)
