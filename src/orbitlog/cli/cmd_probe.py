"""`orbitlog probe`: asks the metrics port of a server for its health, for images without an HTTP client.

It opens one socket and loads neither an event loop nor the client: containers call it every few seconds.
"""

from __future__ import annotations

import json
import socket

import click

from orbitlog.cli.main import Problem
from orbitlog.cli.output.json_rows import Output, output_options

_PAGES = {"live": "/livez", "ready": "/readyz"}
_PORT = 5557
_FIELDS = ("status", "problems", "httpStatus")
_RESPONSE_BYTES_MAX = 64 * 1024


@click.command(
    "probe",
    help="""Check whether a server on this machine is alive or ready.

    Asks its metrics port (--metrics-port of the server). Exit 0: it is; exit 1: it is not, and the reason is on
    stderr. A server that is alive and not ready should get no new clients, but a restart would not help it.""",
)
@click.argument("what", type=click.Choice(tuple(_PAGES)))
@click.option("--host", default="127.0.0.1", show_default=True, help="Address of the metrics port.")
@click.option("--port", type=click.IntRange(1, 65535), default=_PORT, show_default=True, help="The metrics port.")
@click.option("--timeout", "timeout_s", type=click.FloatRange(0.1, 60), default=2.0, show_default=True, help="Seconds.")
@output_options
def command(*, what: str, host: str, port: int, timeout_s: float, output: Output) -> None:
    output.check(_FIELDS)
    try:
        status, body = _asked(host, port, _PAGES[what], timeout_s)
    except OSError as error:
        raise Problem(f"{host}:{port} does not respond ({error}); is it the --metrics-port of a server?") from error
    content = _content(body)
    if not output.is_table:
        output.write(_FIELDS, {**dict.fromkeys(_FIELDS), **content, "httpStatus": status})
    elif status == 200:
        click.echo(f"{content.get('status', what)}")
    if status != 200:
        problems = content.get("problems")
        reasons = "; ".join(map(str, problems)) if isinstance(problems, list) and problems else f"HTTP status {status}"
        raise Problem(f"{host}:{port} is not {what}: {reasons}")


def _asked(host: str, port: int, path: str, timeout_s: float) -> tuple[int, bytes]:
    """Return status and body of a page; raise an `OSError` if there is no HTTP response."""
    with socket.create_connection((host, port), timeout_s) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        received = b""
        while len(received) < _RESPONSE_BYTES_MAX and (data := connection.recv(4096)):
            received += data
    head, _, body = received.partition(b"\r\n\r\n")
    words = head.split(b" ", 2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
        raise OSError("no HTTP response")
    return int(words[1]), body


def _content(body: bytes) -> dict[str, object]:
    try:
        content = json.loads(body)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}
