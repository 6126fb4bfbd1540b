"""Java processes that cannot outlive the tests: servers that run until stopped, and programs that run to their end.

A server's standard input is a pipe that only we hold: when this process ends, however it does, `GuardedMain` sees the
pipe close and halts the server. Programs carry a time limit of their own instead.
"""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.interop.harness.packages import ApachePackages

STOP_SECONDS_MAX = 60
PROGRAM_SECONDS_MAX = 150
LOG_LINES_SHOWN = 60

_HEAP = ("-Xms256m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dfile.encoding=UTF-8")
# What the start scripts of 5.x give to Java 17; 4.9 unmaps its files by reflection and needs the same.
_OPENED = ("java.base/java.nio", "java.base/sun.nio.ch", "java.base/jdk.internal.ref", "java.base/java.lang")
_OPENS = tuple(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED)
_EXPORTS = ("--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED", "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED")

JsonObject = dict[str, Any]

# Every process of the session, for the report of a failed test and for the last sweep.
STARTED: list[ServerProcess] = []


def java_command(packages: ApachePackages, home: Path, *, options: Sequence[str] = ()) -> list[str]:
    """The beginning of a command line: what it writes to its home directory goes to `home`."""
    home.mkdir(parents=True, exist_ok=True)
    private = (f"-Duser.home={home}", f"-Drocketmq.home.dir={home}", f"-Drocketmq.client.logRoot={home / 'logs'}")
    return [str(packages.java), *_HEAP, *_OPENS, *_EXPORTS, *private, *options, "-cp", packages.class_path]


class ServerProcess:
    """One server; its output is in `log`."""

    def __init__(self, name: str, command: Sequence[str], log: Path) -> None:
        self.name = name
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT, cwd=log.parent
            )
        STARTED.append(self)

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def wait_until(self, is_ready: Callable[[], bool], seconds_max: float) -> None:
        """Poll; an error that carries the log where the process ends or the time runs out first."""
        deadline = time.monotonic() + seconds_max
        while not is_ready():
            if not self.is_running:
                raise ServerFailed(f"{self.name} ended with {self._process.returncode}\n{self.log_tail()}")
            if time.monotonic() > deadline:
                raise ServerFailed(f"{self.name} is not ready after {seconds_max:.0f} s\n{self.log_tail()}")
            time.sleep(0.1)

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, such as SIGSTOP."""
        self._process.send_signal(number)

    def stop(self) -> None:
        """Ask it to end and wait; it must do so by itself."""
        if self.is_running:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self.kill()
                raise ServerFailed(f"{self.name} did not stop within {STOP_SECONDS_MAX} s\n{self.log_tail()}") from None
        self._close()

    def kill(self) -> None:
        """End it at once (`kill -9`)."""
        self._process.kill()
        self._process.wait()
        self._close()

    def _close(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()

    def log_tail(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:]
        return "\n".join(lines) or "(it said nothing)"


class ServerFailed(Exception):
    """A server did not start, or did not stop; carries the end of its log."""


def run_program(command: Sequence[str], program: str, arguments: Sequence[str], requests: str = "") -> list[JsonObject]:
    """Run one of our Java programs to its end and return the objects it printed; it must say that it is done."""
    whole = _program_command(command, program, arguments)
    done = subprocess.run(
        whole, input=requests.encode(), capture_output=True, timeout=PROGRAM_SECONDS_MAX + 10, check=False
    )
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith(b"{")]
    failure = (done.stdout + done.stderr).decode(errors="replace")[-6000:]
    assert done.returncode == 0 and answers and answers[-1] == {"answer": "done"}, failure
    return answers[:-1]


@contextmanager
def running_program(command: Sequence[str], program: str, arguments: Sequence[str]) -> Iterator[Iterator[JsonObject]]:
    """Run a program and read what it prints while it prints; it is killed when the block ends."""
    whole = _program_command(command, program, arguments)
    with subprocess.Popen(
        whole, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        try:
            yield (json.loads(line) for line in process.stdout if line.startswith(b"{"))
        finally:
            process.kill()


def _program_command(command: Sequence[str], program: str, arguments: Sequence[str]) -> list[str]:
    java, *rest = command
    return [java, f"-Dinterop.limitSeconds={PROGRAM_SECONDS_MAX}", *rest, "GuardedMain", program, *arguments]


def kill_everything() -> None:
    """End what a test left running."""
    for server in STARTED:
        if server.is_running:
            server.kill()
