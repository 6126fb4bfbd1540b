"""`orbitlog up`: runs a name server and a broker in one process, or several broker processes, in the foreground."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from string import ascii_lowercase
from typing import TYPE_CHECKING

import click

from orbitlog.access.access_settings import ACL_ENABLE, AUTHENTICATION, INNER_CREDENTIALS, USER_FILE
from orbitlog.broker.runtime import broker_settings as keys
from orbitlog.broker.runtime.broker_access import load_access
from orbitlog.broker.runtime.broker_opening import open_broker_store
from orbitlog.broker.runtime.broker_settings import BrokerSettings
from orbitlog.broker.runtime.replication_settings import COORDINATOR
from orbitlog.cli.light_dataclasses import compile_dataclass_methods_lazily
from orbitlog.cli.main import WrongUse
from orbitlog.cli.serve.serving import (
    RecoveryProgress,
    Served,
    ServerLog,
    config_option,
    console_option,
    console_port_option,
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
from orbitlog.errors import OrbitlogError
from orbitlog.formats import store_tree as tree
from orbitlog.nameserver.name_server import NameServer
from orbitlog.nameserver.nameserver_settings import NameServerSettings
from orbitlog.observe.metrics_settings import DISABLE, EXPORTER, LOG_FORMAT, LOG_TO, PROM_PORT
from orbitlog.settings.listen_exposure import AnonymousAccess, reachable_host
from orbitlog.settings.store_settings import COMMITLOG_PATHS
from orbitlog.settings.tls_settings import TLS_SETTINGS
from orbitlog.storefiles.store_paths import StorePaths

if TYPE_CHECKING:
    from orbitlog.access.access_control import AccessControl
    from orbitlog.broker.runtime.broker_node import Broker
    from orbitlog.cli.serve.broker_processes import BrokerInstance, BrokerProcesses
    from orbitlog.cli.serve.etcd_process import EtcdProcess
    from orbitlog.nameserver.nameserver_metrics import RequestCounts

BROKERS_MAX = len(ascii_lowercase)  # each has a letter as suffix
NAME_SERVER_PORT = 9876
_PORT_MAX = 65535
_KV_CONFIG = "kvConfig.json"
REPLICAS_MAX = 9
_OWN_ETCD = "etcd"


class _Up:
    """A name server and a broker in this process; the broker registers over the network like any other."""

    def __init__(self, settings: BrokerSettings, root: Path, name_server_port: int, server_log: ServerLog) -> None:
        self._settings = settings
        self._root = root
        self._log = server_log
        self._access = load_access(settings, root)
        if self._access is not None:
            self._access.create_inner_account()  # the broker registers with the name server of this process
        self._counts = _request_counts(settings)
        self._name_server = _name_server(settings, root, name_server_port, self._access, self._counts)
        self._running = AsyncExitStack()

    async def start(self) -> Mapping[str, str]:
        host, own = await _start_name_server(self._name_server, self._running)
        others = self._settings[keys.NAME_SERVERS]
        settings = self._settings.with_texts({keys.NAME_SERVERS.key: ";".join((own, *others))})
        broker = await self._open_broker(settings)
        self._log.open()
        self._running.push_async_callback(broker.stop)
        await broker.start()
        if self._settings[keys.DISPATCH_ENGINE] == "spark":
            from orbitlog.cli.serve.dispatch_process import DispatchProcess

            spark = DispatchProcess(broker, self._root, self._root / "logs" / "dispatch.log")
            self._running.push_async_callback(spark.stop)
            await spark.start()
        if not self._settings[keys.ADVERTISED_ADDRESS] and host != reachable_host(host):
            self._name_server.own_broker_addresses = (joined((reachable_host(host), broker.address[1])),)
        return {
            "name-server": own,
            "broker": joined((reachable_host(host), broker.address[1])),
            **self._metrics(broker),
            "store": str(self._root),
            **self._log.fact,
        }

    def _metrics(self, broker: Broker) -> dict[str, str]:
        """Return the field of the ready line about metrics; those of the name server are on the same page."""
        if broker.meters is None or self._counts is None:
            return {}
        broker.meters.exposition.readers.append(self._counts.reader(self._name_server))
        address = broker.meters.address
        return metrics_fact(None if address is None else (reachable_host(address[0]), address[1]))

    async def _open_broker(self, settings: BrokerSettings) -> Broker:
        """Open the store in a thread, which waits for the disk, while the broker's modules are imported."""
        open_it = partial(open_broker_store, settings, self._root, progress=RecoveryProgress())
        with ThreadPoolExecutor(1, "orbitlog-open") as thread:
            opening = asyncio.get_running_loop().run_in_executor(thread, open_it)
            with compile_dataclass_methods_lazily():
                from orbitlog.broker.runtime.broker_node import Broker

            conditions = self._name_server.conditions
            return Broker(settings, self._root, opened=await opening, access=self._access, conditions=conditions)

    async def stop(self) -> None:
        await self._running.aclose()


