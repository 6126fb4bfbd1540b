"""A doctor in a process of its own, to be killed: `python -m tests.faults.doctor_process VERB STORE [CALL]`.

It counts what it asks of the file system and says so at its end; with a number it kills itself (-9) just before the
call of that number. No clock decides, so a seed repeats a run.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from orbitlog.doctor.convert.store_convert import convert_store
from orbitlog.doctor.examination import examine
from orbitlog.doctor.repair.derived_rebuild import RebuildWish, rebuild_in_place
from orbitlog.doctor.repair.repair_journal import undo_last
from orbitlog.doctor.repair.store_repair import apply_repair
from orbitlog.jobs.store_use import taken
from orbitlog.settings.store_settings import StoreSettings

_EVENTS = frozenset(
    ("open", "mmap.__new__", "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.truncate", "os.utime")
)
_FUNCTIONS = ("fsync", "fdatasync", "pwrite", "write", "ftruncate", "posix_fallocate")


class Calls:
    """Counts calls, and ends the process at one of them."""

    def __init__(self, last: int | None) -> None:
        self.count = 0
        self._last = last
        for name in _FUNCTIONS:
            setattr(os, name, self._counted(getattr(os, name)))
        sys.addaudithook(self._heard)

    def _counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **more: Any) -> Any:
            self._one()
            return function(*arguments, **more)

        return counted

    def _heard(self, event: str, _: tuple[Any, ...]) -> None:
        if event in _EVENTS:
            self._one()

    def _one(self) -> None:
        self.count += 1
        if self.count == self._last:
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    verb, root = sys.argv[1], Path(sys.argv[2])
    calls = Calls(int(sys.argv[3]) if len(sys.argv) > 3 else None)
    if verb == "check":
        examine(root)
    elif verb == "repair":
        apply_repair(root, accept_lost_segments=True)
    elif verb == "rebuild":
        rebuild_in_place(root, RebuildWish(), StoreSettings())
    elif verb == "convert":
        convert_store(root, root.with_name("converted"), StoreSettings())
    else:
        with taken(root):
            undo_last(root)
    sys.stdout.write(f"{calls.count}\n")


if __name__ == "__main__":
    main()
