"""gRPC clients through Apache's proxy: Orbitlog answers its POP requests as Apache's broker does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop.harness.clients import Client
from tests.interop.harness.matrix import java_550_client
from tests.interop.harness.other_clients import SOURCES
from tests.interop.harness.packages import ApachePackages, NotAvailable
from tests.interop.harness.proxy import grpc_client, proxy_of

pytestmark = pytest.mark.interop

SECONDS_MAX = 400
TYPES = {"Plain": "NORMAL", "Again": "NORMAL", "Later": "DELAY", "InOrder": "FIFO", "Decided": "TRANSACTION"}
EXPECTED = {
    "plain": [f"m{number} 1" for number in range(5)],
    "again": ["again 1", "again 2"],
    "later": ["later 1", "on time"],
    "in_order": [f"m{number}" for number in range(10)],
    "transactions": ["asked 1", "commit 1"],
}


@java_550_client
def test_the_grpc_client_through_the_proxy(
    client: Client, packages_of: Callable[[str], ApachePackages], tmp_path: Path
) -> None:
    broker = client.system.broker_address
    for topic, kind in TYPES.items():
        words = f"-b {broker} -t {topic}_{client.mark} -r 2 -w 2 -a +message.type={kind}"
        assert "success" in client.mqadmin(f"updateTopic {words}")
    for group in ("plain", "again", "later", "inorder", "decided"):
        orderly = "true" if group == "inorder" else "false"
        printed = client.mqadmin(f"updateSubGroup -b {broker} -g {group}_{client.mark} -o {orderly}")
        assert "success" in printed, printed
    try:
        path = grpc_client()
        proxy = proxy_of(packages_of("5.5.0"), client.system.name_server_address, client.system.cluster_name, tmp_path)
        with proxy as endpoint:
            command = [sys.executable, "-S", str(SOURCES / "grpc" / "main.py"), endpoint, client.mark]
            environment = {**os.environ, "PYTHONPATH": str(path), "HOME": str(tmp_path)}
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
            )
    except NotAvailable as reason:
        pytest.skip(str(reason))
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout.splitlines()[-1]) == EXPECTED
