"""Export plans: the content of each batch is saved before it is written, so that a repeated batch is identical.

A batch is a range of offsets of every queue. Its plan, with the tasks it is cut into, is saved in
`_orbitlog/plans/<number>.json` before the first task runs; file names follow from batch number and task. If an export
is interrupted, the next run writes exactly the planned batch under the same names, and then commits it. The table
reports whether it has already committed that number.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

from orbitlog.errors import OrbitlogError
from orbitlog.pipeline.runtime.location_files import LocationFiles
from orbitlog.pipeline.sources.json_columns import JsonColumns, parse_json_columns
from orbitlog.pipeline.sources.read_plan import ClusterShape, QueueRange, StoreShape, plan_tasks
from orbitlog.pipeline.sources.topic_offsets import Offsets, from_nested, nested
from orbitlog.settings.atomic_file import replace_file

STATE_DIRECTORY = "_orbitlog"
_PLANS = f"{STATE_DIRECTORY}/plans"
_IDENTITY = f"{STATE_DIRECTORY}/export.json"
_JSON_COLUMNS = "jsonColumns"  # the only setting that may change: a later run may add columns
_PLAN_NAME = re.compile(r"[0-9]{20}\.json")
_PLANS_KEPT = 16


class ExportError(OrbitlogError):
    """An export failed; nothing was added to the table."""


@dataclass(frozen=True, slots=True)
class ExportBatch:
    """One batch: its number, its start and end offsets, and the ranges of each task."""

    number: int
    start: Offsets
    end: Offsets
    tasks: tuple[tuple[QueueRange, ...], ...]

    @property
    def range_id(self) -> str:
        """The offsets of the batch as JSON, stored with the table's commit to document its content."""
        return orjson.dumps({"from": nested(self.start), "to": nested(self.end)}).decode()


def read_identity(target: Path | str) -> dict[str, Any] | None:
    """Return the settings of the export in a directory, None if it contains none."""
    written = LocationFiles(target).read(_IDENTITY)
    return None if written is None else dict(orjson.loads(written))


def plan_batch(number: int, start: Offsets, end: Offsets, ranges: Sequence[QueueRange]) -> ExportBatch:
    return ExportBatch(number, start, end, tuple(plan_tasks(ranges)))


class ExportState:
    """Persistent state of an export in its target directory: identity and plans."""

    def __init__(self, target: Path | str) -> None:
        self._files = LocationFiles(target)

    def begin(self, identity: dict[str, Any]) -> None:
        """Start or resume an export; raise `ExportError` if the directory holds another export or other files."""
        written = self._files.read(_IDENTITY)
        if written is not None:
            saved = orjson.loads(written)
            for name, value in identity.items():
                if name != _JSON_COLUMNS and saved.get(name) != value:
                    raise ExportError(
                        f"{self._files} holds an export with {name} {saved.get(name)!r}, not {value!r};"
                        " give another directory, or the same settings"
                    )
            if saved.get(_JSON_COLUMNS) != identity.get(_JSON_COLUMNS):
                self._check_columns(saved.get(_JSON_COLUMNS) or [], identity.get(_JSON_COLUMNS) or [])
                self._files.write(_IDENTITY, orjson.dumps(identity, option=orjson.OPT_INDENT_2))
            return
        names = self._files.names(hidden=True)
        if names and STATE_DIRECTORY not in names:
            raise ExportError(f"{self._files} is not empty and contains no export; give a new directory")
        self._files.write(_IDENTITY, orjson.dumps(identity, option=orjson.OPT_INDENT_2))

    def _check_columns(self, saved: Sequence[str], given: Sequence[str]) -> None:
        """Raise `ExportError` unless the JSON columns of a later run are those of the table, and perhaps more."""
        if not saved:
            return
        columns = JsonColumns(()) if not given else parse_json_columns(", ".join(given))
        if missing := columns.lacks(parse_json_columns(", ".join(saved))):
            raise ExportError(
                f"{self._files} has JSON columns {', '.join(saved)}, and the schema leaves out or changes"
                f" {', '.join(missing)}; keep these columns and their types, and add others after them"
            )

    @property
    def directory(self) -> str:
        return f"{self._files}/{STATE_DIRECTORY}"

    def save(self, batch: ExportBatch) -> None:
        """Save a plan durably."""
        value = {
            "batch": batch.number,
            "start": nested(batch.start),
            "end": nested(batch.end),
            "tasks": [[asdict(queue_range) for queue_range in task] for task in batch.tasks],
        }
        self._files.write(_plan_name(batch.number), orjson.dumps(value))
        self._delete_old(batch.number)

    def load(self, number: int) -> ExportBatch | None:
        """Return a saved plan, or None."""
        written = self._files.read(_plan_name(number))
        if written is None:
            return None
        value = orjson.loads(written)
        tasks = tuple(
            tuple(QueueRange(**{**fields, "shape": shape_from_fields(fields["shape"])}) for fields in task)
            for task in value["tasks"]
        )
        return ExportBatch(number, from_nested(value["start"]), from_nested(value["end"]), tasks)

    def _delete_old(self, number: int) -> None:
        names = [name for name in self._files.names(_PLANS) if _PLAN_NAME.fullmatch(name)]
        for name in names[:-_PLANS_KEPT]:
            if int(name.partition(".")[0]) < number - _PLANS_KEPT:
                self._files.delete(f"{_PLANS}/{name}")


def _plan_name(number: int) -> str:
    return f"{_PLANS}/{number:020d}.json"


def shape_from_fields(fields: dict[str, Any]) -> StoreShape | ClusterShape:
    """Return the shape of a saved plan: that of a store has a root."""
    return StoreShape(**fields) if "root" in fields else ClusterShape(**fields)


def write_whole(path: Path, data: bytes) -> None:
    """Write a file atomically and durably: after a power cut it is complete or absent."""
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, data)