class _UpTogether:
    """A name server in this process, and broker processes that register with it."""

    def __init__(
        self,
        settings: BrokerSettings,
        root: Path,
        name_server_port: int,
        instances: list[BrokerInstance],
        words: list[str],
        *,
        server_log: ServerLog,
        etcd: EtcdProcess | None = None,
    ) -> None:
        self._settings = settings
        self._log = server_log
        self._instances = instances
        self._words = words
        self._etcd = etcd
        self._name_server = _name_server(settings, root, name_server_port, load_access(settings, root))
        self._running = AsyncExitStack()
        self._brokers: BrokerProcesses | None = None

    async def start(self) -> Sequence[Mapping[str, str]]:
        from orbitlog.cli.serve.broker_processes import BrokerProcesses

        host, own = await _start_name_server(self._name_server, self._running)
        words = [*self._words, "-n", ";".join((own, *self._settings[keys.NAME_SERVERS]))]
        if self._etcd is not None:
            self._running.push_async_callback(self._etcd.stop)
            await self._etcd.start()
            words += ["--set", f"{COORDINATOR.key}=etcd:{self._etcd.endpoint}"]
        self._brokers = BrokerProcesses(self._instances, words)
        self._running.push_async_callback(self._brokers.stop)
        ready = await self._brokers.start()
        self._log.open()
        facts = []
        for fields in ready:
            address = joined((reachable_host(host), int(fields["broker"].rpartition(":")[2])))
            facts.append({"name-server": own, **fields, "broker": address})
        if not self._settings[keys.ADVERTISED_ADDRESS] and host != reachable_host(host):
            self._name_server.own_broker_addresses = tuple(fields["broker"] for fields in facts)
        return facts

    async def stop(self) -> None:
        await self._running.aclose()
        if self._brokers is not None and len(self._brokers.ended) == len(self._instances):
            raise OrbitlogError("all brokers have ended unexpectedly; see their logs")


def _request_counts(settings: BrokerSettings) -> RequestCounts | None:
    """Return the counters of the name server's requests, if metrics are on."""
    if settings[EXPORTER] == DISABLE:
        return None
    from orbitlog.nameserver.nameserver_metrics import RequestCounts

    return RequestCounts()


def _name_server(
    settings: BrokerSettings,
    root: Path,
    port: int,
    access: AccessControl | None,
    counts: RequestCounts | None = None,
) -> NameServer:
    """Return the name server of this command; it checks requests as its brokers do."""
    return NameServer(
        NameServerSettings(
            bind_address=settings[keys.BIND_ADDRESS],
            listen_port=port,
            allow_anonymous=settings[keys.ALLOW_ANONYMOUS] is AnonymousAccess.ALL,
            kv_config_path=root / "config" / _KV_CONFIG,
            tls={key: text for key, text in settings.texts.items() if key in TLS_SETTINGS},
        ),
        access=access,
        counted=None if counts is None else counts.counted,
    )


