"""The systems that official clients are tested against: Apache's two servers and Orbitlog, with one interface.

A system is started over a store directory, stopped, killed, and started again at the same addresses over the same
store. `SYSTEM_KINDS` names them; what a client sees must not depend on which one it is given.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.interop.harness.cluster import (
    BROKER_NAME,
    CLUSTER_NAME,
    Ports,
    broker_table,
    server_command,
    start_broker,
    start_name_server,
)
from tests.interop.harness.packages import ApachePackages
from tests.interop.harness.processes import ServerProcess

ORBITLOG = "orbitlog"
APACHE_497 = "apache-4.9.7"
APACHE_550 = "apache-5.5.0"
SYSTEM_KINDS = (APACHE_497, APACHE_550, ORBITLOG)
READY_SECONDS_MAX = 60

_READY = re.compile(r"^ready (.*)$", re.MULTILINE)
_PR_SET_PDEATHSIG = 1
# Runs another program that the kernel kills when we die, however we do.
_GUARDED = (
    "import ctypes, os, sys; "
    f"ctypes.CDLL(None).prctl({_PR_SET_PDEATHSIG}, {int(signal.SIGKILL)}); "
    "os.execv(sys.argv[1], sys.argv[1:])"
)


class System(ABC):
    """A name server and a broker; the broker is called the same in all of them."""

    kind: str
    broker_name = BROKER_NAME
    cluster_name = CLUSTER_NAME

    def __init__(self, directory: Path, store: Path, settings: Mapping[str, object]) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.store = store
        self.settings = dict(settings)

    @property
    @abstractmethod
    def name_server_address(self) -> str: ...

    @property
    @abstractmethod
    def broker_address(self) -> str: ...

    @abstractmethod
    def start(self) -> None:
        """Start what does not run, at the addresses of the first start."""

    @abstractmethod
    def stop_broker(self) -> None:
        """End the broker cleanly (our name server is part of it, and ends as well)."""

    @abstractmethod
    def kill_broker(self) -> None:
        """`kill -9`."""

    @abstractmethod
    def stop(self) -> None:
        """End everything cleanly."""

    @abstractmethod
    def kill(self) -> None:
        """End everything at once."""


class ApacheSystem(System):
    """Apache's servers, one Java process each."""

    def __init__(self, packages: ApachePackages, directory: Path, store: Path, settings: Mapping[str, object]) -> None:
        super().__init__(directory, store, settings)
        self.kind = f"apache-{packages.version}"
        self.ports = Ports.find()
        self._command = server_command(packages, directory)
        self._name_server: ServerProcess | None = None
        self._broker: ServerProcess | None = None

    @property
    def name_server_address(self) -> str:
        return f"127.0.0.1:{self.ports.name_server}"

    @property
    def broker_address(self) -> str:
        return f"127.0.0.1:{self.ports.broker}"

    def start(self) -> None:
        if self._name_server is None:
            self._name_server = start_name_server(self._command, self.directory, self.ports.name_server)
        if self._broker is None:
            self._broker = start_broker(self._command, self.directory, self.ports, self.store, self.settings)

    def stop_broker(self) -> None:
        if self._broker is not None:
            self._broker.stop()
            self._broker = None

    def kill_broker(self) -> None:
        if self._broker is not None:
            self._broker.kill()
            self._broker = None

    def stop(self) -> None:
        self.stop_broker()
        self.stop_name_server()

    def stop_name_server(self) -> None:
        if self._name_server is not None:
            self._name_server.stop()
            self._name_server = None

    def start_name_server(self) -> None:
        """Start it again, and wait until the broker that runs has told it about itself: half a minute at most."""
        self.start()
        assert self._name_server is not None
        self._name_server.wait_until(
            lambda: self.broker_name in (broker_table(self.ports.name_server) or {}), READY_SECONDS_MAX
        )

    def start_name_server_alone(self) -> None:
        """Start the name server; brokers are the caller's."""
        self._name_server = start_name_server(self._command, self.directory, self.ports.name_server)

    def kill(self) -> None:
        self.kill_broker()
        if self._name_server is not None:
            self._name_server.kill()
            self._name_server = None


class OrbitlogSystem(System):
    """`orbitlog up`: both servers in one process."""

    kind = ORBITLOG

    def __init__(
        self, directory: Path, store: Path, settings: Mapping[str, object], ports: Ports | None = None
    ) -> None:
        """With `ports` it listens there from the first start on, and so on the VIP port."""
        super().__init__(directory, store, settings)
        self._addresses: dict[str, str] | None = None
        if ports is not None:
            self._addresses = {
                "name-server": f"127.0.0.1:{ports.name_server}",
                "broker": f"127.0.0.1:{ports.broker}",
            }
        self._server: ServerProcess | None = None

    @property
    def name_server_address(self) -> str:
        assert self._addresses, "not started yet"
        return self._addresses["name-server"]

    @property
    def broker_address(self) -> str:
        assert self._addresses, "not started yet"
        return self._addresses["broker"]

    def start(self) -> None:
        if self._server is not None:
            return
        ports = [("--name-server-port", "name-server"), ("--broker-port", "broker")]
        words = [
            word
            for option, name in ports
            for word in (option, self._addresses[name].rpartition(":")[2] if self._addresses else "0")
        ]
        settings = {"brokerName": self.broker_name, "brokerClusterName": self.cluster_name, **self.settings}
        for key, value in settings.items():
            words += ["--set", f"{key}={value}"]
        self._server, ready = start_orbitlog(self.directory, ["--store", str(self.store), *words])
        self._addresses = ready

    def stop_broker(self) -> None:
        if self._server is not None:
            self._server.stop()
            self._server = None

    def kill_broker(self) -> None:
        if self._server is not None:
            self._server.kill()
            self._server = None

    def stop(self) -> None:
        self.stop_broker()

    def kill(self) -> None:
        self.kill_broker()


def start_orbitlog(
    directory: Path, arguments: Sequence[str], *, command: str = "up"
) -> tuple[ServerProcess, dict[str, str]]:
    """Start one of our servers; return it with the facts of its ready line."""
    directory.mkdir(parents=True, exist_ok=True)
    log = directory / f"orbitlog-{command}.log"
    before = log.stat().st_size if log.exists() else 0
    program = Path(sys.executable).parent / "orbitlog"
    whole = [sys.executable, "-c", _GUARDED, str(program), command, *arguments]
    server = ServerProcess(f"orbitlog {command}", whole, log)

    def said() -> re.Match[str] | None:
        return _READY.search(log.read_bytes()[before:].decode(errors="replace"))

    server.wait_until(lambda: said() is not None, READY_SECONDS_MAX)
    found = said()
    assert found is not None
    return server, dict(fact.split("=", 1) for fact in found[1].split(" ") if "=" in fact)


def make_system(
    kind: str,
    directory: Path,
    packages_of: Callable[[str], ApachePackages],
    settings: Mapping[str, object] | None = None,
) -> System:
    """A system of this kind that was not started yet, over a new store below `directory`."""
    store = directory / "store"
    if kind == ORBITLOG:
        return OrbitlogSystem(directory, store, settings or {})
    return ApacheSystem(packages_of(kind.removeprefix("apache-")), directory, store, settings or {})


def wanted_kinds(kinds: Sequence[str]) -> list[str]:
    """Leave out what `ORBITLOG_INTEROP_SYSTEMS` does not name, if it names any."""
    named = os.environ.get("ORBITLOG_INTEROP_SYSTEMS", "").split(",")
    return [kind for kind in kinds if named == [""] or kind in named]
