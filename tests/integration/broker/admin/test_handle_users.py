"""Users and policies over the wire: what Java's tools send, and what takes effect at once."""

from __future__ import annotations

import json
from pathlib import Path

from orbitlog.access.credentials import Credentials
from orbitlog.client.admin.access_admin import AccessAdmin
from orbitlog.client.connection.cluster_link import ClusterLink
from orbitlog.errors import BrokerRefused
from orbitlog.remoting.connection import Connection
from orbitlog.remoting.request_dispatch import not_supported
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command
from tests.support.broker_desk import Desk, at_desk
from tests.support.secured_broker import NOBODY, ROOT, ask, secured, send

ENTRY = {"actions": ["Pub"], "decision": "Allow", "resource": "Topic:Orders"}


def refuse(_: Connection, request: Command) -> Command:
    return not_supported(request)


async def manage(desk: Desk, code: int, body: object = None, **fields: str) -> tuple[int, str | None, object]:
    raw = b"" if body is None else json.dumps(body).encode()
    answer = await ask(desk, code, ROOT, fields=fields, body=raw)
    return answer.code, answer.remark, json.loads(answer.body) if answer.body else None


def test_user_and_policy_take_effect_at_once_and_survive_a_restart(tmp_path: Path) -> None:
    async def create(desk: Desk) -> None:
        assert (await send(desk, NOBODY)).code == ResponseCode.NO_PERMISSION
        body = {"password": NOBODY.secret_key, "userType": "Normal"}
        assert (await manage(desk, 3001, body, username="nobody"))[0] == 0
        assert (await send(desk, NOBODY)).code == ResponseCode.NO_PERMISSION
        policies = {"policies": [{"policyType": "Custom", "entries": [ENTRY]}]}
        assert (await manage(desk, 3006, policies, subject="User:nobody"))[0] == 0
        assert (await send(desk, NOBODY)).code == ResponseCode.SUCCESS

    async def check(desk: Desk) -> None:
        assert (await send(desk, NOBODY)).code == ResponseCode.SUCCESS
        assert (await manage(desk, 3008, subject="User:nobody"))[0] == 0
        assert (await send(desk, NOBODY)).code == ResponseCode.NO_PERMISSION

    secured(tmp_path, create)
    secured(tmp_path, check)


def test_answers_are_those_of_java_without_passwords(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await manage(desk, 3001, {"password": "p-1"}, username="bob")
        shown = {"password": "", "userStatus": "enable", "userType": "Normal", "username": "bob"}
        assert await manage(desk, 3004, username="bob") == (0, None, shown)
        assert await manage(desk, 3004, username="eve") == (0, None, None)
        assert (await manage(desk, 3005, filter="bo"))[2] == [shown]
        assert await manage(desk, 3005, filter="x") == (0, None, None)
        assert await manage(desk, 3001, {"password": "p"}, username="bob") == (16, "The user is existed", None)
        assert await manage(desk, 3009, subject="User:bob") == (0, None, None)
        assert await manage(desk, 3009, subject="User:eve") == (16, "The subject is not exist.", None)
        assert (await manage(desk, 3006, None, subject="User:bob"))[0] == ResponseCode.SYSTEM_ERROR
        policies = {"policies": [{"policyType": "Custom", "entries": [ENTRY]}], "subject": "User:bob"}
        await manage(desk, 3007, policies, subject="User:bob")
        assert (await manage(desk, 3009, subject="User:bob"))[2] == policies
        assert (await manage(desk, 3010, subjectFilter="bob"))[2] == [policies]
        assert await manage(desk, 3003, username="eve") == (0, None, None)

    secured(tmp_path, work)


def test_client_manages_users(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        link = ClusterLink((), refuse, ROOT)
        admin = AccessAdmin(link)
        try:
            await admin.create_user(desk.address, "bob", "p-1", "Super")
            await admin.put_acl(desk.address, "User:bob", [ENTRY])
            await admin.update_user(desk.address, "bob", {"userStatus": "disable"})
            user = await admin.user(desk.address, "bob")
            assert user is not None and (user["userType"], user["userStatus"]) == ("Super", "disable")
            assert len(await admin.users(desk.address)) == 2
            assert (await admin.acls(desk.address))[0]["subject"] == "User:bob"
            await admin.delete_acl(desk.address, "User:bob", "Topic:Orders")
            assert await admin.acl(desk.address, "User:bob") is None
            await admin.delete_user(desk.address, "bob")
            assert await admin.user(desk.address, "bob") is None
        finally:
            await link.close()

    secured(tmp_path, work)


def test_audit_log_contains_refusals_and_administration(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await manage(desk, 3001, {"password": "hidden-1"}, username="bob")
        await send(desk, Credentials("eve", "hidden-2"))
        await send(desk, ROOT)

    secured(tmp_path, work)
    text = (tmp_path / "logs" / "access.log").read_text()
    events = [json.loads(line) for line in text.splitlines()]
    assert [(event["decision"], event["account"], event["request"]) for event in events] == [
        ("allowed", "root-user", "AUTH_CREATE_USER"),
        ("refused", "eve", "SEND_MESSAGE_V2"),
    ]
    assert "hidden" not in text


def test_users_are_not_managed_without_access_control(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        answer = await desk.ask(RequestCode.AUTH_LIST_USER)
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED

    at_desk(tmp_path, work)


def test_refusal_reaches_the_caller_as_an_error(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        link = ClusterLink((), refuse, NOBODY)
        try:
            await AccessAdmin(link).users(desk.address)
        except BrokerRefused as error:
            assert error.code == ResponseCode.NO_PERMISSION
        else:
            raise AssertionError("admitted")
        finally:
            await link.close()

    secured(tmp_path, work)
