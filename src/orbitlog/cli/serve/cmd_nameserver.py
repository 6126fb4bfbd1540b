"""`orbitlog nameserver`: runs a name server in the foreground until TERM or INT."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orbitlog.cli.main import WrongUse
from orbitlog.cli.serve.serving import (
    ServerLog,
    joined,
    json_option,
    log_format_option,
    log_texts,
    log_to_option,
    metrics_fact,
    metrics_port_option,
    metrics_texts,
    print_settings_option,
    serve,
)
from orbitlog.nameserver.name_server import NameServer
from orbitlog.nameserver.nameserver_settings import NameServerSettings, load_nameserver_settings
from orbitlog.observe.metrics_settings import DISABLE, EXPORTER, LOG_FORMAT, LOG_STDERR, LOG_TO, check_export
from orbitlog.settings.secret_settings import shown_settings
from orbitlog.settings.setting import SettingError

if TYPE_CHECKING:
    from orbitlog.observe.http_listener import HttpListener
    from orbitlog.observe.metrics_export import MetricsExport


class _ServedNameServer:
    def __init__(self, settings: NameServerSettings, log_path: Path | None) -> None:
        self._log_path = log_path
        self._metrics: HttpListener | MetricsExport | None = None
        if settings.metrics[EXPORTER.key] == DISABLE:
            self._server = NameServer(settings)
            return
        from orbitlog.nameserver.nameserver_metrics import RequestCounts, name_server_outlet

        counts = RequestCounts()
        self._server = NameServer(settings, counted=counts.counted)
        metrics_log = (log_path.parent if log_path is not None else Path("logs")) / "nameserver-metrics.log"
        self._metrics = name_server_outlet(self._server, counts, settings.metrics, metrics_log)

    async def start(self) -> Mapping[str, str]:
        self._server.watch_certificate()
        await self._server.start()
        facts = {"name-server": joined(self._server.address)}
        if self._metrics is not None:
            await self._metrics.start()
            facts |= metrics_fact(getattr(self._metrics, "address", None))
        return facts if self._log_path is None else {**facts, "log": str(self._log_path)}

    async def stop(self) -> None:
        await self._server.stop()
        if self._metrics is not None:
            await self._metrics.stop()


@click.command(
    "nameserver",
    help="""Run a name server: brokers register routes, clients look them up.

    Listens on loopback by default, and prints one line when clients can connect. Settings are those of Java's
    namesrv.conf. They come from a file, from the environment (ORBITLOG_NAMESRV_listenPort=...) and from --set; later
    ones override earlier ones. They cannot be changed over the network.""",
)
@click.option("--host", help="Listen address (bindAddress); 0.0.0.0 for all interfaces [127.0.0.1].")
@click.option("--port", type=click.IntRange(0, 65535), help="Listen port (listenPort), 0 for any free port [9876].")
@click.option(
    "-c",
    "--config",
    "config_path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Settings file: Java's namesrv.conf.",
)
@click.option("--set", "assignments", multiple=True, metavar="KEY=VALUE", help="One setting; overrides all others.")
@click.option(
    "--logs",
    "log_directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory of the log file, which is rotated by size [stderr].",
)
@metrics_port_option
@log_format_option
@log_to_option
@print_settings_option
@json_option
def command(
    *,
    host: str | None,
    port: int | None,
    config_path: Path | None,
    assignments: tuple[str, ...],
    log_directory: Path | None,
    metrics_port: int | None,
    log_format: str | None,
    log_to: str | None,
    print_settings: bool,
    as_json: bool,
) -> None:
    given = list(assignments)
    given += [] if host is None else [f"bindAddress={host}"]
    given += [] if port is None else [f"listenPort={port}"]
    texts = {**metrics_texts(metrics_port), **log_texts(log_format, log_to)}
    given += [f"{key}={text}" for key, text in texts.items()]
    try:
        settings = load_nameserver_settings(config_path, os.environ, given)
        check_export(lambda setting: settings.metrics[setting.key])
    except SettingError as error:
        raise WrongUse(str(error)) from error
    for sentence in settings.warnings:
        click.echo(f"orbitlog: {sentence}", err=True)
    if print_settings:
        for key, text in sorted(shown_settings(settings.texts()).items()):
            click.echo(f"{key}={text}")
        return
    _refuse_other_configs(settings, config_path)
    # Without a directory everything goes to stderr.
    target = LOG_STDERR if log_directory is None else settings.metrics[LOG_TO.key]
    server_log = ServerLog(log_directory or Path("logs"), "nameserver", settings.metrics[LOG_FORMAT.key], target)
    server_log.open()
    serve(lambda: _ServedNameServer(settings, server_log.path), as_json=as_json)


def _refuse_other_configs(settings: NameServerSettings, config_path: Path | None) -> None:
    """Raise `WrongUse` if a Java name server with this file would read key-value configs that this one does not."""
    java_default = Path.home() / "namesrv" / "kvConfig.json"
    if config_path is not None and settings.kv_config_path is None and java_default.exists():
        raise WrongUse(
            f"kvConfigPath is missing, and Java's default {java_default} exists: its configs, such as the order of"
            f" ordered topics, would be missing; add kvConfigPath={java_default} to {config_path}"
        )