async def _start_name_server(name_server: NameServer, running: AsyncExitStack) -> tuple[str, str]:
    """Start the name server, to be stopped last; return its host, and the address for processes of this machine."""
    await name_server.start()
    running.push_async_callback(name_server.stop)
    host, port = name_server.address
    return host, joined((reachable_host(host), port))


@click.command(
    "up",
    help="""Run a name server and a broker in one process until interrupted.

    Prints one line when clients can connect. Broker settings are those of Java's broker.conf. They come from a file,
    from the environment (ORBITLOG_SET_brokerName=...) and from --set; later ones override earlier ones.""",
)
@click.option(
    "--store",
    "root",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory of the store, created if missing [~/.local/share/orbitlog/store].",
)
@click.option("--host", help="Listen address; 0.0.0.0 for all interfaces [127.0.0.1].")
@click.option(
    "--name-server-port",
    type=click.IntRange(0, 65535),
    default=NAME_SERVER_PORT,
    show_default=True,
    help="Port of the name server, 0 for any free port.",
)
@click.option("--broker-port", type=click.IntRange(0, 65535), help="Port of the broker, 0 for any free port [10911].")
@click.option(
    "--dispatch",
    type=click.Choice(("inline", "spark")),
    help="Builder of queues and index: the broker, or Spark, started with it (dispatchEngine) [inline].",
)
@click.option(
    "--brokers",
    "broker_count",
    type=click.IntRange(1, BROKERS_MAX),
    default=1,
    show_default=True,
    help="Run N brokers as one cluster, one process each; stores go below --store, ports are 10 apart.",
)
@click.option(
    "--replicas",
    "replica_count",
    type=click.IntRange(1, REPLICAS_MAX),
    default=1,
    show_default=True,
    help="Run N brokers as one replica group with automatic failover, one process each; needs --coordinator.",
)
@click.option(
    "--coordinator",
    metavar="etcd|etcd:URL,...",
    help="Coordinator of --replicas: etcd, started with this command, or the endpoints of a running one.",
)
@metrics_port_option
@console_port_option
@console_option
@config_option
@set_option
@log_format_option
@log_to_option
@print_settings_option
@json_option
def command(
    *,
    root: Path | None,
    broker_count: int,
    replica_count: int,
    coordinator: str | None,
    host: str | None,
    name_server_port: int,
    broker_port: int | None,
    dispatch: str | None,
    metrics_port: int | None,
    console_port: int | None,
    config_path: Path | None,
    assignments: tuple[str, ...],
    log_format: str | None,
    log_to: str | None,
    print_settings: bool,
    as_json: bool,
) -> None:
    given = {
        keys.STORE_ROOT.key: None if root is None else str(root.expanduser().absolute()),
        keys.BIND_ADDRESS.key: host,
        keys.LISTEN_PORT.key: None if broker_port is None else str(broker_port),
        keys.DISPATCH_ENGINE.key: dispatch,
        **metrics_texts(metrics_port),
        **log_texts(log_format, log_to),
    }
    settings = read_broker_settings(config_path, assignments, given)
    if print_settings:
        show_settings(settings)
        return
    root = store_of(settings, config_path)
    etcd = None
    if replica_count > 1 or coordinator is not None:
        instances, etcd = _replicas(replica_count, broker_count, coordinator, settings, root)
    else:
        instances = _instances(broker_count, settings, root) if broker_count > 1 else []
    server_log = ServerLog(root / "logs", "up", settings[LOG_FORMAT], settings[LOG_TO])
    log_settings(settings)
    if instances:
        words = _broker_options(settings, config_path, assignments)
        words += ["--log-format", settings[LOG_FORMAT], "--log-to", settings[LOG_TO]]
        if coordinator not in (None, _OWN_ETCD):
            words += ["--set", f"{COORDINATOR.key}={coordinator}"]
        serve(
            lambda: _with_console(
                _UpTogether(settings, root, name_server_port, instances, words, server_log=server_log, etcd=etcd),
                console_port,
            ),
            as_json=as_json,
        )
    else:
        serve(lambda: _with_console(_Up(settings, root, name_server_port, server_log), console_port), as_json=as_json)


