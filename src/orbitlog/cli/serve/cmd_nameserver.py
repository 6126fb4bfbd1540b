"""`orbitlog nameserver`: serve routes in the foreground until TERM or INT."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import click

from orbitlog.cli.serve.serving import joined, json_option, print_settings_option, serve, start_logging
from orbitlog.nameserver.name_server import NameServer
from orbitlog.nameserver.nameserver_settings import NameServerSettings, load_nameserver_settings
from orbitlog.settings.setting import SettingError


class _ServedNameServer:
    def __init__(self, settings: NameServerSettings, log_path: Path | None) -> None:
        self._server = NameServer(settings)
        self._log_path = log_path

    async def start(self) -> Mapping[str, str]:
        await self._server.start()
        facts = {"name-server": joined(self._server.address)}
        return facts if self._log_path is None else {**facts, "log": str(self._log_path)}

    async def stop(self) -> None:
        await self._server.stop()


@click.command(
    "nameserver",
    help="""Serve routes: brokers register here, clients ask here where topics are.

    Listens on this machine only, unless told otherwise, and prints one line when clients may connect. Settings are
    those of Java's namesrv.conf: from a file, the environment (ORBITLOG_NAMESRV_listenPort=...), or --set; later ones
    win, and none comes from the network.""",
)
@click.option("--host", help="Address to listen on (bindAddress); 0.0.0.0 for all of the machine's [127.0.0.1].")
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on (listenPort), 0 for a free one [9876].")
@click.option(
    "-c",
    "--config",
    "config_path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file of settings: Java's namesrv.conf.",
)
@click.option("--set", "assignments", multiple=True, metavar="KEY=VALUE", help="One setting; wins over all others.")
@click.option(
    "--logs",
    "log_directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory for a log file that is turned over when it is full [stderr].",
)
@print_settings_option
@json_option
def command(
    *,
    host: str | None,
    port: int | None,
    config_path: Path | None,
    assignments: tuple[str, ...],
    log_directory: Path | None,
    print_settings: bool,
    as_json: bool,
) -> None:
    given = list(assignments)
    given += [] if host is None else [f"bindAddress={host}"]
    given += [] if port is None else [f"listenPort={port}"]
    try:
        settings = load_nameserver_settings(config_path, os.environ, given)
    except SettingError as error:
        raise click.UsageError(str(error)) from error
    for key in settings.unknown:
        click.echo(f"orbitlog: setting {key} is unknown; nothing reads it", err=True)
    for key in settings.idle:
        click.echo(f"orbitlog: setting {key} is Java's; it has no effect here", err=True)
    if print_settings:
        for key, text in sorted(settings.texts().items()):
            click.echo(f"{key}={text}")
        return
    log_path = None
    if log_directory is None:
        logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)-7s %(message)s")
    else:
        log_path = start_logging(log_directory, "nameserver")
    serve(lambda: _ServedNameServer(settings, log_path), as_json=as_json)
