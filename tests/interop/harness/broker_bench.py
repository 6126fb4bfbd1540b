"""Broker bench: one Java process that runs many Apache brokers at once, each over its own store.

Closing a broker takes up to half a minute of waiting, so `close_all` closes all of them at once. `snapshot` stops the
whole process, copies a store and continues: the copy is what `kill -9` at that moment leaves behind.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.interop.harness.clients import Client
from tests.interop.harness.cluster import STEADY, TOP_LOGGER, Ports
from tests.interop.harness.drivers import Driver
from tests.interop.harness.packages import ApachePackages
from tests.interop.harness.processes import java_command
from tests.interop.harness.systems import System

OPEN_SECONDS_MAX = 180.0
_HOST = "127.0.0.1"
_LOGBACK = f"""<configuration>
  <appender name="err" class="ch.qos.logback.core.ConsoleAppender">
    <target>System.err</target><encoder><pattern>%d %-5level %logger - %msg%n</pattern></encoder>
  </appender>
  <{TOP_LOGGER} level="WARN"><appender-ref ref="err"/></{TOP_LOGGER}>
</configuration>
"""


class BenchBroker(System):
    """One broker of the process; starting and stopping is up to its bench."""

    def __init__(self, bench: BrokerBench, name: str, store: Path, settings: Mapping[str, object]) -> None:
        super().__init__(bench.directory / name, store, settings)
        self.kind = f"apache-{bench.packages.version}"
        self.broker_name = self.cluster_name = name
        self.bench = bench
        self.port = 0

    @property
    def name_server_address(self) -> str:
        return f"{_HOST}:{self.bench.name_server_port}"

    @property
    def broker_address(self) -> str:
        return f"{_HOST}:{self.port}"

    def start(self) -> None:
        self.port = Ports.find().broker
        given = {
            **STEADY,
            "brokerName": self.broker_name,
            "brokerClusterName": self.cluster_name,
            "listenPort": self.port,
            "bindAddress": _HOST,
            "namesrvAddr": self.name_server_address,
            "storePathRootDir": self.store,
            "storePathCommitLog": self.store / "commitlog",
            "maxMessageSize": 1 << 17,  # every thread that writes keeps a buffer of this size
            **self.settings,
        }
        conf = self.directory / "broker.conf"
        conf.write_text("".join(f"{key}={value}\n" for key, value in given.items()))
        self.bench.driver.call("openBroker", seconds_max=OPEN_SECONDS_MAX, name=self.broker_name, conf=conf)

    def stop_broker(self) -> None:
        self.bench.driver.call("closeBroker", seconds_max=OPEN_SECONDS_MAX, name=self.broker_name)

    def kill_broker(self) -> None:
        raise NotImplementedError("take a snapshot instead")

    def stop(self) -> None:
        self.stop_broker()

    def kill(self) -> None:
        raise NotImplementedError("take a snapshot instead")

    def snapshot(self, to: Path) -> Path:
        """Copy the store as `kill -9` would leave it now."""
        with self.bench.driver.suspended():
            return copy_store(self.store, to)


class BenchClient(Client):
    """Commands at one of the brokers."""

    def topic(self, name: str, *, queues: int = 4, **words: object) -> str:
        topic = super().topic(name, queues=queues, **words)
        self.wait_for_route(topic)
        return topic

    def wait_for_route(self, topic: str) -> None:
        """Let the broker register at once: it would wait ten seconds."""
        self.driver.call("brokerQueue", name=self.system.broker_name, topic=topic, queueId=0)


@dataclass
class BrokerBench:
    """The process, with a name server for all brokers in it."""

    packages: ApachePackages
    directory: Path
    name_server_port: int = 0
    driver: Driver = field(init=False)
    _open: list[BenchBroker] = field(default_factory=list)

    def __post_init__(self) -> None:
        home = self.directory / "home"
        # The admin tool of 4.9 wants its file at this place.
        logback = home / "conf" / "logback_tools.xml"
        logback.parent.mkdir(parents=True, exist_ok=True)
        logback.write_text(_LOGBACK)
        options = [f"-D{name}={logback}" for name in ("rmq.logback.configurationFile", "logback.configurationFile")]
        options += ["-XX:MaxDirectMemorySize=4g", "-Xmx1g", "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.98"]
        options.append("-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.97")
        command = [*java_command(self.packages, home, options=options), "ClientShell"]
        self.driver = Driver(f"bench-{self.packages.version}", command, self.directory / "bench.log", os.environ)
        self.name_server_port = Ports.find().name_server
        self.driver.call("nameServerInside", port=self.name_server_port)

    def open(self, name: str, store: Path, settings: Mapping[str, object]) -> BenchBroker:
        """Start a broker over a store; the name serves once per bench."""
        broker = BenchBroker(self, f"{name}-{len(self._open)}", store, settings)
        broker.start()
        self._open.append(broker)
        return broker

    def client(self, broker: BenchBroker) -> Client:
        return BenchClient(self.driver, broker)

    def close_all(self) -> None:
        """Close all brokers at once, and wait for each."""
        closing = [self.driver.begin("closeBroker", name=broker.broker_name) for broker in self._open]
        self._open.clear()
        for is_closed in closing:
            is_closed(OPEN_SECONDS_MAX)

    def end(self) -> None:
        self.driver.close()


def copy_store(store: Path, to: Path) -> Path:
    """Copy a store with its times; what was never written takes no space in the copy."""
    for path in sorted(store.rglob("*")):
        place = to / path.relative_to(store)
        if path.is_dir():
            place.mkdir(parents=True, exist_ok=True)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            _copy_sparse(path, place)
    to.mkdir(parents=True, exist_ok=True)
    return to


def _copy_sparse(source: Path, target: Path) -> None:
    size_bytes = source.stat().st_size
    with source.open("rb") as read, target.open("wb") as written:
        position = 0
        while position < size_bytes:
            try:
                start = os.lseek(read.fileno(), position, os.SEEK_DATA)
            except OSError:  # nothing but a hole follows
                break
            position = os.lseek(read.fileno(), start, os.SEEK_HOLE)
            os.lseek(read.fileno(), start, os.SEEK_SET)
            written.seek(start)
            left = position - start
            while left:
                chunk = os.read(read.fileno(), min(left, 1 << 20))
                if not chunk:
                    break
                left -= len(chunk)
                written.write(chunk) if chunk.strip(b"\0") else written.seek(len(chunk), os.SEEK_CUR)
        written.truncate(size_bytes)
    shutil.copystat(source, target)