def _with_console(served: Served, console_port: int | None) -> Served:
    """Return the servers with a console next to them; without the option nothing more is imported."""
    if console_port is None:
        return served
    from orbitlog.cli.serve.console_process import WithConsole

    return WithConsole(served, console_port)


def _replicas(
    count: int, broker_count: int, coordinator: str | None, settings: BrokerSettings, root: Path
) -> tuple[list[BrokerInstance], EtcdProcess | None]:
    """Return the members of a replica group, and the etcd to start for them; None for a running one."""
    from orbitlog.cli.serve.broker_processes import plan_replicas

    if count < 2 or broker_count > 1:
        raise click.UsageError("--coordinator needs --replicas 2 or more, and no --brokers")
    if coordinator is None:
        raise click.UsageError("--replicas needs --coordinator etcd, or the endpoints of a running one")
    if (root / tree.COMMITLOG).exists() or StorePaths.of(root, settings.store).is_configured:
        raise click.UsageError(f"{root} is the store of one broker; give --replicas another directory")
    if settings[keys.DISPATCH_ENGINE] != "inline":
        raise WrongUse("--replicas needs inline dispatch; start each with `orbitlog broker` instead")
    if settings[AUTHENTICATION] or settings[ACL_ENABLE]:
        raise WrongUse("--replicas with access control is not supported; start each with `orbitlog broker`")
    metrics_port = None if settings[EXPORTER] == DISABLE else settings[PROM_PORT]
    instances = plan_replicas(count, settings[keys.BROKER_NAME], root, settings[keys.LISTEN_PORT], metrics_port)
    if instances[-1].port > _PORT_MAX:
        raise click.UsageError(f"the last replica would have port {instances[-1].port}; choose a lower --broker-port")
    if coordinator != _OWN_ETCD:
        COORDINATOR.check(coordinator, "--coordinator")
        return instances, None
    from orbitlog.cli.serve.etcd_process import EtcdProcess, find_etcd

    return instances, EtcdProcess(find_etcd(), root / "etcd")


def _instances(count: int, settings: BrokerSettings, root: Path) -> list[BrokerInstance]:
    from orbitlog.cli.serve.broker_processes import plan_brokers

    if settings[keys.DISPATCH_ENGINE] != "inline":
        raise WrongUse("--brokers needs inline dispatch; start each broker with `orbitlog broker` instead")
    if StorePaths.of(root, settings.store).is_configured:
        raise WrongUse(
            f"with {COMMITLOG_PATHS.key}, all --brokers would share one CommitLog; start each broker with"
            " `orbitlog broker` and its own directories"
        )
    if (root / tree.COMMITLOG).exists():
        raise click.UsageError(f"{root} is the store of one broker; give --brokers another directory")
    if settings[AUTHENTICATION] and not settings[USER_FILE]:
        raise click.UsageError(
            "--brokers with authenticationEnabled=true needs accessFile, the file with the users of all brokers"
        )
    if (settings[AUTHENTICATION] or settings[ACL_ENABLE]) and settings[INNER_CREDENTIALS] is None:
        raise click.UsageError(
            "--brokers with access control needs innerClientAuthenticationCredentials: brokers register with them"
        )
    metrics_port = None if settings[EXPORTER] == DISABLE else settings[PROM_PORT]
    instances = plan_brokers(count, settings[keys.BROKER_NAME], root, settings[keys.LISTEN_PORT], metrics_port)
    if instances[-1].port > _PORT_MAX:
        raise click.UsageError(
            f"{instances[-1].name} would have port {instances[-1].port}; choose a lower --broker-port"
        )
    return instances


def _broker_options(settings: BrokerSettings, config_path: Path | None, assignments: Iterable[str]) -> list[str]:
    """Return the options that each broker process gets: the settings of this command line."""
    words = ["--host", settings[keys.BIND_ADDRESS]]
    if config_path is not None:
        words += ["-c", str(config_path)]
    for assignment in assignments:
        words += ["--set", assignment]
    return words
