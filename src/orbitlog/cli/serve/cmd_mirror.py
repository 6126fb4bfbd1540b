"""`orbitlog mirror`: follows a live broker, serves the copy, and takes over on command."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import click

from orbitlog.broker.runtime import broker_settings as keys
from orbitlog.broker.runtime import replication_settings as ha_keys
from orbitlog.broker.runtime.broker_settings import BrokerSettings
from orbitlog.broker.slave.mirror import Mirror, MirrorProgress, MirrorTarget
from orbitlog.broker.slave.take_over import TakeOver
from orbitlog.cli.main import WrongUse
from orbitlog.cli.serve.serving import (
    RecoveryProgress,
    ServerLog,
    config_option,
    joined,
    json_option,
    log_format_option,
    log_settings,
    log_texts,
    log_to_option,
    metrics_fact,
    metrics_port_option,
    metrics_texts,
    print_ready,
    read_broker_settings,
    serve,
    set_option,
)
from orbitlog.errors import OrbitlogError, RemotingError
from orbitlog.observe.metrics_settings import LOG_FORMAT, LOG_TO

_PROGRESS_S = 2.0
_STOP_TIMEOUT_S = 600.0
_TABLE_SYNC_MS = "1000"


class _Plan(NamedTuple):
    """What the command does besides following."""

    takes_over: bool
    is_master_lost: bool
    stop_timeout_s: float
    as_json: bool


class _Mirrored:
    def __init__(self, mirror: Mirror, plan: _Plan, server_log: ServerLog) -> None:
        self._mirror = mirror
        self._plan = plan
        self._log = server_log
        self._task: asyncio.Task[None] | None = None
        self._failure: OrbitlogError | None = None

    async def start(self) -> Mapping[str, str]:
        await self._mirror.start()
        self._log.open()
        self._task = asyncio.create_task(self._work())
        return self._facts("mirror")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        await self._mirror.stop()
        if self._failure is not None:
            raise self._failure

    def _facts(self, role: str) -> Mapping[str, str]:
        broker, master = self._mirror.broker, self._mirror.master
        return {
            "broker": joined(broker.address),
            "role": role,
            **({"master": master.address} if master is not None and role == "mirror" else {}),
            **({} if broker.meters is None else metrics_fact(broker.meters.address)),
            "store": str(self._mirror.root),
            **self._log.fact,
        }

    async def _work(self) -> None:
        """Show progress until the copy is near the end of the log, then take over if wanted."""
        try:
            if not self._plan.is_master_lost:
                await self._show_progress()
            if self._plan.takes_over:
                await self._take_over()
        except OrbitlogError as error:
            self._failure = error
            signal.raise_signal(signal.SIGTERM)

    async def _take_over(self) -> None:
        work = TakeOver(self._mirror, self._report)
        if self._plan.is_master_lost:
            await work.run_after_loss()
        else:
            await work.run(self._plan.stop_timeout_s)
        print_ready(self._facts("master"), self._plan.as_json)

    async def _show_progress(self) -> None:
        while True:
            try:
                progress = await self._mirror.progress()
            except RemotingError:
                progress = None  # the search for the master logs the reason
            if progress is not None:
                self._print_progress(progress)
                if progress.is_near:
                    return
            await asyncio.sleep(_PROGRESS_S)

    def _print_progress(self, progress: MirrorProgress) -> None:
        if self._plan.as_json:
            fields = {"copiedTo": progress.copied_to, "masterEnd": progress.master_end}
            self._print_event("caught-up" if progress.is_near else "progress", **fields)
        elif progress.is_near:
            self._report("caught-up", f"the copy follows the master at offset {progress.copied_to}")
        else:
            self._report("progress", f"copied {progress.copied_to >> 20} of {progress.master_end >> 20} MiB")

    def _report(self, event: str, sentence: str) -> None:
        if self._plan.as_json:
            self._print_event(event, message=sentence)
        else:
            click.echo(f"orbitlog: {sentence}", err=True)

    def _print_event(self, event: str, **fields: object) -> None:
        click.echo(json.dumps({"event": event, **fields}, separators=(",", ":")))


@click.command(
    "mirror",
    help="""Follow the master BROKER of a cluster, Apache's or Orbitlog's, and serve the copy for reading.

    NAMESRV is the address of a name server (HOST:PORT, several separated by semicolons). The mirror gets the whole log,
    with a lag of about 100 ms. It is not registered and acknowledges nothing: clients and sends of the master do not
    notice it. Queries, `orbitlog pipeline` and `orbitlog doctor check` work on the copy.

    With --take-over it becomes the master: the old one refuses sends, the rest is copied, you stop the old master, and
    clients find the new one through the name server.""",
)
@click.argument("name_servers", metavar="NAMESRV")
@click.argument("broker_name", metavar="BROKER")
@click.option(
    "--store",
    "root",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory of the copy, created if missing.",
)
@click.option("--host", help="Listen address (bindAddress) [127.0.0.1].")
@click.option("--port", type=click.IntRange(0, 65535), help="Listen port (listenPort), 0 for any free port [10911].")
@click.option("--take-over", "takes_over", is_flag=True, help="Become the master of BROKER when everything is copied.")
@click.option(
    "--master-lost",
    "is_master_lost",
    is_flag=True,
    help="With --take-over: serve the copy as it is, because the master does not return; what it lacks is lost.",
)
@click.option(
    "--stop-timeout",
    "stop_timeout_s",
    type=click.FloatRange(1, 86_400),
    default=_STOP_TIMEOUT_S,
    show_default=True,
    help="With --take-over: seconds to wait until the master is stopped; then it accepts sends as before.",
)
@metrics_port_option
@config_option
@set_option
@log_format_option
@log_to_option
@json_option
def command(
    *,
    name_servers: str,
    broker_name: str,
    root: Path,
    host: str | None,
    port: int | None,
    takes_over: bool,
    is_master_lost: bool,
    stop_timeout_s: float,
    metrics_port: int | None,
    config_path: Path | None,
    assignments: tuple[str, ...],
    log_format: str | None,
    log_to: str | None,
    as_json: bool,
) -> None:
    if is_master_lost and not takes_over:
        raise click.UsageError("--master-lost needs --take-over")
    root = root.expanduser()
    target = MirrorTarget(_name_servers(name_servers), broker_name)
    given = {
        keys.STORE_ROOT.key: str(root),
        keys.BIND_ADDRESS.key: host,
        keys.LISTEN_PORT.key: None if port is None else str(port),
        **metrics_texts(metrics_port),
        **log_texts(log_format, log_to),
        **target.texts,
    }
    settings = _with_sync(read_broker_settings(config_path, assignments, given))
    server_log = ServerLog(root / "logs", "mirror", settings[LOG_FORMAT], settings[LOG_TO])
    log_settings(settings)
    plan = _Plan(takes_over, is_master_lost, stop_timeout_s, as_json)

    def make() -> _Mirrored:
        return _Mirrored(Mirror(settings, root, target, progress=RecoveryProgress()), plan, server_log)

    serve(make, as_json=as_json)


def _name_servers(text: str) -> tuple[str, ...]:
    try:
        addresses = keys.parse_name_servers(text)
    except ValueError as error:
        raise WrongUse(f"NAMESRV {error}") from error
    if not addresses:
        raise WrongUse("NAMESRV is empty; give HOST:PORT of a name server")
    return addresses


def _with_sync(settings: BrokerSettings) -> BrokerSettings:
    """Copy tables each second unless the operator chose another period."""
    if ha_keys.TABLE_SYNC_MS.key in settings.texts:
        return settings
    return settings.with_texts({ha_keys.TABLE_SYNC_MS.key: _TABLE_SYNC_MS})
