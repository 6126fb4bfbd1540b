"""Audit log: JSON lines, repeated refusals counted, control characters escaped, no secrets."""

import json

import pytest

from orbitlog.access import audit_log
from orbitlog.access.audit_log import AuditLog
from orbitlog.access.request_guard import AccessEvent
from orbitlog.access.request_needs import ADMINISTRATIVE_CODES

REFUSED = AccessEvent(False, "bob", "10.0.0.1", 310, ("Topic:T",), "no matched policies.")
ALLOWED = AccessEvent(True, "ann", "10.0.0.1", 3001, ("Cluster:C",))


@pytest.fixture
def clock():
    return [1_700_000_000_000]


@pytest.fixture
def audit(tmp_path, clock):
    log = AuditLog(tmp_path / "access.log", lambda: clock[0])
    yield log
    log.close()


def lines(tmp_path):
    path = tmp_path / "access.log"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_event_is_one_json_object_with_all_facts(tmp_path, audit):
    audit.write(ALLOWED)

    assert lines(tmp_path) == [
        {
            "time": "2023-11-14T22:13:20.000+00:00",
            "decision": "allowed",
            "account": "ann",
            "address": "10.0.0.1",
            "code": 3001,
            "request": "AUTH_CREATE_USER",
            "resources": ["Cluster:C"],
            "reason": "",
            "count": 1,
        }
    ]


def test_repeated_refusal_is_written_once_a_minute_with_its_count(tmp_path, audit, clock):
    for _ in range(5):
        audit.write(REFUSED)
    assert [line["count"] for line in lines(tmp_path)] == [1]
    clock[0] += 60_000
    audit.write(REFUSED)
    assert [line["count"] for line in lines(tmp_path)] == [1, 5]


def test_counts_are_written_when_the_log_is_closed(tmp_path, audit):
    for _ in range(3):
        audit.write(REFUSED)
    audit.close()

    assert [line["count"] for line in lines(tmp_path)] == [1, 2]


def test_administrative_requests_are_all_written(tmp_path, audit):
    for _ in range(3):
        audit.write(ALLOWED)

    assert len(lines(tmp_path)) == 3


def test_control_characters_cannot_forge_a_line(tmp_path, audit):
    audit.write(REFUSED._replace(account='x\n{"decision":"allowed"}', resources=("Topic:\x1b[2J\ud800",)))

    (line,) = lines(tmp_path)
    assert line["account"] == 'x?{"decision":"allowed"}'
    assert line["resources"] == ["Topic:?[2J?"]


def test_file_is_created_with_the_first_event_only(tmp_path, audit):
    audit.close()

    assert lines(tmp_path) == []


def test_failed_write_is_logged_once(tmp_path, clock, caplog):
    audit = AuditLog(tmp_path / "missing" / "access.log", lambda: clock[0])
    audit.write(ALLOWED)
    audit.write(ALLOWED)

    assert len(caplog.records) == 1


def test_administrative_codes_change_something_besides_messages():
    assert {17, 18, 25, 50, 54, 100, 200, 205, 207, 215, 216, 222, 225, 314, 329, 3001, 3010} <= ADMINISTRATIVE_CODES
    assert not {10, 11, 15, 34, 36, 37, 103, 105, 310, 320, 904} & ADMINISTRATIVE_CODES


def test_different_refusals_are_limited_to_a_number_a_minute(tmp_path, audit, clock, monkeypatch):
    monkeypatch.setattr(audit_log, "REFUSALS_PER_MINUTE_MAX", 3)
    for number in range(10):
        audit.write(AccessEvent(False, f"user-{number}", "10.0.0.1", 310, ()))
    audit.write(AccessEvent(True, "root", "10.0.0.1", 25, ()))
    assert [line["account"] for line in lines(tmp_path)] == ["user-0", "user-1", "user-2", "root"]

    clock[0] += 60_000
    audit.write(AccessEvent(False, "user-99", "10.0.0.1", 310, ()))

    summary, last = lines(tmp_path)[-2:]
    assert (summary["count"], summary["decision"], last["account"]) == (7, "refused", "user-99")
    assert "further refusals" in summary["reason"]


def test_failed_request_is_recorded_as_such(tmp_path, audit):
    audit.write(AccessEvent(True, "ann", "10.0.0.1", 3001, (), "The user is existed", True))

    (line,) = lines(tmp_path)
    assert (line["decision"], line["account"], line["reason"]) == ("failed", "ann", "The user is existed")


def test_files_are_rotated_by_size_and_stay_private(tmp_path, clock, monkeypatch):
    monkeypatch.setattr(audit_log, "FILE_BYTES_MAX", 1_000)
    monkeypatch.setattr(audit_log, "FILES_KEPT", 3)
    audit = AuditLog(tmp_path / "access.log", lambda: clock[0])
    for number in range(40):
        audit.write(AccessEvent(True, f"account-{number}", "10.0.0.1", 3001, ("Cluster:C",)))
    audit.close()

    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["access.log", "access.log.1", "access.log.2", "access.log.3"]
    assert all(file.stat().st_size <= 1_000 and not file.stat().st_mode & 0o007 for file in files)
    kept = [json.loads(line)["account"] for file in reversed(files) for line in file.read_text().splitlines()]
    assert kept == [f"account-{number}" for number in range(40 - len(kept), 40)]
