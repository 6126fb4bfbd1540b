"""A master with slaves of Orbitlog or of Apache, each in a process of its own, for benchmarks of replication."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.broker_pairs import HOST, READY_SECONDS_MAX, VERSION, Broker, start_java
from benchmarks.measure import cpu_seconds
from orbitlog.remoting.client import RemotingClient
from orbitlog.wire.bodies.body_json import read_body
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command
from tests.interop.harness.cluster import Ports, broker_table
from tests.interop.harness.packages import apache_packages

NAME = "replicated"
ORBITLOG, APACHE = "orbitlog", "apache"
_SEGMENT_BYTES = 64 << 20

Settings = Mapping[str, object]


class ReplicaSet:
    """A name server, a master and its slaves of one kind. Start it, and stop it at the end."""

    def __init__(self, kind: str, directory: Path, settings: Settings, slaves: int) -> None:
        self.kind = kind
        self._directory = directory
        self._settings = {"brokerName": NAME, "mappedFileSizeCommitLog": _SEGMENT_BYTES, **settings}
        self.slave_ids = range(1, slaves + 1)
        self.name_server = ""
        self.addresses: dict[int, str] = {}
        self._processes: dict[object, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        self._directory.mkdir(parents=True)
        self.name_server = self._start_name_server()
        for broker_id in (0, *self.slave_ids):
            self.start_broker(broker_id)

    def start_broker(self, broker_id: int) -> None:
        """Start the master (0) or a slave; return when it answers."""
        role = {} if broker_id == 0 else {"brokerRole": "SLAVE", "brokerId": broker_id}
        starters: dict[str, Callable[[int, Settings], str]] = {ORBITLOG: self._orbitlog, APACHE: self._apache}
        self.addresses[broker_id] = starters[self.kind](broker_id, {**self._settings, **role})
        wait_until(lambda: self.log_end(broker_id) >= 0, f"{self.kind} broker {broker_id} answers")

    def stop_broker(self, broker_id: int) -> None:
        _end(self._processes.pop(broker_id))

    def stop(self) -> None:
        for process in reversed(self._processes.values()):
            _end(process)

    def as_broker(self) -> Broker:
        """Return the master, for the official client."""
        return Broker(self.kind, self.name_server, self.addresses[0], [self._processes[0]])

    def slave_cpu_seconds(self) -> float:
        return sum(cpu_seconds(self._processes[broker_id].pid) for broker_id in self.slave_ids)

    def log_end(self, broker_id: int) -> int:
        """Return the end of a broker's log; -1 if it does not answer."""
        try:
            answer = asyncio.run(ask(self.addresses[broker_id], RequestCode.GET_BROKER_RUNTIME_INFO))
        except (OSError, RuntimeError):
            return -1
        if answer.code != ResponseCode.SUCCESS or not answer.body:
            return -1  # a Java broker answers so while it starts
        body = read_body(answer.body)
        table = body.get("table") if isinstance(body, dict) else None
        return (
            int(str(table["commitLogMaxOffset"])) if isinstance(table, dict) and "commitLogMaxOffset" in table else -1
        )

    def wait_for_slaves(self) -> None:
        """Wait until every slave has the whole log."""
        for broker_id in self.slave_ids:
            wait_until(lambda number=broker_id: self.log_end(number) == self.log_end(0) > 0, "the slaves have the log")

    # Orbitlog

    def _orbitlog(self, broker_id: int, settings: Settings) -> str:
        words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        store = self._directory / f"broker-{broker_id}"
        ready = self._spawn(
            broker_id,
            "broker",
            "-n",
            self.name_server,
            "--store",
            str(store),
            "--port",
            str(self._port(broker_id)),
            *words,
        )
        return str(ready["broker"])

    def _port(self, broker_id: int) -> int:
        known = self.addresses.get(broker_id)
        return int(known.rpartition(":")[2]) if known else Ports.find().broker

    def _spawn(self, key: object, *words: str) -> dict[str, object]:
        program = Path(sys.executable).with_name("orbitlog")
        with (self._directory / "servers.log").open("ab") as errors:
            process = subprocess.Popen([program, *words, "--json"], stdout=subprocess.PIPE, stderr=errors)
        self._processes[key] = process
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"orbitlog {words[0]} did not start; see {self._directory / 'servers.log'}")
        ready: dict[str, object] = json.loads(line)
        return ready

    # Apache

    def _start_name_server(self) -> str:
        if self.kind == ORBITLOG:
            return str(self._spawn("name server", "nameserver", "--port", "0")["name-server"])
        port = Ports.find().name_server
        conf = self._directory / "namesrv.conf"
        conf.write_text(f"listenPort={port}\nbindAddress={HOST}\n")
        self._java("name server", ("-Xms128m", "-Xmx128m"), "namesrv.NamesrvStartup", conf)
        wait_until(lambda: broker_table(port) is not None, "the name server answers")
        return f"{HOST}:{port}"

    def _apache(self, broker_id: int, settings: Settings) -> str:
        port, store = self._port(broker_id), self._directory / f"broker-{broker_id}"
        given = {
            **{"listenPort": port, "namesrvAddr": self.name_server, "bindAddress": HOST},
            **{"brokerIP1": HOST, "brokerIP2": HOST, "storePathRootDir": store},
            **{"storePathCommitLog": store / "commitlog", "diskMaxUsedSpaceRatio": 95},
            "waitTimeMillsInSendQueue": 10_000,
            **settings,
        }
        conf = self._directory / f"broker-{broker_id}.conf"
        conf.write_text("".join(f"{key}={value}\n" for key, value in given.items()))
        disk = tuple(
            f"-Drocketmq.broker.diskSpace{name}Ratio={ratio}"
            for name, ratio in (("WarningLevel", 0.98), ("CleanForcibly", 0.97))
        )
        self._java(broker_id, ("-Xms1g", "-Xmx1g", *disk), "broker.BrokerStartup", conf)
        return f"{HOST}:{port}"

    def _java(self, key: object, options: tuple[str, ...], program: str, conf: Path) -> None:
        home = self._directory / f"home-{key}".replace(" ", "-")
        (home / "conf").mkdir(parents=True, exist_ok=True)
        self._processes[key] = start_java(apache_packages(VERSION), home, options, program, conf)


async def ask(address: str, code: int, **fields: object) -> Command:
    """Send one request over a connection of its own; raise `RuntimeError` if there is no answer."""
    from orbitlog.errors import OrbitlogError

    client = RemotingClient()
    try:
        request = Command(code, ext_fields={name: str(value) for name, value in fields.items()})
        return await client.invoke(address, request, 10)
    except OrbitlogError as error:
        raise RuntimeError(str(error)) from error
    finally:
        await client.close()


def wait_until(is_true: Callable[[], bool], what: str) -> None:
    """Wait for a state of other processes."""
    deadline = time.monotonic() + READY_SECONDS_MAX
    while not is_true():
        if time.monotonic() > deadline:
            raise RuntimeError(f"not within {READY_SECONDS_MAX} s: {what}")
        time.sleep(0.02)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()
