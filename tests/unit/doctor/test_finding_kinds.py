"""The table of finding kinds is complete, and consistent with itself."""

from __future__ import annotations

from dataclasses import asdict

import orjson
import pytest

from orbitlog.doctor.diagnosis import diagnose
from orbitlog.doctor.finding_kinds import MEANINGS, DerivedPart, Planner, Severity, parts_of
from orbitlog.storefiles.findings import Finding, FindingKind


def test_table_has_every_kind() -> None:
    assert MEANINGS.keys() == set(FindingKind)


@pytest.mark.parametrize("kind", FindingKind)
def test_kind_to_repair_has_a_planner_and_a_command(kind: FindingKind) -> None:
    meaning = MEANINGS[kind]
    assert meaning.consequence and not meaning.consequence.endswith(".")
    if meaning.severity is Severity.NOTE:
        assert meaning.command is None and not meaning.planners
    if meaning.command is not None:
        assert "{store}" in meaning.command
    # An interrupted repair is finished by its own journal; a log that is elsewhere is put back by an operator, and that
    # of a DLedger member is taken from another member.
    elsewhere = (
        FindingKind.REPAIR,
        FindingKind.LOG,
        FindingKind.UNREADABLE,
        FindingKind.ENTRY,
        FindingKind.ENTRY_INDEX,
    )
    assert bool(meaning.planners) == (meaning.severity is not Severity.NOTE and kind not in elsewhere)


def test_every_planner_repairs_a_kind() -> None:
    assert {planner for meaning in MEANINGS.values() for planner in meaning.planners} == set(Planner)


def test_kinds_of_derived_files_name_their_part() -> None:
    assert parts_of([Finding(kind, "path", "reason") for kind in FindingKind]) == set(DerivedPart)
    assert MEANINGS[FindingKind.INDEX].command == "orbitlog doctor rebuild {store} --index"


def test_incomplete_log_leaves_no_command() -> None:
    for kind in FindingKind:
        assert diagnose(Finding(kind, "path", "reason"), "store", is_log_complete=False).command is None


def test_finding_survives_a_report_and_prints_no_internal_fact() -> None:
    finding = Finding(
        FindingKind.QUEUE_ORDER, "path", "reason", queue_offset=7, previous_queue_offset=3, is_stray_unit=True
    )
    assert Finding.from_report(orjson.loads(orjson.dumps(asdict(finding)))) == finding
    assert finding.as_object() == {
        "kind": "queue order",
        "path": "path",
        "reason": "reason",
        "count": 1,
        "queueOffset": 7,
    }
    assert type(finding.as_object()["kind"]) is str
