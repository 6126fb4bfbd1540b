"""Compaction records: the output files of each Delta or Iceberg compaction, saved before they are written.

A record is `_orbitlog/compactions/<number>.json`. The table stores the number of its last compaction with the commit
that replaced the files. So a later compaction can detect whether one that was killed has committed, and deletes its
output files if not.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import orjson

from orbitlog.pipeline.export.compaction_plan import CompactionError
from orbitlog.pipeline.export.export_plan import STATE_DIRECTORY
from orbitlog.pipeline.runtime.location_files import LocationFiles

RECORDS = f"{STATE_DIRECTORY}/compactions"
RECORD_NAME = re.compile(r"[0-9]{20}\.json")
# Without locks, an older record is that of a killed compaction.
_ABANDONED_MS = 24 * 3600 * 1000


class CompactionRecords:
    """The records of a table."""

    def __init__(self, target: Path | str) -> None:
        self._files = LocationFiles(target)

    def numbers(self) -> list[int]:
        """Return the numbers of unfinished compactions."""
        names = self._files.names(RECORDS)
        return [int(name.partition(".")[0]) for name in names if RECORD_NAME.fullmatch(name)]

    def save(self, number: int, outputs: Sequence[str]) -> None:
        value = {"outputs": list(outputs), "timeMs": int(time.time() * 1000)}
        self._files.write(record_name(number), orjson.dumps(value))

    def check(self, number: int) -> None:
        """Raise `CompactionError` if another process has taken this compaction for abandoned."""
        if not self._files.exists(record_name(number)):
            raise CompactionError(f"another compaction of {self._files} has deleted the files of this one")

    def delete(self, number: int) -> None:
        self._files.delete(record_name(number))

    def clean_up(self, committed: int) -> None:
        """Delete the output files of compactions that were killed before their commit.

        Object stores have no locks: raise `CompactionError` there if one may still run.
        """
        for number in self.numbers():
            written = self._files.read(record_name(number))
            value = {} if written is None else orjson.loads(written)
            if number > committed:
                if not self._files.is_local:
                    self._check_abandoned(number, value.get("timeMs", 0))
                    self.delete(number)  # first: a compaction that still runs then refuses to commit
                self._delete_outputs(value.get("outputs", ()))
            self.delete(number)

    def _check_abandoned(self, number: int, began_ms: int) -> None:
        if int(time.time() * 1000) - began_ms < _ABANDONED_MS:
            began = datetime.fromtimestamp(began_ms // 1000, UTC).isoformat()
            raise CompactionError(
                f"a compaction of {self._files} that began at {began} has not ended; if it was killed, wait until it is"
                f" a day old, or delete {record_name(number)}"
            )

    def _delete_outputs(self, outputs: Sequence[str]) -> None:
        for path in outputs:
            self._files.delete(path)
            directory, _, name = path.rpartition("/")
            attempts = (other for other in self._files.names(directory, hidden=True) if other.startswith(f".{name}."))
            for attempt in attempts:
                self._files.delete(f"{directory}/{attempt}")


def record_name(number: int) -> str:
    return f"{RECORDS}/{number:020d}.json"
