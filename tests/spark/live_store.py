"""A store that another process has open and writes to, and a look at whether its derived files are right."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from orbitlog.formats import store_tree as tree
from orbitlog.testing.crash_disk import CrashDisk
from tests.spark.live_writer import CONFIG
from tests.support.invariants import check_derived, messages_in
from tests.support.workloads import ROOT

REPOSITORY = Path(__file__).resolve().parents[2]
_PATIENCE_S = 180


class Writer:
    """The process that has the store open."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, command: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the writer ended by itself: {self._process.wait()}"
        answer = json.loads(line)
        assert isinstance(answer, dict)
        return answer

    def wait_until(self, is_so: Callable[[dict[str, Any]], bool], what: str) -> dict[str, Any]:
        deadline_s = time.monotonic() + _PATIENCE_S
        while not is_so(found := self.ask("status")):
            assert time.monotonic() < deadline_s, f"not in {_PATIENCE_S} s: {what}; {found}"
            time.sleep(0.05)
        return found


@contextmanager
def live_writer(root: Path, seed: int, rate: int) -> Iterator[Writer]:
    command = [sys.executable, "-m", "tests.spark.live_writer", str(root), str(seed), str(rate)]
    with subprocess.Popen(command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "open\n"
            yield Writer(process)
        finally:
            process.kill()


def check_store(root: Path) -> int:
    """Compare queues and index with what plain Python makes of the log; returns how many messages there are."""
    files = {ROOT / path.relative_to(root): path.read_bytes() for path in root.rglob("*") if path.is_file()}
    disk = CrashDisk.of_files({path: content for path, content in files.items() if _is_of_store(path)})
    check_derived(disk, CONFIG)
    return len(messages_in(disk.files()))


def _is_of_store(path: Path) -> bool:
    return path.parts[1] in (tree.COMMITLOG, tree.CONSUMEQUEUE, tree.INDEX)


def messages_of(root: Path) -> list[Any]:
    """Return every message of a store's log."""
    files = {ROOT / path.relative_to(root): path.read_bytes() for path in (root / tree.COMMITLOG).iterdir()}
    return messages_in(files)
