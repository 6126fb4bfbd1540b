"""An `orbitlog up` process."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

PROGRAM = (sys.executable, "-c", "from orbitlog.cli.main import main; main()")
SECONDS_MAX = 30


def start(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen([*PROGRAM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@contextmanager
def attacked(*words: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """A server process that logs much: into a file, because a pipe that is not read would stop it."""
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen([*PROGRAM, *words, "--json"], stdout=subprocess.PIPE, stderr=errors, text=True)
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, (process.wait(SECONDS_MAX), errors.seek(0), errors.read())[2]
            yield process, json.loads(line)
        finally:
            process.kill()
            process.communicate(timeout=SECONDS_MAX)


@contextmanager
def serving(*words: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """A server process and its ready line; killed if the test did not stop it."""
    process = start(*words, "--json")
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.communicate(timeout=SECONDS_MAX)[1]
        yield process, json.loads(line)
    finally:
        process.kill()
        process.communicate(timeout=SECONDS_MAX)
