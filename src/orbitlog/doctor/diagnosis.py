"""Diagnosis: a finding with its severity, its consequence and the command that repairs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from orbitlog.doctor.finding_kinds import MEANINGS, REPAIR, KindMeaning, Severity
from orbitlog.storefiles.findings import Finding, FindingKind


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A finding with what an operator needs to know next."""

    finding: Finding
    severity: Severity
    consequence: str
    command: str | None = None

    def as_object(self) -> dict[str, Any]:
        """Return the JSON object that the command prints."""
        shown: dict[str, Any] = {"severity": self.severity.value, **self.finding.as_object()}
        shown["consequence"] = self.consequence
        return shown if self.command is None else shown | {"command": self.command}

    def __str__(self) -> str:
        remedy = "" if self.command is None else f" Repair it: {self.command}"
        return f"{self.severity.value}: {self.finding}. {self.consequence}.{remedy}"


_GAP = (
    "Messages in this range cannot be served. Nothing is rebuilt or repaired while the segment is missing:"
    " find it on the disk it was moved to, or in a backup"
)
_NOT_JUDGED = "This follows from the missing part of the log, or cannot be judged without it"
_AFTER_LOG = (
    "This may follow from the damage to the log; nothing is rebuilt from a damaged log, and a repair rebuilds what is"
    " wrong after it"
)


# Orbitlog reads a DLedger store and does not write it: commands that would be refused are not proposed.
_OTHER_MEMBER = "take the store of another member of the group"
_CONVERTED = "convert the store with `orbitlog doctor convert`, and repair the converted one"
_PUT_IN_PLACE = "stop the broker and replace the files by those that the command makes"
_CONVERT = "orbitlog doctor convert {store} --out DIR"


def diagnose(
    finding: Finding,
    store: str,
    *,
    is_log_complete: bool = True,
    is_log_damaged: bool = False,
    is_replicated: bool = False,
    is_in_rocksdb: bool = False,
) -> Diagnosis:
    """Return what a finding means; with an incomplete log no command that changes the store is proposed.

    `is_log_damaged`: a finding stops a rebuild, so a repair is proposed in the place of a rebuild.
    `is_replicated`: DLedger replicates the log, so that the store is only read. `is_in_rocksdb`: queues or tables are
    in RocksDB, which is only read; a conversion derives them from the log.
    """
    meaning = MEANINGS[finding.kind]
    if is_log_complete and is_replicated and meaning.severity is not Severity.NOTE:
        return _diagnose_replicated(finding, store, meaning)
    if is_log_complete and is_log_damaged and meaning.part is not None and not is_in_rocksdb:
        return Diagnosis(finding, meaning.severity, _AFTER_LOG, REPAIR.format(store=store))
    if is_log_complete:
        template = _CONVERT if is_in_rocksdb and meaning.command is not None else meaning.command
        command = None if template is None else template.format(store=store)
        return Diagnosis(finding, meaning.severity, meaning.consequence, command)
    if finding.kind is FindingKind.SEGMENT:
        return Diagnosis(finding, meaning.severity, _GAP)
    return Diagnosis(finding, meaning.severity, _NOT_JUDGED if meaning.follows_log else meaning.consequence)


def _diagnose_replicated(finding: Finding, store: str, meaning: KindMeaning) -> Diagnosis:
    """Return what a finding means in a store that is only read."""
    if meaning.part is not None:
        command = f"orbitlog doctor rebuild {store} --{meaning.part} --out DIR"
        return Diagnosis(finding, meaning.severity, f"{meaning.consequence}; {_PUT_IN_PLACE}", command)
    is_ledger = meaning.stops_rebuild or finding.kind in (FindingKind.ENTRY, FindingKind.ENTRY_INDEX)
    remedy = _OTHER_MEMBER if is_ledger else _CONVERTED
    return Diagnosis(finding, meaning.severity, f"{meaning.consequence}; {remedy}")
