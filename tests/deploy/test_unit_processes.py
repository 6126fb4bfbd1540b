"""The commands of the systemd units start, notify and stop, and use only system calls that their filters permit."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

import orbitlog

UNITS = Path("deploy/systemd")
SECONDS_MAX = 120
PROGRAM = (sys.executable, "-c", "from orbitlog.cli.main import main; main()")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        shutil.which("strace") is None or shutil.which("systemd-analyze") is None,
        reason="strace or systemd-analyze is missing; install the packages strace and systemd",
    ),
]


def values_of(unit: Path, key: str) -> list[str]:
    return re.findall(rf"^{key}=(.*)$", unit.read_text(), re.MULTILINE)


def permitted_calls(unit: Path) -> set[str]:
    """Return the system calls of the unit's filters; a line that begins with ~ removes its sets."""
    printed = subprocess.run(["systemd-analyze", "syscall-filter"], capture_output=True, text=True, check=True).stdout
    sets: dict[str, list[str]] = {}
    for line in printed.splitlines():
        if line.startswith("@"):
            sets[line] = []
        elif line.startswith(" ") and sets and not line.lstrip().startswith("#"):
            sets[next(reversed(sets))].append(line.strip())

    def expanded(name: str) -> set[str]:
        return set().union(*map(expanded, sets[name])) if name.startswith("@") else {name}

    # @default is part of every list of permitted calls.
    permitted = expanded("@default")
    for words in values_of(unit, "SystemCallFilter"):
        named = set().union(*map(expanded, words.removeprefix("~").split()))
        permitted = permitted - named if words.startswith("~") else permitted | named
    return permitted


class TracedService:
    """The process of a unit, as systemd starts it but for the confinement; strace records what its filter would kill.

    strace also records `bind`, which shows that it observes. Permitted calls run at full speed.
    """

    def __init__(self, unit: Path, root: Path, options: str = "") -> None:
        self.root = root
        self.calls = root / "calls"
        permitted = permitted_calls(unit) - {"bind"}
        self.traced = "!" + ",".join(f"?{name}" for name in sorted(permitted))  # ?: this machine may not have the call
        directories = {"CONFIGURATION_DIRECTORY": str(root / "etc"), "STATE_DIRECTORY": str(root / "state")}
        for directory in directories.values():
            Path(directory).mkdir()
        self.manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.manager.bind(str(root / "notify"))
        self.manager.settimeout(SECONDS_MAX)
        variables = dict(word.split("=", 1) for line in values_of(unit, "Environment") for word in line.split())
        variables = {name: value.replace("%S", str(root)) for name, value in variables.items()}
        self.environment = {
            "PATH": os.environ["PATH"],
            "NOTIFY_SOCKET": str(root / "notify"),
            "WATCHDOG_USEC": f"{int(values_of(unit, 'WatchdogSec')[0]) * 1_000_000}",
            **variables,
            **directories,
        }
        (command,) = values_of(unit, "ExecStart")
        for name, value in directories.items():
            command = command.replace(f"${{{name}}}", value)
        _, *self.words = shlex.split(command.replace("$CONSOLE_OPTIONS", options))
        assert "$" not in "".join(self.words)

    def start(self) -> dict[str, str]:
        """Start the process; return the fields of its ready line."""
        # -D: the process itself is the child, and strace its observer.
        strace = ("strace", "-D", "-f", "-qq", "--seccomp-bpf", "--signal=none")
        self.process = subprocess.Popen(
            [*strace, "-e", f"trace={self.traced}", "-o", str(self.calls), *PROGRAM, *self.words],
            env=self.environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        fields = self.process.stdout.readline().split()
        assert fields and fields[0] == "ready", "the error of the command is printed above"
        assert [self.manager.recv(100) for _ in range(2)] == [b"READY=1", b"WATCHDOG=1"]
        return dict(field.split("=", 1) for field in fields[1:])

    def stop(self) -> set[str]:
        """Stop the process as systemd does; return the names of the recorded calls."""
        self.process.terminate()
        while (state := self.manager.recv(100)) == b"WATCHDOG=1":
            pass
        assert state == b"STOPPING=1"
        assert self.process.wait(SECONDS_MAX) == 0
        # strace has recorded each call before it lets it run.
        return set(re.findall(r"^\d+ +(\w+)\(", self.calls.read_text(), re.MULTILINE))

    def end(self) -> None:
        self.manager.close()
        process: subprocess.Popen[str] | None = getattr(self, "process", None)
        if process is not None:
            process.kill()
            process.wait(SECONDS_MAX)
            assert process.stdout is not None
            process.stdout.close()


@pytest.fixture
def service(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[..., TracedService]:
    def create(unit_name: str, options: str = "") -> TracedService:
        root = tmp_path / unit_name
        root.mkdir()
        created = TracedService(UNITS / f"{unit_name}.service", root, options)
        request.addfinalizer(created.end)
        return created

    return create


def test_units_serve_a_message_and_a_page_with_permitted_system_calls(service: Callable[..., TracedService]) -> None:
    names = service("orbitlog-nameserver")
    (names.root / "etc" / "namesrv.conf").write_text("listenPort=0\n")
    address = names.start()["name-server"]
    broker = service("orbitlog-broker")
    (broker.root / "etc" / "broker.conf").write_text(f"listenPort=0\nnamesrvAddr={address}\n")
    broker.start()
    console = service("orbitlog-console", f"--port 0 --name-server {address}")
    page = console.start()["console"]
    with orbitlog.connect(f"rocketmq://{address}") as connection:
        connection.send("Orders", "hello", keys=["42"])
        received = next(iter(connection.consume("Orders", group="billing", start_from="first")))
        assert received.text == "hello"
    with urllib.request.urlopen(page, timeout=SECONDS_MAX) as answer:
        assert answer.status == 200 and b"Overview" in answer.read()
    for traced in (console, broker, names):
        assert traced.stop() == {"bind"}


def test_permitted_calls_exclude_those_of_other_services() -> None:
    for unit in UNITS.glob("*.service"):
        permitted = permitted_calls(unit)
        assert {"read", "openat", "socket", "prlimit64"} <= permitted
        assert not {"ptrace", "mount", "chown", "setuid", "sched_setaffinity", "bpf"} & permitted
