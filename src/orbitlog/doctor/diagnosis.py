"""Findings in plain words: how bad each is, what follows from it, and which command mends it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from orbitlog.storefiles.findings import Finding


class Severity(Enum):
    """An error loses messages or keeps a broker from starting; a warning can be mended from the log; a note is one."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A finding with what an operator asks next."""

    finding: Finding
    severity: Severity
    consequence: str
    command: str | None = None

    def as_object(self) -> dict[str, Any]:
        """Return the JSON object that the command prints."""
        told: dict[str, Any] = {"severity": self.severity.value, **self.finding.as_object()}
        told["consequence"] = self.consequence
        return told if self.command is None else told | {"command": self.command}

    def __str__(self) -> str:
        mend = "" if self.command is None else f" Mend it: {self.command}"
        return f"{self.severity.value}: {self.finding}. {self.consequence}.{mend}"


_REPAIR = "orbitlog doctor repair {store}"
_REBUILD = "orbitlog doctor rebuild {store} --{part}"

# By kind: how bad, what follows, what mends.
_MEANING: dict[str, tuple[Severity, str, str | None]] = {
    "record": (
        Severity.ERROR,
        "What lies here cannot be served, and a Java broker that was not closed cuts its log here,"
        " with all that follows",
        _REPAIR,
    ),
    "segment": (
        Severity.ERROR,
        "Messages of this range cannot be served; brokers refuse to start on a segment of the wrong size",
        _REPAIR,
    ),
    "log": (Severity.ERROR, "No message of this store can be served; bring the log back from wherever it is", None),
    "queue order": (
        Severity.ERROR,
        "When queues are derived again, Java says [BUG]logic queue order maybe wrong,"
        " and consumers find messages under other offsets",
        _REPAIR,
    ),
    "queue unit": (
        Severity.WARNING,
        "Consumers of this queue miss messages or get the wrong ones; the messages are in the log",
        _REBUILD.replace("{part}", "queues"),
    ),
    "queue file": (
        Severity.WARNING,
        "Consumers of this queue miss messages, and a broker refuses to start on a file of the wrong size;"
        " the messages are in the log",
        _REBUILD.replace("{part}", "queues"),
    ),
    "index": (
        Severity.WARNING,
        "Queries by key miss messages or find wrong ones; the messages are in the log",
        _REBUILD.replace("{part}", "index"),
    ),
    "checkpoint": (
        Severity.WARNING,
        "A recovery would begin in the wrong place",
        _REBUILD.replace("{part}", "checkpoint"),
    ),
    "config": (
        Severity.ERROR,
        "A broker starts with an empty table here, and writes that over what is left;"
        " Java's does not start where a backup is there that cannot be read, either",
        _REPAIR,
    ),
    "config backup in use": (Severity.WARNING, "Brokers take the backup, which is one change older", _REPAIR),
    "config note": (Severity.NOTE, "Brokers do not need it", None),
    "config backup read": (
        Severity.NOTE,
        "The broker was killed while it replaced the file; the next one reads the backup, as it should",
        None,
    ),
    "progress unknown": (
        Severity.NOTE,
        "Nobody can tell how far consumer groups were: each begins where its clients say, at the end or at the"
        " beginning; `orbitlog offsets reset` puts them at a time",
        None,
    ),
    "topic": (
        Severity.WARNING,
        "Clients are told that the topic does not exist, though its messages are here",
        _REPAIR,
    ),
    "queue count": (
        Severity.WARNING,
        "Clients are not told of these queues, and nobody consumes their messages",
        _REPAIR,
    ),
    "queue count consumed": (Severity.NOTE, "Every consumer group has consumed what the other queues hold", None),
    "earlier life": (
        Severity.NOTE,
        "The offset is from before the topic was deleted and created again; consumers of this group continue at the end"
        " of the queue, `orbitlog offsets reset` puts them elsewhere",
        None,
    ),
    "retired": (
        Severity.NOTE,
        "Consumers begin with the first message that is there; if nobody removed the segments before on purpose,"
        " bring them back: queues lead to them again at once",
        None,
    ),
    "foreign segment": (
        Severity.ERROR,
        "A Java broker does not start: NumberFormatException or IllegalArgumentException over the file's name or size",
        _REPAIR,
    ),
    "journal": (
        Severity.ERROR,
        "What it says was done can be neither ended nor taken back; a repair sets it aside, unless it may hold files"
        " of the store",
        _REPAIR,
    ),
    "lock": (Severity.ERROR, "No broker can take the store; it holds nothing that a store needs", _REPAIR),
    "link": (
        Severity.ERROR,
        "What it leads to belongs to the store and was not looked at; nothing is rebuilt or repaired while it is there:"
        " move the files into the store, or mount their disk in its place",
        None,
    ),
    "unreadable": (
        Severity.ERROR,
        "A part of the log was not looked at; nothing is rebuilt or repaired until it can be read",
        None,
    ),
    "unchecked": (Severity.NOTE, "Its files were not compared with the log", None),
    "topic life": (Severity.NOTE, "Consumers get what was sent since, as they should", None),
    "offset": (
        Severity.WARNING,
        "Consumers of this group wait for messages that will not come, or are sent back to where they began",
        _REPAIR,
    ),
    "layout": (Severity.NOTE, "Brokers ignore it", None),
    "timer": (
        Severity.ERROR,
        "Messages that wait for their time may be delivered late, twice or not at all, and a Java broker may not start;"
        " after a repair all of them are there, and those that were delivered come again",
        _REPAIR,
    ),
    "timer wheel": (Severity.NOTE, "Brokers make it again from the timer log", None),
    "repair": (
        Severity.ERROR,
        "Half of its changes stand; running it again ends it, orbitlog doctor undo takes it back",
        "orbitlog doctor repair {store} --apply",
    ),
    "abort": (Severity.NOTE, "The broker was not closed; the next one recovers by itself", None),
    "behind": (Severity.NOTE, "The next broker derives them from the log when it starts", None),
}


_GAP = (
    "Messages of this range cannot be served. Nothing is rebuilt or repaired while the segment is missing:"
    " find it on the disk it was moved to, or in a backup"
)
_NOT_JUDGED = "This follows from the missing part of the log, or cannot be judged without it"
_DERIVED = frozenset(
    ("queue unit", "queue file", "queue order", "index", "checkpoint", "offset", "timer", "topic life")
)


def diagnose(finding: Finding, store: str, *, is_log_complete: bool = True) -> Diagnosis:
    """Add to a finding what it means; with an incomplete log no command that changes the store is proposed."""
    severity, consequence, command = _MEANING[finding.kind]
    if is_log_complete:
        return Diagnosis(finding, severity, consequence, None if command is None else command.format(store=store))
    if finding.kind == "segment":
        consequence = _GAP
    elif finding.kind in _DERIVED:
        consequence = _NOT_JUDGED
    return Diagnosis(finding, severity, consequence)
