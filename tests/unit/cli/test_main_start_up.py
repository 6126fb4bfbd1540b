"""What a command imports before it asks its cluster: nothing heavy, and no more of the client than it needs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = (
    *("numpy", "numba", "llvmlite", "pyarrow", "pyspark", "py4j", "pandas", "rich", "lz4", "backports"),
    *("orbitlog.kernels", "orbitlog.store", "orbitlog.broker", "orbitlog.doctor", "orbitlog.pipeline"),
)
CLIENT = ("orbitlog.client.rocketmq", "orbitlog.client.consumer.group_consumer", "orbitlog.client.blocking")
SCRIPT = """
import sys
from orbitlog.cli.main import cli
try:
    cli.main(sys.argv[1:], prog_name="orbitlog")
except SystemExit:
    pass
print("loaded:", *sorted(sys.modules), file=sys.stderr)
"""


def loaded_by(words: str, home: Path) -> list[str]:
    """The modules that are loaded at the end of a command; no server listens at its address."""
    environment = {**os.environ, "XDG_CONFIG_HOME": str(home), "ORBITLOG_NAME_SERVER": "127.0.0.1:1"}
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, *words.split()], capture_output=True, text=True, timeout=60, env=environment
    )
    return ran.stderr.splitlines()[-1].split()[1:]


@pytest.mark.parametrize(
    "words",
    [
        "--help",
        "topic list",
        "offsets show g",
        "config show",
        "mqadmin topicList",
        "mqadmin consumerProgress -g g",
    ],
)
def test_what_neither_sends_nor_consumes_imports_no_client(words: str, tmp_path: Path) -> None:
    loaded = loaded_by(words, tmp_path)
    assert "click" in loaded
    assert [name for name in loaded if name.startswith((*HEAVY, *CLIENT)) or name in ("ssl", "_ssl")] == []


@pytest.mark.parametrize("words", ["send T body", "tail T"])
def test_what_sends_or_reads_imports_nothing_heavy(words: str, tmp_path: Path) -> None:
    loaded = loaded_by(words, tmp_path)
    assert [name for name in loaded if name.startswith(HEAVY)] == []


@pytest.mark.parametrize("words", ["completion fish", "mqadmin", "context list"])
def test_commands_without_a_cluster_import_no_network(words: str, tmp_path: Path) -> None:
    loaded = loaded_by(words, tmp_path)
    assert [name for name in loaded if name.startswith(("orbitlog.wire", "orbitlog.remoting", "orbitlog.client"))] == []
