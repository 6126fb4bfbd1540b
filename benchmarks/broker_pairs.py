"""The two brokers of the comparison, each with its name server on loopback over a store of its own, and their load.

Everything runs in one process session: the kernel shares CPU time between sessions, not processes.
"""

from __future__ import annotations

import compileall
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import orbitlog
from benchmarks.measure import cpu_seconds
from orbitlog.access.credentials import Credentials
from orbitlog.wire.command import Command
from tests.interop.harness.cluster import Ports
from tests.interop.harness.packages import ApachePackages, apache_packages

VERSION = "5.5.0"
HOST = "127.0.0.1"
READY_SECONDS_MAX = 120
JOB_SECONDS_MAX = 300

_JAVA_SOURCE = Path(__file__).parent / "java" / "BrokerLoad.java"
_OPENED = ("java.base/java.nio", "java.base/sun.nio.ch", "java.base/jdk.internal.ref", "java.base/java.lang")
_OPENS = tuple(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED)
_EXPORTS = ("--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED", "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED")
_SEND_MESSAGE_V2 = 310
_PROBE_TOPIC = "TBW102"
CREDENTIALS = Credentials("load-user", "load-secret")
_PROVIDER = "org.apache.rocketmq.auth.{0}.provider.Local{1}MetadataProvider"
ACCESS_CONTROL = (
    "authenticationEnabled=true",
    "authorizationEnabled=true",
    f"authenticationMetadataProvider={_PROVIDER.format('authentication', 'Authentication')}",
    f"authorizationMetadataProvider={_PROVIDER.format('authorization', 'Authorization')}",
    'initAuthenticationUser={"username":"load-user","password":"load-secret"}',
    'innerClientAuthenticationCredentials={"accessKey":"load-user","secretKey":"load-secret"}',
)
"""Settings of both brokers with access control on; with them, the client signs its requests."""
TLS = ("tls.test.mode.enable=true",)
"""Settings of both brokers with TLS on, each with a self-signed certificate; with them, the client encrypts."""


@dataclass
class Broker:
    """A running broker and its name server, in one process or two."""

    name: str
    name_server: str
    address: str
    processes: list[subprocess.Popen[bytes]] = field(repr=False)
    start_seconds: float = 0.0
    is_guarded: bool = False
    is_encrypted: bool = False

    def cpu_seconds(self) -> float:
        return sum(map(cpu_seconds, (process.pid for process in self.processes)))

    def resident_mb(self) -> float:
        return sum(_resident_kb(process.pid) for process in self.processes) / 1024

    def pin(self, core: int) -> None:
        """Run on one core only."""
        for process in self.processes:
            _pin(process.pid, core)

    def stop(self) -> None:
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
        for process in reversed(self.processes):
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()


def _pin(pid: int, core: int) -> None:
    """Run all threads of a process on one core; those that they start later inherit it."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), {core})


def _resident_kb(pid: int) -> int:
    """What it holds for itself: pages of mapped files are the system's to take back, for both brokers."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1])
    return 0


def is_guarded(settings: Sequence[str]) -> bool:
    """Return whether the settings switch access control on: then probe and client sign their requests."""
    return ACCESS_CONTROL[0] in settings


def is_encrypted(settings: Sequence[str]) -> bool:
    """Return whether the settings switch TLS on: then the client uses it, and the probe of the start does not."""
    return TLS[0] in settings


def start_orbitlog(directory: Path, settings: Sequence[str] = ()) -> Broker:
    directory.mkdir(parents=True, exist_ok=True)
    compileall.compile_dir(Path(orbitlog.__file__).parent, quiet=1)  # as pip does when it installs a package
    words = [str(word) for setting in settings for word in ("--set", setting)]
    program = Path(sys.executable).with_name("orbitlog")
    command = [str(program), "up", "--store", str(directory / "store"), "--name-server-port", "0", "--broker-port", "0"]
    started = time.perf_counter()
    with (directory / "stderr.log").open("ab") as errors:
        process = subprocess.Popen([*command, *words], stdout=subprocess.PIPE, stderr=errors)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(b"ready "):
            told = dict(word.split("=", 1) for word in line.decode().split()[1:] if "=" in word)
            break
    else:
        raise RuntimeError(f"orbitlog up ended with {process.wait()}; see {directory / 'stderr.log'}")
    broker = Broker("orbitlog", told["name-server"], told["broker"], [process], **_switches(settings))
    _wait_for_send(broker.address)
    broker.start_seconds = time.perf_counter() - started
    return broker


def start_apache(directory: Path, settings: Sequence[str] = ()) -> Broker:
    """Both servers at once, as a start script would; full-blown JIT, a heap that fits a small machine."""
    packages, ports, home = apache_packages(VERSION), Ports.find(), directory / "home"
    (home / "conf").mkdir(parents=True, exist_ok=True)
    store = directory / "store"
    (directory / "namesrv.conf").write_text(f"listenPort={ports.name_server}\nbindAddress={HOST}\n")
    lines = [
        f"listenPort={ports.broker}", f"namesrvAddr={HOST}:{ports.name_server}", f"bindAddress={HOST}",
        f"brokerIP1={HOST}", f"storePathRootDir={store}", f"storePathCommitLog={store / 'commitlog'}",
        "diskMaxUsedSpaceRatio=95", "waitTimeMillsInSendQueue=10000", *settings,
    ]  # fmt: skip
    (directory / "broker.conf").write_text("".join(line + "\n" for line in lines))
    disk = ("-Drocketmq.broker.diskSpaceWarningLevelRatio=0.98", "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.97")
    started = time.perf_counter()
    processes = [
        start_java(packages, home, ("-Xms256m", "-Xmx256m"), "namesrv.NamesrvStartup", directory / "namesrv.conf"),
        start_java(packages, home, ("-Xms2g", "-Xmx2g", *disk), "broker.BrokerStartup", directory / "broker.conf"),
    ]
    broker = Broker("apache", f"{HOST}:{ports.name_server}", f"{HOST}:{ports.broker}", processes, **_switches(settings))
    _wait_for_send(broker.address)
    broker.start_seconds = time.perf_counter() - started
    return broker


