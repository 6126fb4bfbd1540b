"""A local S3 server, moto's, in a process of its own; and the settings of AWS tools for it."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.free_ports import free_port


@contextmanager
def s3_server() -> Iterator[str]:
    """Run a server and yield its address; some calls of delta-rs hold the interpreter's lock while they wait."""
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            address = f"http://127.0.0.1:{port}"
            while not _answers(address):
                assert server.poll() is None
                time.sleep(0.05)
            yield address
        finally:
            server.kill()


def aws_settings(endpoint: str) -> dict[str, str]:
    """Return the environment of a client of the server."""
    settings = {"AWS_ENDPOINT_URL": endpoint, "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
    return settings | {"AWS_REGION": "us-east-1", "AWS_ALLOW_HTTP": "true", "AWS_EC2_METADATA_DISABLED": "true"}


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/moto-api/", timeout=30):
            return True
    except OSError:
        return False
