"""`orbitlog broker`: runs one broker, registered with name servers of other processes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orbitlog.broker.runtime import broker_settings as keys
from orbitlog.broker.runtime.broker_node import Broker
from orbitlog.broker.runtime.broker_settings import BrokerSettings
from orbitlog.broker.runtime.replication_settings import CONTROLLER_MODE
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
    print_settings_option,
    read_broker_settings,
    serve,
    set_option,
    show_settings,
    store_of,
)
from orbitlog.observe.metrics_settings import LOG_FORMAT, LOG_TO

if TYPE_CHECKING:
    from orbitlog.broker.replicas.replica_node import ReplicaNode


class _ServedBroker:
    def __init__(self, settings: BrokerSettings, root: Path, server_log: ServerLog) -> None:
        self._root = root
        self._log = server_log
        self._broker = _make_broker(settings, root, RecoveryProgress())
        server_log.open()

    async def start(self) -> Mapping[str, str]:
        await self._broker.start()
        meters = self._broker.meters
        return {
            "broker": joined(self._broker.address),
            **({} if meters is None else metrics_fact(meters.address)),
            "store": str(self._root),
            **self._log.fact,
        }

    async def stop(self) -> None:
        await self._broker.stop()


def _make_broker(settings: BrokerSettings, root: Path, progress: RecoveryProgress) -> Broker | ReplicaNode:
    """Return a broker, or the member of a replica group that runs one."""
    if not settings.is_group_member:
        return Broker(settings, root, progress=progress)
    if settings[CONTROLLER_MODE]:
        from orbitlog.broker.replicas.controlled_node import ControlledNode

        return ControlledNode(settings, root, progress=progress)
    from orbitlog.broker.replicas.replica_node import ReplicaNode

    return ReplicaNode(settings, root, progress=progress)


@click.command(
    "broker",
    help="""Run a broker: serve a store to clients and register with name servers.

    Settings are those of Java's broker.conf. They come from a file, from the environment (ORBITLOG_SET_brokerName=...)
    and from --set; later ones override earlier ones.""",
)
@click.option("-n", "--name-servers", metavar="HOST:PORT;...", help="Name servers to register with (namesrvAddr).")
@config_option
@click.option(
    "--store",
    "root",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory of the store (storePathRootDir).",
)
@click.option("--host", help="Listen address (bindAddress) [127.0.0.1].")
@click.option("--port", type=click.IntRange(0, 65535), help="Listen port (listenPort), 0 for any free port [10911].")
@metrics_port_option
@set_option
@log_format_option
@log_to_option
@print_settings_option
@json_option
def command(
    *,
    name_servers: str | None,
    config_path: Path | None,
    root: Path | None,
    host: str | None,
    port: int | None,
    metrics_port: int | None,
    assignments: tuple[str, ...],
    log_format: str | None,
    log_to: str | None,
    print_settings: bool,
    as_json: bool,
) -> None:
    given = {
        keys.NAME_SERVERS.key: name_servers,
        keys.STORE_ROOT.key: None if root is None else str(root.expanduser().absolute()),
        keys.BIND_ADDRESS.key: host,
        keys.LISTEN_PORT.key: None if port is None else str(port),
        **metrics_texts(metrics_port),
        **log_texts(log_format, log_to),
    }
    settings = read_broker_settings(config_path, assignments, given)
    if print_settings:
        show_settings(settings)
        return
    root = store_of(settings, config_path)
    server_log = ServerLog(root / "logs", "broker", settings[LOG_FORMAT], settings[LOG_TO])
    log_settings(settings)
    serve(lambda: _ServedBroker(settings, root, server_log), as_json=as_json)
