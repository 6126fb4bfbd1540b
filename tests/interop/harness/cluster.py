"""A name server and a broker of Apache RocketMQ on loopback, over a store directory of the caller's."""

from __future__ import annotations

import json
import random
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.interop.harness.packages import ApachePackages
from tests.interop.harness.processes import JsonObject, ServerProcess, java_command, run_program, running_program

BROKER_NAME = "interop-broker"
CLUSTER_NAME = "InteropCluster"
NAME_SERVER_SECONDS_MAX = 60
BROKER_SECONDS_MAX = 120

_GET_BROKER_CLUSTER_INFO = 106
_PORT_TRIES = 50
_HOST = "127.0.0.1"

# Small machines and full disks must not change what a broker does.
STEADY = {
    "brokerClusterName": CLUSTER_NAME,
    "brokerName": BROKER_NAME,
    "brokerId": "0",
    "brokerIP1": _HOST,
    "diskMaxUsedSpaceRatio": "95",
    "waitTimeMillsInSendQueue": "10000",
    "osPageCacheBusyTimeOutMills": "10000",
    "transactionCheckInterval": "3600000",
}
_DISK_OPTIONS = (
    "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.98",
    "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.97",
)
TOP_LOGGER = "root"
_LOGBACK = f"""<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d %-5level %logger - %msg%n</pattern></encoder>
  </appender>
  <{TOP_LOGGER} level="WARN"><appender-ref ref="out"/></{TOP_LOGGER}>
</configuration>
"""


@dataclass(frozen=True)
class Ports:
    """Ports that were free just before."""

    name_server: int
    broker: int

    @classmethod
    def find(cls) -> Ports:
        """Look below the range from which systems take the ports of outgoing connections: those come and go."""
        for _ in range(_PORT_TRIES):
            broker = random.randrange(12_000, 30_000)
            # A broker also takes the port two below (for clients that ask for it) and the one above (replication).
            if all(map(_is_free, (broker - 2, broker, broker + 1, broker + 2))):
                return cls(name_server=broker + 2, broker=broker)
        raise OSError(f"no free ports after {_PORT_TRIES} tries")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


@dataclass
class Cluster:
    """A running name server and broker, and the programs to talk to them."""

    packages: ApachePackages
    directory: Path
    ports: Ports
    name_server: ServerProcess
    broker: ServerProcess
    _client_command: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self._client_command = java_command(self.packages, self.directory / "client")

    @property
    def name_server_address(self) -> str:
        return f"{_HOST}:{self.ports.name_server}"

    @property
    def broker_address(self) -> str:
        return f"{_HOST}:{self.ports.broker}"

    def read(self, requests: Sequence[Sequence[object]]) -> list[JsonObject]:
        """Ask `ReadStore`; each request is a sequence of words, such as `("queue", "Orders", 0)`."""
        lines = "".join("\t".join(map(str, request)) + "\n" for request in requests)
        return run_program(self._client_command, "ReadStore", [self.name_server_address, BROKER_NAME], lines)

    def send(self, prefix: str, *words: str) -> list[JsonObject]:
        """Let `SendSome` send, and return what was acknowledged."""
        return run_program(self._client_command, "SendSome", self._send_arguments(prefix, words))

    def send_until_killed(self, prefix: str, acknowledgements: int) -> list[JsonObject]:
        """Kill the broker amid sends, after N acknowledgements; return all of them."""
        arguments = self._send_arguments(prefix, ("burst",))
        seen: list[JsonObject] = []
        with running_program(self._client_command, "SendSome", arguments) as answers:
            for answer in answers:
                seen.append(answer)
                if len(seen) == acknowledgements:
                    self.broker.kill()
        assert len(seen) >= acknowledgements and not self.broker.is_running, seen[-1:]
        return [answer for answer in seen if answer["answer"] == "sent"]

    def _send_arguments(self, prefix: str, words: Sequence[str]) -> list[str]:
        return [self.name_server_address, self.broker_address, prefix, *words]

    def stop(self) -> None:
        """End the broker cleanly, then the name server."""
        self.broker.stop()
        self.name_server.stop()


