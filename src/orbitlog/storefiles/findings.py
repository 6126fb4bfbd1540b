"""Findings: what a check found wrong with a store, in one form for every tool.

A decision is made from the fields of a finding, never from the words of its `reason`: those are for people.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from orbitlog.storefiles.damage import DamagedRange


class FindingKind(StrEnum):
    """What a finding is about; the value is the `kind` that commands print as JSON.

    Severity, consequence, remedy and planner of each kind: `orbitlog.doctor.finding_kinds`.
    """

    RECORD = "record"
    """Bytes of the log that are not a record, or a record with a wrong checksum."""
    PROPERTIES = "properties"
    """Properties of a message that contain as many zero bytes as a sector that was lost."""
    SEGMENT = "segment"
    """A segment that is missing, misplaced, or of the wrong size."""
    LOG_END = "log end"
    """A log that ends before messages that queues, checkpoint or Orbitlog's state file refer to."""
    TORN_RECORD = "torn record"
    """A last record that Orbitlog wrote, with zeros in place of properties."""
    LOG = "log"
    """A log without a message, in a store whose other files refer to messages."""
    ENTRY = "entry"
    """A header of a DLedger entry that contradicts its neighbours, or a log without its committed entry."""
    ENTRY_INDEX = "entry index"
    """An index file of DLedger that is missing, or whose units differ from the entries."""
    UNCOMMITTED = "uncommitted"
    """Entries of DLedger after the committed one, or a checkpoint of DLedger that states none."""
    QUEUE_ORDER = "queue order"
    """Messages of one queue whose queue offsets are invalid or not consecutive."""
    QUEUE_UNIT = "queue unit"
    """A ConsumeQueue unit that differs from the log."""
    QUEUE_FILE = "queue file"
    """A ConsumeQueue file that is missing or of the wrong size."""
    INDEX = "index"
    """An IndexFile whose entries, slots or header differ from the log."""
    CHECKPOINT = "checkpoint"
    """A checkpoint that is missing, or that the log contradicts."""
    CONFIG = "config"
    """A file below config/ that is unreadable, and so is its backup."""
    CONFIG_BACKUP_IN_USE = "config backup in use"
    """A file below config/ that is unreadable, with a readable backup."""
    CONFIG_BACKUP_READ = "config backup read"
    """The same after a broker was killed while it replaced the file."""
    CONFIG_NOTE = "config note"
    """A backup that is unreadable, of a file that is readable."""
    PROGRESS_UNKNOWN = "progress unknown"
    """The table of committed offsets is missing, though there were consumer groups."""
    TOPIC = "topic"
    """A topic with queue files and without an entry in topics.json."""
    TOPIC_LIFE = "topic life"
    """A topic that was deleted, and perhaps created again, while its messages are in the log."""
    QUEUE_COUNT = "queue count"
    """A topic with fewer read queues than the log has messages for."""
    QUEUE_COUNT_CONSUMED = "queue count consumed"
    """The same if every consumer group has consumed those queues."""
    OFFSET = "offset"
    """A committed offset or a delivery position that is outside of its queue."""
    EARLIER_LIFE = "earlier life"
    """The same for a topic that was created again: the offset dates from before."""
    RETIRED = "retired"
    """Queue units for messages before the start of the log."""
    BEHIND = "behind"
    """Messages that are not in queues or index yet; the next broker dispatches them."""
    TIMER = "timer"
    """Timer files of 5.x that contradict each other or the log."""
    TIMER_WHEEL = "timer wheel"
    """A missing timer wheel that brokers rebuild from the timer log."""
    FOREIGN_SEGMENT = "foreign segment"
    """An entry that keeps brokers from starting: not a file of the store, in one of its directories."""
    LAYOUT = "layout"
    """An entry that does not belong to the store, and that brokers ignore."""
    UNCHECKED = "unchecked"
    """A part of the store that Orbitlog does not read."""
    LINK = "link"
    """A part of the store that is reached through a symbolic link."""
    UNREADABLE = "unreadable"
    """A segment that could not be opened."""
    LOCK = "lock"
    """A lock file that is not a file."""
    JOURNAL = "journal"
    """A repair journal that is unreadable."""
    REPAIR = "repair"
    """A repair that was interrupted."""
    ABORT = "abort"
    """The broker was not stopped cleanly, or is running."""


_JSON_NAMES = {"physical_offset": "physicalOffset", "queue_id": "queueId", "queue_offset": "queueOffset"}
# Facts for the planners of a repair: not a part of the JSON that commands print.
_INTERNAL = frozenset(("previous_queue_offset", "is_stray_unit"))


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong; `position` is the byte in the file, `count` the number of bytes, units or keys."""

    kind: FindingKind
    path: str
    reason: str
    position: int | None = None
    count: int = 1
    physical_offset: int | None = None
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    store: str | None = None
    previous_queue_offset: int | None = None
    """QUEUE_ORDER: the queue offset of the message before it in the log, which `queue_offset` does not follow."""
    is_stray_unit: bool = False
    """QUEUE_UNIT: the unit points to a record that the log does not have in this queue at this queue offset."""

    @classmethod
    def of_damage(cls, damage: DamagedRange, kind: FindingKind = FindingKind.RECORD) -> Finding:
        resumed = "nothing follows" if damage.resumed_at is None else f"reading continued at {damage.resumed_at}"
        reason = f"{damage.reason}; {damage.size_bytes} bytes skipped, {resumed}"
        is_log = damage.counter == "physical offset"
        return cls(
            kind,
            str(damage.path),
            reason,
            position=damage.position,
            count=damage.size_bytes,
            physical_offset=damage.start if is_log else None,
            queue_offset=None if is_log else damage.start,
        )

    @classmethod
    def from_report(cls, values: dict[str, Any]) -> Finding:
        """Return a finding from `dataclasses.asdict` of it, after a round trip through JSON."""
        return cls(**{**values, "kind": FindingKind(values["kind"])})

    def as_object(self) -> dict[str, Any]:
        """Return the JSON object that commands print, without the fields that are not known."""
        values = {name: getattr(self, name) for name in self.__slots__ if name not in _INTERNAL}
        values["kind"] = self.kind.value
        return {_JSON_NAMES.get(name, name): value for name, value in values.items() if value is not None}

    def __str__(self) -> str:
        where = f"{self.path}: byte {self.position}" if self.position is not None else self.path
        queue = "" if self.topic is None else f", {self.topic}"
        queue += "" if self.topic is None or self.queue_id is None else f" queue {self.queue_id}"
        queue += "" if self.queue_offset is None else f", queue offset {self.queue_offset}"
        physical = "" if self.physical_offset is None else f", physical offset {self.physical_offset}"
        return f"{where}{physical}{queue}: {self.reason}"
