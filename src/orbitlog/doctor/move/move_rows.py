"""Rows of `doctor move`: what a change of brokers would refuse, change or keep."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum


class MoveSeverity(Enum):
    """Whether the other broker refuses to start, loses or changes something, or continues as before."""

    REFUSED = "refused"
    CHANGES = "changes"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class MoveRow:
    """One thing to know before a store is moved: kind, path or setting, a sentence, and the next step, if any."""

    severity: MoveSeverity
    kind: str
    sentence: str
    path: str | None = None
    setting: str | None = None
    next_step: str | None = None

    def as_object(self) -> dict[str, str]:
        """Return the JSON object that the command prints: only the fields that are set."""
        fields = {
            "severity": self.severity.value,
            "kind": self.kind,
            "path": self.path,
            "setting": self.setting,
            "sentence": self.sentence,
            "next": self.next_step,
        }
        return {name: value for name, value in fields.items() if value is not None}

    def __str__(self) -> str:
        subject = self.path or self.setting
        # A sentence of the store or of a setting names its subject itself.
        where = f"{subject}: " if subject is not None and subject not in self.sentence else ""
        step = f" Next: {self.next_step}." if self.next_step else ""
        return f"{self.severity.value}: {self.kind}: {where}{self.sentence}.{step}"


ROW_FIELDS = ("severity", "kind", "path", "setting", "sentence", "next")


def is_free(rows: Iterable[MoveRow]) -> bool:
    """Return whether nothing would be refused, lost or changed."""
    return all(row.severity is MoveSeverity.NOTE for row in rows)


def refused(kind: str, sentence: str, **details: object) -> MoveRow:
    """Return a row for something with which the other broker does not start."""
    return _row(MoveSeverity.REFUSED, kind, sentence, details)


def changes(kind: str, sentence: str, **details: object) -> MoveRow:
    """Return a row for something that would be lost, hidden, delivered twice or done in another way."""
    return _row(MoveSeverity.CHANGES, kind, sentence, details)


def note(kind: str, sentence: str, **details: object) -> MoveRow:
    """Return a row for something that continues."""
    return _row(MoveSeverity.NOTE, kind, sentence, details)


def _row(severity: MoveSeverity, kind: str, sentence: str, details: dict[str, object]) -> MoveRow:
    """Return a row; `details` are `path`, `setting` and `next_step`, each written as text."""
    texts = {name: str(value) for name, value in details.items() if value is not None}
    return MoveRow(severity, kind, sentence.removesuffix("."), **texts)
