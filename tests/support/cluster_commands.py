"""Commands of the command line, run against a cluster."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

PROGRAM = Path(sys.executable).with_name("orbitlog")
SECONDS_MAX = 60


def run(cluster: str, *words: str, text: str | None = None, exit_code: int = 0) -> str:
    command = [str(PROGRAM), *words, "-n", cluster]
    done = subprocess.run(command, capture_output=True, text=True, input=text, timeout=SECONDS_MAX)
    assert done.returncode == exit_code, done.stderr
    return done.stdout if exit_code == 0 else done.stderr


def objects(cluster: str, *words: str, text: str | None = None) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run(cluster, *words, "--json", text=text).splitlines()]
