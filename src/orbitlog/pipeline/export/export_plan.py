"""Batches of an export: what each holds is written down before it is made, so that making it again makes the same.

A batch is a range of offsets of every queue. Its plan, with the tasks it is cut into, lies in
`_orbitlog/plans/<number>.json` before the first task runs; names of files follow from number and task. Whatever stops
an export, the next run makes exactly the planned batch again, over the same names, and then commits it; a sink
that has already committed that number says so.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

from orbitlog.errors import OrbitlogError
from orbitlog.pipeline.sources.read_plan import QueueRange, StoreShape, plan_tasks
from orbitlog.pipeline.sources.topic_offsets import Offsets, from_nested, nested
from orbitlog.settings.atomic_file import replace_file

STATE_DIRECTORY = "_orbitlog"
_PLANS = "plans"
_IDENTITY = "export.json"
_PLAN_NAME = re.compile(r"[0-9]{20}\.json")
_PLANS_KEPT = 16


class ExportError(OrbitlogError):
    """An export that cannot go on here; nothing was added."""


@dataclass(frozen=True, slots=True)
class ExportBatch:
    """One batch: its number, the offsets it goes from and to, and the ranges of each task."""

    number: int
    start: Offsets
    end: Offsets
    tasks: tuple[tuple[QueueRange, ...], ...]

    @property
    def range_id(self) -> str:
        """The batch's range of the log, as text: who finds it in a table knows what is in it."""
        return orjson.dumps({"from": nested(self.start), "to": nested(self.end)}).decode()


def plan_batch(number: int, start: Offsets, end: Offsets, ranges: Sequence[QueueRange]) -> ExportBatch:
    return ExportBatch(number, start, end, tuple(plan_tasks(ranges)))


class ExportState:
    """What an export knows of itself, in the directory it writes to."""

    def __init__(self, target: Path) -> None:
        self._directory = target / STATE_DIRECTORY

    def begin(self, identity: dict[str, Any]) -> None:
        """Begin or go on; a directory that holds another export, or anything else, is refused."""
        path = self._directory / _IDENTITY
        if path.exists():
            known = orjson.loads(path.read_bytes())
            for name, value in identity.items():
                if known.get(name) != value:
                    raise ExportError(
                        f"{self._directory.parent} holds an export with {name} {known.get(name)!r}, not {value!r};"
                        " give another directory, or the same settings"
                    )
            return
        target = self._directory.parent
        if target.exists() and any(target.iterdir()) and not self._directory.exists():
            raise ExportError(f"{target} is not empty and holds no export; give a new directory")
        (self._directory / _PLANS).mkdir(parents=True, exist_ok=True)
        write_whole(path, orjson.dumps(identity, option=orjson.OPT_INDENT_2))

    @property
    def directory(self) -> Path:
        return self._directory

    def save(self, batch: ExportBatch) -> None:
        """Write a plan down; it is on the disk when this returns."""
        value = {
            "batch": batch.number,
            "start": nested(batch.start),
            "end": nested(batch.end),
            "tasks": [[asdict(found) for found in task] for task in batch.tasks],
        }
        write_whole(self._path(batch.number), orjson.dumps(value))
        self._forget_old(batch.number)

    def load(self, number: int) -> ExportBatch | None:
        path = self._path(number)
        if not path.exists():
            return None
        value = orjson.loads(path.read_bytes())
        tasks = tuple(
            tuple(QueueRange(**{**found, "shape": StoreShape(**found["shape"])}) for found in task)
            for task in value["tasks"]
        )
        return ExportBatch(number, from_nested(value["start"]), from_nested(value["end"]), tasks)

    def _path(self, number: int) -> Path:
        return self._directory / _PLANS / f"{number:020d}.json"

    def _forget_old(self, number: int) -> None:
        names = sorted(path for path in (self._directory / _PLANS).iterdir() if _PLAN_NAME.fullmatch(path.name))
        for path in names[:-_PLANS_KEPT]:
            if int(path.stem) < number - _PLANS_KEPT:
                path.unlink(missing_ok=True)


def write_whole(path: Path, data: bytes) -> None:
    """Write a file that is there entirely or not at all, also after a power cut."""
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, data)