def _switches(settings: Sequence[str]) -> dict[str, bool]:
    return {"is_guarded": is_guarded(settings), "is_encrypted": is_encrypted(settings)}


def start_java(
    packages: ApachePackages, home: Path, options: Sequence[str], program: str, conf: Path
) -> subprocess.Popen[bytes]:
    private = (f"-Duser.home={home}", f"-Drocketmq.home.dir={home}")
    command = [str(packages.java), *options, *_OPENS, *_EXPORTS, *private, "-cp", packages.class_path]
    with conf.with_suffix(".log").open("ab") as output:
        whole = [*command, "GuardedMain", f"org.apache.rocketmq.{program}", "-c", str(conf)]
        return subprocess.Popen(whole, stdin=subprocess.PIPE, stdout=output, stderr=output)


def _wait_for_send(address: str) -> None:
    """Send until one send is acknowledged."""
    host, _, port = address.rpartition(":")
    fields = {"a": "probe", "b": "StartProbe", "c": _PROBE_TOPIC, "d": "4", "e": "0", "f": "0", "g": "1700000000000"}
    fields |= {"h": "0", "i": "", "j": "0", "k": "false", "m": "false"}
    probe = Command(_SEND_MESSAGE_V2, ext_fields=fields, body=b"x")
    CREDENTIALS.sign(probe)
    header = {
        "code": _SEND_MESSAGE_V2,
        "language": "OTHER",
        "version": 409,
        "opaque": 1,
        "flag": 0,
        "extFields": fields,
    }
    text = json.dumps(header).encode()
    frame = struct.pack(">ii", 4 + len(text) + 1, len(text)) + text + b"x"
    deadline = time.monotonic() + READY_SECONDS_MAX
    while time.monotonic() < deadline:
        try:
            with socket.create_connection((host, int(port)), timeout=5) as connection:
                connection.sendall(frame)
                size = connection.recv(4, socket.MSG_WAITALL)
                answer = connection.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL) if size else b""
                if b'"code":0' in answer:
                    return
        except OSError:
            pass
        time.sleep(0.01)
    raise RuntimeError(f"{address} acknowledged nothing within {READY_SECONDS_MAX} s")


class JobFailed(RuntimeError):
    """The client failed a job, completed it partially, or exceeded the time limit."""


@dataclass
class Load:
    """The official client in a JVM of its own, which takes jobs by lines."""

    process: subprocess.Popen[bytes]

    def cpu_seconds(self) -> float:
        return cpu_seconds(self.process.pid)

    def pin(self, core: int) -> None:
        """Run on one core only."""
        _pin(self.process.pid, core)

    def run(self, job: str, seconds_max: float = JOB_SECONDS_MAX) -> dict[str, float]:
        assert self.process.stdin is not None
        self.process.stdin.write(job.encode() + b"\n")
        self.process.stdin.flush()
        # Java's client has been seen to wait for itself for ever.
        limit = threading.Timer(seconds_max, self.process.kill)
        limit.start()
        try:
            answer = self._line()
        finally:
            limit.cancel()
        word, *values = answer.split()
        if word != "ok":
            raise JobFailed(f"{job}: {answer}")
        return {name: float(value) for name, _, value in (each.partition("=") for each in values)}

    def _line(self) -> str:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith((b"ok", b"failed", b"ready")):
                return line.decode().strip()
        raise JobFailed(f"the client ended with {self.process.wait()}")


@contextmanager
def client_of(broker: Broker, directory: Path) -> Iterator[Load]:
    packages = apache_packages(VERSION)
    classes = directory / "classes"
    javac = packages.java.with_name("javac")
    compile_it = [str(javac), "-encoding", "UTF-8", "-nowarn", "-d", str(classes), "-cp", packages.class_path]
    compile_it += ["-sourcepath", str(_JAVA_SOURCE.parent)]
    subprocess.run([*compile_it, str(_JAVA_SOURCE)], check=True, capture_output=True)
    private = (f"-Duser.home={directory}", f"-Drocketmq.client.logRoot={directory / 'logs'}", "-Xmx1g")
    if broker.is_guarded:
        private += (f"-Dload.accessKey={CREDENTIALS.access_key}", f"-Dload.secretKey={CREDENTIALS.secret_key}")
    if broker.is_encrypted:
        private += ("-Dtls.enable=true",)
    class_path = os.pathsep.join([str(classes), packages.class_path])
    command = [str(packages.java), *private, "-cp", class_path, "BrokerLoad", broker.name_server, broker.address]
    with running_load(command, directory / "client.log") as load:
        yield load


@contextmanager
def running_load(command: Sequence[str], errors: Path, environment: Mapping[str, str] | None = None) -> Iterator[Load]:
    """Yield a client that is ready; it is killed at the end."""
    with errors.open("ab") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output, env=environment
        )
    load = Load(process)
    try:
        load._line()
        yield load
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()
