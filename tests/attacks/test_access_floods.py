"""Access control: accounts, policies and refusals that a peer chooses fill neither memory nor disk."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from orbitlog.access import access_file
from orbitlog.access.access_model import Account, Action, PolicyEntry, Resource
from orbitlog.access.audit_log import FILE_BYTES_MAX, FILES_KEPT, AuditLog
from orbitlog.access.failed_attempts import ADDRESSES_MAX, FailedAttempts
from orbitlog.access.request_guard import AccessEvent, AccessPolicy, RequestGuard
from orbitlog.access.request_signature import signature_of
from orbitlog.access.user_records import PASSWORD_CHARACTERS_MAX, RESOURCE_CHARACTERS_MAX, SOURCE_IPS_MAX
from orbitlog.access.user_table import UserTable
from orbitlog.errors import RequestRefused
from orbitlog.remoting import whole_tables
from orbitlog.wire.bodies.body_json import write_body
from orbitlog.wire.codes import RequestCode, ResponseCode
from tests.support.broker_desk import Desk
from tests.support.secured_broker import ROOT, WRITER, ask, secured
from tests.support.work_counters import peak_bytes_of

REFUSED = AccessEvent(False, "bob", "10.0.0.1", 310, ("Topic:T",), "no matched policies.")


def entry(**fields: object) -> dict[str, object]:
    return {"resource": "Topic:T", "actions": ["Pub"], "decision": "Allow", **fields}


def acl(*entries: dict[str, object]) -> dict[str, object]:
    return {"policies": [{"policyType": "Custom", "entries": list(entries)}]}


def test_long_names_of_an_account_are_not_kept() -> None:
    policy = PolicyEntry(Resource.parse("Topic:*"), Action.ALL, True)
    guard = RequestGuard(AccessPolicy({"bob": Account("bob", "secret", custom=(policy,))}))

    def flood() -> None:
        for number in range(300):
            fields = {"b": f"{number}" + "x" * 60_000, "AccessKey": "bob"}
            guard.admit(310, {**fields, "Signature": signature_of("secret", fields, b"")}, b"", "10.0.0.1")

    assert peak_bytes_of(flood) < 2_000_000


@pytest.mark.parametrize(
    "fields",
    [
        entry(resource="Topic:" + "x" * RESOURCE_CHARACTERS_MAX),
        entry(sourceIps=["10.0.0.1"] * (SOURCE_IPS_MAX + 1)),
        entry(resource=["Topic:T"]),
        entry(actions=["Pub"] * 2 + [{"a": "x" * 100_000}]),
    ],
)
def test_policy_over_its_limits_is_refused(fields: dict[str, object]) -> None:
    table = UserTable()
    table.create_user("ann", {"password": "secret"})
    with pytest.raises(RequestRefused) as refused:
        table.put_acl("User:ann", acl(fields))
    assert len(refused.value.remark) < 500 and not table.acls


def test_long_password_is_refused() -> None:
    table = UserTable()
    table.create_user("ann", {"password": "x" * PASSWORD_CHARACTERS_MAX})
    long = {"password": "x" * (PASSWORD_CHARACTERS_MAX + 1)}
    with pytest.raises(RequestRefused, match="exceeds the maximum"):
        table.create_user("bob", long)
    with pytest.raises(RequestRefused, match="exceeds the maximum"):
        table.update_user("ann", long)
    assert list(table.users) == ["ann"]


def test_users_never_fill_a_file_that_the_broker_cannot_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(desk: Desk) -> None:
        path = desk.broker._access.options.user_file  # type: ignore[union-attr]
        monkeypatch.setattr(access_file, "FILE_BYTES_MAX", path.stat().st_size + 300)
        codes = []
        for number in range(5):
            fields = {"username": f"u{number}"}
            body = write_body({"password": "secret", "userType": "Normal"})
            codes.append((await ask(desk, RequestCode.AUTH_CREATE_USER, ROOT, fields=fields, body=body)).code)
        assert codes[0] == ResponseCode.SUCCESS and codes[-1] == ResponseCode.NO_PERMISSION
        assert path.stat().st_size <= access_file.FILE_BYTES_MAX
        access_file.load_access_file(path)

    secured(tmp_path, work)


def test_list_of_users_that_does_not_fit_a_frame_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(desk: Desk) -> None:
        answer = await ask(desk, RequestCode.AUTH_LIST_USER, ROOT)
        assert answer.code == ResponseCode.SYSTEM_ERROR and "ask for single entries" in str(answer.remark)

    monkeypatch.setattr(whole_tables, "BODY_BYTES_MAX", 20)
    secured(tmp_path, work)


def test_refusals_of_changing_names_fill_no_disk(tmp_path: Path) -> None:
    audit = AuditLog(tmp_path / "access.log", lambda: 1_700_000_000_000)
    for number in range(20_000):
        audit.write(REFUSED._replace(account=f"{number:06d}" + "x" * 200))
    audit.close()
    assert (tmp_path / "access.log").stat().st_size < 1_000_000
    assert FILE_BYTES_MAX * (FILES_KEPT + 1) < 128 * 1024 * 1024, "whatever is written, rotation bounds the disk"


def test_audit_log_is_private_and_follows_no_link(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    previous = os.umask(0)
    try:
        audit = AuditLog(tmp_path / "access.log", lambda: 1_700_000_000_000)
        audit.write(REFUSED)
        audit.close()
    finally:
        os.umask(previous)
    assert stat.S_IMODE((tmp_path / "access.log").stat().st_mode) == 0o640
    victim = tmp_path / "victim"
    victim.write_text("precious")
    for name, target in (("link.log", victim), ("dangling.log", tmp_path / "new")):
        (tmp_path / name).symlink_to(target)
        audit = AuditLog(tmp_path / name, lambda: 1_700_000_000_000)
        audit.write(REFUSED)
        audit.close()
    os.mkfifo(tmp_path / "pipe.log")
    audit = AuditLog(tmp_path / "pipe.log", lambda: 1_700_000_000_000)
    audit.write(REFUSED)
    audit.close()
    assert victim.read_text() == "precious" and not (tmp_path / "new").exists()
    assert "could not write the audit log" in caplog.text


def test_failures_of_very_many_addresses_are_bounded() -> None:
    failures = FailedAttempts(10, lambda: 0)
    for number in range(3 * ADDRESSES_MAX):
        failures.add(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
    assert len(failures) == ADDRESSES_MAX


def test_account_cannot_manage_accounts_by_any_request(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        body = write_body({"password": WRITER.secret_key, "userType": "Normal"})
        await ask(desk, RequestCode.AUTH_CREATE_USER, ROOT, fields={"username": WRITER.access_key}, body=body)
        codes = [code for code in RequestCode if code.name.startswith("AUTH_")]
        assert len(codes) == 10
        for code in codes:
            answer = await ask(desk, code, WRITER, fields={"username": "root-user", "subject": "User:root-user"})
            assert answer.code == ResponseCode.NO_PERMISSION, code.name

    secured(tmp_path, work)
