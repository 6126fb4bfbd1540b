"""Apache's proxy in front of a broker, and the gRPC client for Python that needs one."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tests.interop.harness.packages import ApachePackages, NotAvailable, cache_directory, proxy_jars
from tests.interop.harness.processes import java_command
from tests.support.free_ports import free_port

HOST = "127.0.0.1"
GRPC_CLIENT = "rocketmq-python-client==5.1.2"
_FETCH_SECONDS_MAX = 600
_READY_SECONDS_MAX = 120


@contextmanager
def proxy_of(packages: ApachePackages, name_server: str, cluster: str, directory: Path) -> Iterator[str]:
    """Start a proxy that asks the name server for brokers; yields the address for gRPC clients."""
    home = directory / "proxy"
    (home / "conf").mkdir(parents=True)
    grpc_port, remoting_port = (free_port() for _ in range(2))
    settings = {
        "rocketMQClusterName": cluster,
        "namesrvAddr": name_server,
        "proxyMode": "CLUSTER",
        "grpcServerPort": grpc_port,
        "remotingListenPort": remoting_port,
    }
    conf = home / "conf" / "rmq-proxy.json"
    conf.write_text(json.dumps(settings))
    guard = packages.class_path.split(os.pathsep)[0]
    proxy = replace(packages, class_path=os.pathsep.join([guard, *proxy_jars(packages.version)]))
    command = [*java_command(proxy, home), "GuardedMain"]
    command += ["org.apache.rocketmq.proxy.ProxyStartup", "-pc", str(conf), "-n", name_server, "-pm", "cluster"]
    environment = {**os.environ, "ROCKETMQ_HOME": str(home)}
    with (home / "proxy.log").open("ab") as output:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=output, env=environment)
    try:
        _wait_for(grpc_port, process)
        yield f"{HOST}:{grpc_port}"
    finally:
        process.kill()
        process.wait()
        if process.stdin is not None:
            process.stdin.close()


def grpc_client() -> Path:
    """Fetch the client and what it needs into a directory of the cache, once; raises `NotAvailable`."""
    made = cache_directory() / GRPC_CLIENT.replace("==", "-")
    if not made.exists():
        unfinished = made.with_name(f"{made.name}.{os.getpid()}")
        fetch = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(unfinished), GRPC_CLIENT]
        done = subprocess.run(fetch, capture_output=True, text=True, timeout=_FETCH_SECONDS_MAX, check=False)
        if done.returncode != 0:
            raise NotAvailable(f"{GRPC_CLIENT} cannot be fetched: {' '.join(done.stderr.splitlines()[-1:])}")
        unfinished.replace(made)
    return made


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _READY_SECONDS_MAX
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection((HOST, port), 1).close()
            return
        except OSError:
            time.sleep(0.2)
    raise NotAvailable("Apache's proxy did not start")
