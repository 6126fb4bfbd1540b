"""`orbitlog nameserver`: serve routes in the foreground until TERM or INT."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Coroutine
from pathlib import Path

import click

from orbitlog.nameserver.name_server import NameServer
from orbitlog.nameserver.nameserver_settings import NameServerSettings, load_nameserver_settings


@click.command("nameserver")
@click.option("--host", help="Address to listen at; 0.0.0.0 is every address of the machine.  [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), help="Port; 0 picks a free one.  [default: 9876]")
@click.option(
    "-c",
    "--config",
    "config_path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A namesrv.conf.",
)
@click.option("--set", "assignments", multiple=True, metavar="KEY=VALUE", help="A setting; wins over the file.")
@click.option("--print-settings", is_flag=True, help="Show the settings in effect and exit.")
@click.option("--json", "as_json", is_flag=True, help="The ready line, or the settings, as one JSON object.")
def command(
    *,
    host: str | None,
    port: int | None,
    config_path: Path | None,
    assignments: tuple[str, ...],
    print_settings: bool,
    as_json: bool,
) -> None:
    """Serve routes: brokers register here, clients ask here where topics are.

    It listens at this machine only, unless told otherwise, and prints one line when clients may connect:
    `ready name-server=HOST:PORT`. TERM or INT stop it. Settings have the names of Java's namesrv.conf; they come from a
    file, from the environment (ORBITLOG_NAMESRV_listenPort=...) and from --set, and never from the network.
    """
    started_s = time.perf_counter()
    settings = _settings(host, port, config_path, assignments)
    if print_settings:
        _print_settings(settings, as_json)
        return
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", force=True
    )
    _run(_serve(settings, started_s, as_json))


def _settings(
    host: str | None, port: int | None, config_path: Path | None, assignments: tuple[str, ...]
) -> NameServerSettings:
    given = list(assignments)
    if host is not None:
        given.append(f"bindAddress={host}")
    if port is not None:
        given.append(f"listenPort={port}")
    settings = load_nameserver_settings(config_path, os.environ, given)
    for key in settings.unknown:
        click.echo(f"orbitlog: setting {key} is unknown; nothing reads it", err=True)
    for key in settings.idle:
        click.echo(f"orbitlog: setting {key} is Java's; it has no effect here", err=True)
    return settings


def _print_settings(settings: NameServerSettings, as_json: bool) -> None:
    texts = settings.texts()
    if as_json:
        click.echo(json.dumps(texts, separators=(",", ":")))
    else:
        click.echo("\n".join(f"{key}={text}" for key, text in texts.items()))


def _run(coroutine: Coroutine[object, object, None]) -> None:
    try:
        import uvloop
    except ImportError:
        asyncio.run(coroutine)
    else:
        uvloop.run(coroutine)


async def _serve(settings: NameServerSettings, started_s: float, as_json: bool) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    server = NameServer(settings)
    await server.start()
    host, port = server.address
    seconds = time.perf_counter() - started_s
    if as_json:
        click.echo(json.dumps({"nameServer": f"{host}:{port}", "seconds": round(seconds, 3)}, separators=(",", ":")))
    else:
        click.echo(f"ready name-server={host}:{port} seconds={seconds:.3f}")
    sys.stdout.flush()
    await stop.wait()
    await server.stop()
