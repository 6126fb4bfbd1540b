"""Apache's own message store in a JVM, for the append benchmark: compiled, run and timed."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

from tests.interop.harness.packages import NotAvailable, apache_packages

VERSION = "5.5.0"
_SOURCE = Path(__file__).parent / "java" / "AppendRate.java"
_SECONDS_MAX = 300
# The heap of a small broker, everything else as Java has it: the optimising compiler above all.
_OPTIONS = ("-Xms1g", "-Xmx1g", "-XX:+AlwaysPreTouch")
_PACKAGES = ("java.base/java.nio", "java.base/sun.nio.ch", "java.base/jdk.internal.ref", "java.base/java.lang")
_OPENS = tuple(f"--add-opens={package}=ALL-UNNAMED" for package in _PACKAGES)
_EXPORTS = ("--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED", "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED")


class JavaRound(NamedTuple):
    append_seconds: float
    dispatched_seconds: float


def append_with_java(body_bytes: int, count: int, rounds: int) -> list[JavaRound]:
    """Append `count` messages in each of `rounds` rounds; raise `NotAvailable` without Java or the packages."""
    packages = apache_packages(VERSION)
    with tempfile.TemporaryDirectory(prefix="orbitlog-bench-") as scratch:
        javac = packages.java.with_name("javac")
        _run([str(javac), "-encoding", "UTF-8", "-nowarn", "-d", scratch, "-cp", packages.class_path, str(_SOURCE)])
        private = (f"-Duser.home={scratch}", f"-Drocketmq.home.dir={scratch}")
        class_path = os.pathsep.join([scratch, packages.class_path])
        command = [str(packages.java), *_OPTIONS, *_OPENS, *_EXPORTS, *private, "-cp", class_path, "AppendRate"]
        said = _run([*command, str(Path(scratch, "store")), str(body_bytes), str(count), str(rounds)])
    found = [line.split()[1:] for line in said.splitlines() if line.startswith("round ")]
    return [JavaRound(int(appended) / 1e9, int(dispatched) / 1e9) for appended, dispatched in found]


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS_MAX, check=False)
    if done.returncode != 0:
        raise NotAvailable(f"{Path(command[0]).name} ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    return done.stdout
