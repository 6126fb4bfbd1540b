"""Write-ahead marks: record which partitions of an epoch were begun and which are complete.

    <write id>/<epoch>/<partition>.begun   before the first send
    <write id>/<epoch>/<partition>.done    after the last acknowledgement: rows, digest, half messages
    <write id>/<epoch>/committing          before the first half message of the epoch is committed

A partition without a mark has sent nothing. One that was begun may have sent anything to the brokers that its mark
names, so each row is looked up before it is sent. One that is done is skipped.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

import orjson

from orbitlog.pipeline.runtime.location_files import LocationFiles
from orbitlog.pipeline.sink.write_identity import WriteIdentity

_EPOCHS_KEPT = 2


@dataclass(frozen=True, slots=True)
class HalfMessage:
    """A half message: everything that is needed to commit it or roll it back."""

    topic: str
    broker_name: str
    unique_id: str
    queue_offset: int
    physical_offset: int


@dataclass(slots=True)
class PartitionReport:
    """What a task has done: rows sent, rows found at the broker, failed rows, and half messages."""

    partition: int
    sent: int = 0
    found: int = 0
    failed: int = 0
    digest: str = ""
    is_repeated: bool = False
    halves: list[HalfMessage] = field(default_factory=list)


class SinkMarks:
    """The marks of one write; without a directory nothing is recorded."""

    def __init__(self, files: LocationFiles | None) -> None:
        self._files = files

    def begun(self, identity: WriteIdentity) -> list[str] | None:
        """Return the names of the brokers that a begun partition may have sent to; None if it was not begun."""
        raw = None if self._files is None else self._files.read(f"{identity.text}.begun")
        return None if raw is None else list(orjson.loads(raw)["brokers"])

    def begin(self, identity: WriteIdentity, brokers: Iterable[str]) -> None:
        if self._files is not None:
            self._files.write(f"{identity.text}.begun", orjson.dumps({"brokers": sorted(brokers)}))

    def done(self, identity: WriteIdentity) -> PartitionReport | None:
        """Return the report of a complete partition, or None."""
        raw = None if self._files is None else self._files.read(f"{identity.text}.done")
        if raw is None:
            return None
        value: dict[str, Any] = orjson.loads(raw)
        halves = [HalfMessage(**half) for half in value.pop("halves")]
        return PartitionReport(**value, halves=halves)

    def finish(self, identity: WriteIdentity, report: PartitionReport) -> None:
        if self._files is not None:
            self._files.write(f"{identity.text}.done", orjson.dumps(asdict(report)))

    def begin_commit(self, write_id: str, epoch: int) -> bool:
        """Record that an epoch is being committed; return whether that was recorded before."""
        if self._files is None:
            return False
        name = f"{write_id}/{epoch}/committing"
        if self._files.read(name) is not None:
            return True
        self._files.write(name, b"{}")
        return False

    def delete_old(self, write_id: str, epoch: int) -> None:
        """Delete the marks of epochs that Spark will not repeat: only the last one can be."""
        if self._files is None:
            return
        for name in self._files.names(write_id):
            if name.isdecimal() and int(name) <= epoch - _EPOCHS_KEPT:
                self._files.delete_directory(f"{write_id}/{name}")


def marks_at(path: str | None) -> SinkMarks:
    """Return the marks below a directory or URI; without one nothing is recorded."""
    return SinkMarks(None if path is None else LocationFiles(path))


class BegunMark:
    """The `.begun` mark of a running partition; names every broker before the first row is sent to it."""

    def __init__(self, marks: SinkMarks, identity: WriteIdentity, brokers: Iterable[str]) -> None:
        self._marks = marks
        self._identity = identity
        self._brokers = set(brokers)

    def add(self, broker_name: str) -> None:
        """Add a broker that was not registered when the partition began."""
        if broker_name not in self._brokers:
            self._brokers.add(broker_name)
            self._marks.begin(self._identity, self._brokers)
