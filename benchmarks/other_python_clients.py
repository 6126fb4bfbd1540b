"""Other Python clients for the comparison: downloaded if possible, each in a process with nothing else on its path."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.broker_pairs import VERSION, Broker, Load, running_load
from tests.interop.harness.other_clients import driver_command
from tests.interop.harness.packages import apache_packages
from tests.interop.harness.proxy import grpc_client, proxy_of

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
    environment = {**os.environ, "PYTHONPATH": str(grpc_client())}
    proxy = proxy_of(apache_packages(VERSION), broker.name_server, "DefaultCluster", directory)
    with proxy as endpoint, _load("grpc", endpoint, environment, directory) as load:
        yield load


@contextmanager
def _load(kind: str, endpoint: str, environment: dict[str, str], directory: Path) -> Iterator[Load]:
    command = [sys.executable, "-S", str(_LOAD), kind, endpoint]
    with running_load(command, directory / f"{kind}.log", {**environment, "HOME": str(directory)}) as load:
        yield load
