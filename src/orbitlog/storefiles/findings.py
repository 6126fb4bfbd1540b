"""What can be wrong with a store, in one form for every tool that looks: where, what, how much, whose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from orbitlog.storefiles.damage import DamagedRange

KINDS = {
    "record": "bytes of the log that are no record, or one whose checksum is wrong",
    "segment": "a segment of the log that is missing, too short, too long or of another log",
    "queue order": "messages of one queue whose offsets do not follow each other, or cannot be",
    "queue unit": "a ConsumeQueue unit that is not what the log says",
    "queue file": "a file of a ConsumeQueue that is missing, or of the wrong size or place",
    "index": "an IndexFile whose keys, chains or header are not what the log says",
    "checkpoint": "a checkpoint that cannot be true",
    "config": "a file of config/ that cannot be read",
    "layout": "something in the store's directory that does not belong there",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong; `position` is the byte in the file, `count` how many bytes, units or keys are."""

    kind: str
    path: str
    reason: str
    position: int | None = None
    count: int = 1
    physical_offset: int | None = None
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    store: str | None = None

    @classmethod
    def of_damage(cls, damage: DamagedRange, kind: str = "record") -> Finding:
        went_on = "nothing follows" if damage.resumed_at is None else f"reading went on at {damage.resumed_at}"
        reason = f"{damage.reason}; {damage.size_bytes} bytes skipped, {went_on}"
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

    def as_object(self) -> dict[str, Any]:
        """Return the JSON object that commands print: only what is known."""
        values = {name: getattr(self, name) for name in self.__slots__}
        names = {"physical_offset": "physicalOffset", "queue_id": "queueId", "queue_offset": "queueOffset"}
        return {names.get(name, name): value for name, value in values.items() if value is not None}

    def __str__(self) -> str:
        where = f"{self.path}: byte {self.position}" if self.position is not None else self.path
        queue = "" if self.topic is None else f", {self.topic}"
        queue += "" if self.topic is None or self.queue_id is None else f" queue {self.queue_id}"
        queue += "" if self.queue_offset is None else f", queue offset {self.queue_offset}"
        physical = "" if self.physical_offset is None else f", physical offset {self.physical_offset}"
        return f"{where}{physical}{queue}: {self.reason}"
