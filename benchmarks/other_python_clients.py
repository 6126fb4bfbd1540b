"""Other Python clients beside ours: fetched where they can be had, each in a process with nothing else on its path."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.broker_pairs import _OPENS, HOST, VERSION, Broker, Load
from tests.interop.harness.other_clients import driver_command
from tests.interop.harness.packages import NotAvailable, apache_packages, cache_directory, proxy_jars

GRPC_CLIENT = "rocketmq-python-client==5.1.2"
_FETCH_SECONDS_MAX = 600
_READY_SECONDS_MAX = 120
_LOAD = Path(__file__).with_name("other_python_load.py")


@contextmanager
def cpp_client_of(broker: Broker, directory: Path) -> Iterator[Load]:
    """The C++ client in its Python wheel."""
    _, environment = driver_command("cpp")
    with _load("cpp", broker.name_server, environment, directory) as load:
        yield load


@contextmanager
def grpc_client_of(broker: Broker, directory: Path) -> Iterator[Load]:
    """The gRPC client, at Apache's proxy in front of the same broker."""
    environment = {**os.environ, "PYTHONPATH": str(_grpc_client())}
    with _proxy_of(broker, directory) as endpoint, _load("grpc", endpoint, environment, directory) as load:
        yield load


@contextmanager
def _load(kind: str, endpoint: str, environment: dict[str, str], directory: Path) -> Iterator[Load]:
    command = [sys.executable, "-S", str(_LOAD), kind, endpoint]
    with (directory / f"{kind}.log").open("ab") as errors:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env={**environment, "HOME": str(directory)},
        )
    try:
        load = Load(process)
        load._line()
        yield load
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()


def _grpc_client() -> Path:
    """Fetch the client and what it needs into a directory of the cache, once."""
    made = cache_directory() / GRPC_CLIENT.replace("==", "-")
    if not made.exists():
        unfinished = made.with_name(f"{made.name}.{os.getpid()}")
        fetch = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(unfinished), GRPC_CLIENT]
        done = subprocess.run(fetch, capture_output=True, text=True, timeout=_FETCH_SECONDS_MAX, check=False)
        if done.returncode != 0:
            raise NotAvailable(f"{GRPC_CLIENT} cannot be fetched: {done.stderr.strip().splitlines()[-1:]}")
        unfinished.replace(made)
    return made


@contextmanager
def _proxy_of(broker: Broker, directory: Path) -> Iterator[str]:
    """Apache's proxy, which asks the name server for the broker; ends with the pipe to its standard input."""
    packages, home = apache_packages(VERSION), directory / "proxy"
    (home / "conf").mkdir(parents=True)
    ports = [_free_port(), _free_port()]
    settings = {
        "rocketMQClusterName": "DefaultCluster",
        "namesrvAddr": broker.name_server,
        "proxyMode": "CLUSTER",
        "grpcServerPort": ports[0],
        "remotingListenPort": ports[1],
    }
    conf = home / "conf" / "rmq-proxy.json"
    conf.write_text(json.dumps(settings))
    guard = packages.class_path.split(os.pathsep)[0]
    class_path = os.pathsep.join([guard, *proxy_jars(VERSION)])
    command = [str(packages.java), "-Xmx1g", *_OPENS, f"-Duser.home={home}", "-cp", class_path, "GuardedMain"]
    command += ["org.apache.rocketmq.proxy.ProxyStartup", "-pc", str(conf), "-n", broker.name_server, "-pm", "cluster"]
    with (home / "proxy.log").open("ab") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=output, stderr=output, env={**os.environ, "ROCKETMQ_HOME": str(home)}
        )
    try:
        _wait_for(ports[0], process)
        yield f"{HOST}:{ports[0]}"
    finally:
        process.kill()
        process.wait()
        if process.stdin is not None:
            process.stdin.close()


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _READY_SECONDS_MAX
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection((HOST, port), 1).close()
            return
        except OSError:
            time.sleep(0.2)
    raise NotAvailable("Apache's proxy did not start")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port
