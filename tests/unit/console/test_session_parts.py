"""Parts of sign-in: passwords, sessions, rates, delays, and checks of headers; no sockets."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from orbitlog.console.session.console_audit import ConsoleAudit
from orbitlog.console.session.console_roles import Role
from orbitlog.console.session.console_sessions import IDLE_SECONDS, LIFE_SECONDS, OneTimeToken, Sessions, is_csrf_token
from orbitlog.console.session.console_users import UserFile, UserFileError
from orbitlog.console.session.request_checks import is_known_host, is_same_origin
from orbitlog.console.session.request_limits import FailedSignIns, RequestRate


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def test_password_is_stored_as_a_hash_that_only_the_owner_can_read(tmp_path: Path) -> None:
    users = UserFile(tmp_path / "data")
    users.put("anna", Role.OPERATOR, "long enough")
    assert stat.S_IMODE(users.path.stat().st_mode) == 0o600
    assert b"long enough" not in users.path.read_bytes()
    found = UserFile(tmp_path / "data").verify("anna", "long enough")
    assert found is not None and found.role is Role.OPERATOR
    assert users.verify("anna", "long enougH") is None
    assert users.verify("bert", "long enough") is None
    users.remove("anna")
    assert users.users() == {}


def test_root_leaves_the_user_file_to_the_owner_of_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[tuple[int, ...]] = []
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "fchown", lambda _, *ids: given.append(ids))
    UserFile(tmp_path).put("anna", Role.VIEWER, "long enough")
    assert given == [(tmp_path.stat().st_uid, tmp_path.stat().st_gid)]


@pytest.mark.parametrize(
    ("name", "password"), [("", "long enough"), ("a b", "long enough"), ("../x", "long enough"), ("anna", "short")]
)
def test_invalid_names_and_passwords_are_refused(tmp_path: Path, name: str, password: str) -> None:
    with pytest.raises(UserFileError):
        UserFile(tmp_path).put(name, Role.VIEWER, password)
    assert not (tmp_path / "users.json").exists()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b'{"users": []}',
        b'{"users": {"a": {}}}',
        b'{"users": {"a": {"role": "god", "salt": "", "hash": "", "n": 2, "r": 1, "p": 1}}}',
        b'{"users": {"a": {"role": "viewer", "salt": "", "hash": "", "n": 1073741824, "r": 1, "p": 1}}}',
    ],
)
def test_invalid_user_files_are_refused_with_their_name(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "users.json").write_bytes(content)
    with pytest.raises(UserFileError, match=r"users\.json"):
        UserFile(tmp_path).users()


def test_session_ends_when_idle_and_when_old() -> None:
    clock = Clock()
    sessions = Sessions(clock)
    token, visitor = sessions.create("anna", Role.ADMIN)
    assert sessions.find(token) == visitor
    assert sessions.find(token + "x") is None
    clock.now_s += IDLE_SECONDS + 1
    assert sessions.find(token) is None
    token, _ = sessions.create("anna", Role.ADMIN)
    for _ in range(int(LIFE_SECONDS // 3600)):
        clock.now_s += 3600
        sessions.find(token)
    clock.now_s += 1
    assert sessions.find(token) is None
    assert len(sessions) == 0


def test_csrf_tokens_belong_to_their_session() -> None:
    sessions = Sessions(Clock())
    _, anna = sessions.create("anna", Role.ADMIN)
    _, bert = sessions.create("bert", Role.ADMIN)
    assert is_csrf_token(anna, anna.csrf_token)
    assert not is_csrf_token(anna, bert.csrf_token)
    assert not is_csrf_token(anna, "")


def test_one_time_token_is_taken_once() -> None:
    token = OneTimeToken()
    assert not token.take("wrong")
    assert token.take(token.text)
    assert not token.take(token.text)


def test_rate_allows_a_burst_and_refills() -> None:
    clock = Clock()
    rate = RequestRate(2, 3, clock)
    assert [rate.allow("a") for _ in range(4)] == [True, True, True, False]
    assert rate.allow("b")
    clock.now_s += 1
    assert [rate.allow("a") for _ in range(3)] == [True, True, False]


def test_failed_sign_ins_wait_longer_each_time() -> None:
    clock = Clock()
    failed = FailedSignIns(clock)
    waits = []
    for _ in range(13):
        failed.add("anna")
        waits.append(failed.wait_seconds("anna", "other"))
        clock.now_s += waits[-1]
    assert waits == [0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60]
    failed.forget("anna")
    assert failed.wait_seconds("anna") == 0


@pytest.mark.parametrize(
    ("host", "is_known"),
    [
        ("localhost:8082", True),
        ("127.0.0.1", True),
        ("[::1]:8082", True),
        ("10.0.0.7:8082", True),
        ("mq.example.org", True),
        ("evil.example", False),
        ("mq.example.org.evil.example", False),
        ("localhost/x", False),
        ("a@localhost", False),
        ("localhost:x", False),
        ("", False),
    ],
)
def test_known_hosts_are_addresses_loopback_and_the_public_name(host: str, is_known: bool) -> None:
    assert is_known_host(host, "https://mq.example.org") is is_known


@pytest.mark.parametrize(
    ("headers", "is_same"),
    [
        ({"sec-fetch-site": "same-origin"}, True),
        ({"sec-fetch-site": "same-site", "origin": "http://localhost:8082", "host": "localhost:8082"}, False),
        ({"origin": "http://localhost:8082", "host": "localhost:8082"}, True),
        ({"origin": "http://localhost:9999", "host": "localhost:8082"}, False),
        ({"origin": "https://mq.example.org", "host": "10.0.0.7"}, True),
        ({"origin": "null", "host": "null"}, False),
        ({}, False),
    ],
)
def test_changing_requests_need_the_same_origin(headers: dict[str, str], is_same: bool) -> None:
    assert is_same_origin(headers, "https://mq.example.org") is is_same


def test_audit_lines_are_read_newest_first_and_a_torn_one_is_skipped(tmp_path: Path) -> None:
    audit = ConsoleAudit(tmp_path, lambda: 7)
    audit.write(action="first", text="x" * 5000)
    audit.write(action="second")
    with audit.path.open("ab") as file:
        file.write(b'{"action": "to')
    assert [line["action"] for line in audit.newest(10)] == ["second", "first"]
    assert len(audit.newest(10)[1]["text"]) == 1000
    assert stat.S_IMODE(audit.path.stat().st_mode) == 0o600