@contextmanager
def running_cluster(
    packages: ApachePackages,
    directory: Path,
    store: Path,
    settings: Mapping[str, object],
    *,
    ports: Ports | None = None,
) -> Iterator[Cluster]:
    """Start both servers; when the block ends they are stopped cleanly, or killed if it failed.

    `directory` takes logs and configuration; `store` may hold a store already. `settings` are keys of broker.conf.
    """
    ports = ports or Ports.find()
    command = server_command(packages, directory)
    name_server: ServerProcess | None = None
    broker: ServerProcess | None = None
    try:
        name_server = start_name_server(command, directory, ports.name_server)
        broker = start_broker(command, directory, ports, store, settings)
        cluster = Cluster(packages, directory, ports, name_server, broker)
        yield cluster
        cluster.stop()
    finally:
        for server in (broker, name_server):
            if server is not None and server.is_running:
                server.kill()


def server_command(packages: ApachePackages, directory: Path) -> list[str]:
    """The beginning of a server's command line; what it writes beside its store goes below `directory`."""
    home = directory / "home"
    _write_logback(home)
    options = [*_DISK_OPTIONS, f"-Drmq.logback.configurationFile={home / 'conf' / 'logback_broker.xml'}"]
    return [*java_command(packages, home, options=options), "GuardedMain"]


def _write_logback(home: Path) -> None:
    conf = home / "conf"
    conf.mkdir(parents=True, exist_ok=True)
    for name in ("namesrv", "broker"):
        (conf / f"logback_{name}.xml").write_text(_LOGBACK)


def start_name_server(command: Sequence[str], directory: Path, port: int) -> ServerProcess:
    """Start a name server and wait until it answers."""
    conf = directory / "namesrv.conf"
    conf.write_text(f"listenPort={port}\nbindAddress={_HOST}\n")
    whole = [*command, "org.apache.rocketmq.namesrv.NamesrvStartup", "-c", str(conf)]
    server = ServerProcess("name server", whole, directory / "namesrv.log")
    server.wait_until(lambda: broker_table(port) is not None, NAME_SERVER_SECONDS_MAX)
    return server


def start_broker(
    command: Sequence[str], directory: Path, ports: Ports, store: Path, settings: Mapping[str, object]
) -> ServerProcess:
    """Start a broker and wait until the name server at `ports` knows it."""
    given = {
        **STEADY,
        "listenPort": ports.broker,
        "namesrvAddr": f"{_HOST}:{ports.name_server}",
        "bindAddress": _HOST,
        "storePathRootDir": store,
        "storePathCommitLog": store / "commitlog",
        **settings,
    }
    conf = directory / "broker.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in given.items()))
    whole = [*command, "org.apache.rocketmq.broker.BrokerStartup", "-c", str(conf)]
    server = ServerProcess("broker", whole, directory / "broker.log")
    # A broker registers when everything else is done: recovery, its own port.
    server.wait_until(lambda: given["brokerName"] in (broker_table(ports.name_server) or {}), BROKER_SECONDS_MAX)
    return server


def broker_table(port: int) -> JsonObject | None:
    """Ask a name server which brokers it knows; None if it does not answer yet."""
    header = json.dumps(
        {"code": _GET_BROKER_CLUSTER_INFO, "language": "OTHER", "version": 0, "opaque": 1, "flag": 0}
    ).encode()
    try:
        with socket.create_connection((_HOST, port), timeout=5) as connection:
            connection.sendall(struct.pack(">ii", 4 + len(header), len(header)) + header)
            with connection.makefile("rb") as answer:
                (total_bytes,) = struct.unpack(">i", answer.read(4))
                content = answer.read(total_bytes)
    except (OSError, struct.error):
        return None
    header_bytes = struct.unpack_from(">i", content)[0] & 0xFFFFFF
    body = content[4 + header_bytes :]
    # Keys that are numbers are not quoted, which json refuses; only names are asked for here.
    names = [part.split(b'"')[1].decode() for part in body.split(b'"brokerName":')[1:]]
    return dict.fromkeys(names)
