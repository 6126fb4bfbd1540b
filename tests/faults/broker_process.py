"""Broker processes to kill."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

PROGRAM = (sys.executable, "-c", "from orbitlog.cli.main import main; main()")
SECONDS_MAX = 30.0


def start(root: Path, *settings: str) -> tuple[subprocess.Popen[str], str]:
    words = [word for setting in settings for word in ("--set", setting)]
    command = [*PROGRAM, "up", "--store", str(root), "--name-server-port", "0", "--broker-port", "0", "--json", *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    return process, json.loads(process.stdout.readline())["broker"]
