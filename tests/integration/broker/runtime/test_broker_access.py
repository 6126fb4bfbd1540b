"""Access control of a broker: no request code and no path around the guard, in both header encodings."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from orbitlog.access.credentials import Credentials
from orbitlog.access.request_needs import ROWS
from orbitlog.broker.runtime import request_router
from orbitlog.broker.sending.message_writer import MessageWriter
from orbitlog.nameserver.name_server import NameServer
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Serialization
from orbitlog.wire.send_headers import EndTransactionRequest
from tests.support.all_requests import BODIES, CODES, FIELDS, add_users, state_of
from tests.support.broker_desk import TIMEOUT_S, Desk, at_desk, records
from tests.support.secured_broker import NOBODY, ROOT, WRITER, ask, secured, send, send_command

ROLES: dict[str, tuple[Credentials | None, str | None]] = {
    "no credentials": (None, None),
    "unknown user": (Credentials("eve", "root-secret"), None),
    "wrong secret": (Credentials("root-user", "wrong-secret"), None),
    "empty signature": (ROOT, ""),
    "insufficient rights": (NOBODY, None),
}


@pytest.mark.parametrize("serialization", list(Serialization))
@pytest.mark.parametrize("role", ROLES)
def test_every_request_code_is_refused_without_effect(tmp_path: Path, role: str, serialization: int) -> None:
    credentials, signature = ROLES[role]

    async def work(desk: Desk) -> None:
        await add_users(desk)
        before = state_of(desk)
        for code in CODES:
            body = json.dumps(BODIES.get(code, {})).encode() if code in BODIES else b"traceOn=false"
            answer = await ask(
                desk,
                code,
                credentials,
                fields=FIELDS,
                body=body,
                serialization=serialization,
                signature=signature,
            )
            assert answer.code == ResponseCode.NO_PERMISSION, (code, answer.remark)
            assert answer.body == b""
        assert state_of(desk) == before

    secured(tmp_path, work)


PLAIN_ROLES: dict[str, tuple[Credentials | None, str | None]] = {
    "no credentials": (None, None),
    "unknown account": (Credentials("account-9", "secret-1"), None),
    "wrong secret": (Credentials("operator", "secret-1"), None),
    "empty signature": (Credentials("operator", "secret-2"), ""),
    "insufficient rights": (Credentials("account-1", "secret-1"), None),
}


@pytest.mark.parametrize("serialization", list(Serialization))
@pytest.mark.parametrize("role", PLAIN_ROLES)
def test_every_request_code_is_refused_to_accounts_of_1_0_without_effect(
    tmp_path: Path, role: str, serialization: int
) -> None:
    credentials, signature = PLAIN_ROLES[role]
    file = tmp_path / "home" / "conf" / "plain_acl.yml"
    file.parent.mkdir(parents=True)
    account = "{accessKey: account-1, secretKey: secret-1, defaultTopicPerm: DENY, defaultGroupPerm: DENY}"
    file.write_text(f"accounts: [{account}, {{accessKey: operator, secretKey: secret-2, admin: true}}]\n")

    async def work(desk: Desk) -> None:
        await send(desk, Credentials("operator", "secret-2"), queue_id=0)
        before, accounts = state_of(desk), file.read_bytes()
        for code in CODES:
            body = json.dumps(BODIES.get(code, {})).encode() if code in BODIES else b"traceOn=false"
            answer = await ask(
                desk,
                code,
                credentials,
                fields=FIELDS,
                body=body,
                serialization=serialization,
                signature=signature,
            )
            assert answer.code == ResponseCode.SYSTEM_ERROR, (code, answer.remark)
            assert (answer.remark or "").startswith("org.apache.rocketmq.acl.common.AclException: "), code
            assert answer.body == b""
        assert (state_of(desk), file.read_bytes()) == (before, accounts)

    settings = {"aclEnable": "true", "rocketmqHome": str(tmp_path / "home")}
    at_desk(tmp_path / "store", work, authenticationFailuresPerMinuteMax="1000000", **settings)


def test_administration_that_fails_is_recorded_with_its_error(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        for _ in range(2):
            await ask(desk, 3001, ROOT, fields={"username": "bob"}, body=b'{"password":"p"}')

    secured(tmp_path, work)
    lines = [json.loads(line) for line in (tmp_path / "logs" / "access.log").read_text().splitlines()]
    assert [(line["decision"], line["reason"]) for line in lines] == [
        ("allowed", ""),
        ("allowed", ""),
        ("failed", "The user is existed"),
    ]
    assert {(line["account"], line["address"], line["code"]) for line in lines} == {("root-user", "127.0.0.1", 3001)}


def test_every_served_code_has_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served: set[int] = set()
    monkeypatch.setattr(request_router, "Dispatch", lambda handlers: served.update(map(int, handlers)))

    async def work(_: Desk) -> None:
        assert len(served) > 60
        assert served <= ROWS.keys()
        assert NameServer().served_codes <= ROWS.keys()

    secured(tmp_path, work)


def test_super_user_and_policy_are_served(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await add_users(desk)
        assert (await send(desk, WRITER)).code == ResponseCode.SUCCESS
        refused = await send(desk, WRITER, "Other")
        assert (refused.code, refused.remark) == (
            ResponseCode.NO_PERMISSION,
            "User:writer has no permission to access Topic:Other from 127.0.0.1, no matched policies.",
        )
        assert desk.broker.state.topics.find("Other") is None
        config = await ask(desk, RequestCode.GET_BROKER_CONFIG, ROOT)
        assert config.code == ResponseCode.SUCCESS
        assert b"root-secret" not in config.body

    secured(tmp_path, work)


def counted_rows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the messages that the fast path stores."""
    counts: list[int] = []
    original = MessageWriter.put_rows

    def put_rows(self: MessageWriter, rows: Any, *more: Any) -> Any:
        counts.append(len(rows))
        return original(self, rows, *more)

    monkeypatch.setattr(MessageWriter, "put_rows", put_rows)
    return counts


async def learn(desk: Desk, credentials: Credentials, count: int = 40) -> None:
    """Send until the connection has a template with a header pattern."""
    for _ in range(count):
        assert (await send(desk, credentials)).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
@pytest.mark.parametrize("metrics", ["DISABLE", "PROM"])
def test_fast_path_stores_admitted_sends_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flush: str, metrics: str
) -> None:
    counts = counted_rows(monkeypatch)

    async def work(desk: Desk) -> None:
        await add_users(desk)
        await learn(desk, WRITER)
        stored = sum(counts)
        assert stored > 30

        forged = send_command(WRITER, body=b"forged")
        forged.body = b"changed after signing"
        unsigned = send_command(None, body=b"unsigned")
        blank = send_command(WRITER, body=b"blank")
        blank.ext_fields["Signature"] = ""
        foreign = send_command(NOBODY, body=b"foreign")
        elsewhere = send_command(WRITER, "Other", body=b"elsewhere")
        wrong = send_command(Credentials("writer", "wrong-secret"), body=b"wrong")
        moved = send_command(WRITER, body=b"moved")
        moved.ext_fields["e"] = "1"
        bad = [forged, unsigned, blank, foreign, elsewhere, wrong, moved]
        good = [send_command(WRITER, body=b"good") for _ in range(len(bad) * 8)]
        mixed = [command for number, one in enumerate(bad) for command in (*good[number * 8 : number * 8 + 8], one)]
        answers = await asyncio.gather(*(desk.client.invoke(desk.address, one, TIMEOUT_S) for one in mixed))

        by_code = {id(command): answer.code for command, answer in zip(mixed, answers, strict=True)}
        assert [by_code[id(one)] for one in bad] == [ResponseCode.NO_PERMISSION] * len(bad)
        assert {by_code[id(one)] for one in good} == {ResponseCode.SUCCESS}
        assert sum(counts) > stored + len(good) // 2
        bodies = []
        while len(bodies) < 41 + len(good):
            fields = {"consumerGroup": "G", "topic": "Orders", "queueId": "0", "queueOffset": str(len(bodies))}
            fields |= {"maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0"}
            fields |= {"subscription": "*", "subVersion": "0"}
            pulled = records(await ask(desk, RequestCode.PULL_MESSAGE, ROOT, fields=fields))
            assert pulled
            bodies += [record.body for record in pulled]
        assert bodies.count(b"good") == len(good)
        assert set(bodies) == {b"hello", b"good"}

    secured(tmp_path, work, flushDiskType=flush, metricsExporterType=metrics, metricsPromExporterPort="0")


def test_fast_path_ends_with_the_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = counted_rows(monkeypatch)

    async def work(desk: Desk) -> None:
        await add_users(desk)
        await learn(desk, WRITER)
        access = desk.broker._access
        assert access is not None
        access.change_users(lambda table: table.update_user("writer", {"userStatus": "disable"}))
        stored, end = sum(counts), desk.broker.state.store.written_to
        answers = await asyncio.gather(*(send(desk, WRITER) for _ in range(20)))
        assert {answer.code for answer in answers} == {ResponseCode.NO_PERMISSION}
        assert (sum(counts), desk.broker.state.store.written_to) == (stored, end)
        access.change_users(lambda table: table.update_user("writer", {"userStatus": "enable", "password": "changed"}))
        assert (await send(desk, WRITER)).code == ResponseCode.NO_PERMISSION
        assert (await send(desk, Credentials("writer", "changed"))).code == ResponseCode.SUCCESS

    secured(tmp_path, work)


def test_end_of_a_transaction_needs_the_topic_of_its_half_message(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await add_users(desk)
        unique = "7F00000100002A9F0000000000000001"
        properties = {"UNIQ_KEY": unique, "WAIT": "true", "TRAN_MSG": "true", "PGROUP": "P"}
        for round_number in range(40):  # the first ones on the slow path, the others on the fast path
            sent = await send(desk, WRITER, properties=properties, sys_flag=4)
            assert sent.code == ResponseCode.SUCCESS
            header = EndTransactionRequest(
                producer_group="P",
                half_queue_offset=int(sent.ext_fields["queueOffset"]),
                half_physical_offset=int(sent.ext_fields["msgId"][-16:], 16),
                commit_or_rollback=8,
                message_id=unique,
                transaction_id=unique,
            )
            fields = header.to_ext_fields()
            end = desk.broker.state.store.written_to
            refused = await ask(desk, RequestCode.END_TRANSACTION, NOBODY, fields=fields)
            assert (refused.code, desk.broker.state.store.written_to) == (ResponseCode.NO_PERMISSION, end), round_number
            assert (await ask(desk, RequestCode.END_TRANSACTION, WRITER, fields=fields)).code == ResponseCode.SUCCESS
            assert desk.broker.state.store.written_to > end

    secured(tmp_path, work)


def test_message_is_viewed_and_sent_back_with_a_permission_on_its_topic_only(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await add_users(desk)
        access = desk.broker._access
        assert access is not None
        entries = [{"actions": ["All"], "decision": "Allow", "resource": name} for name in ("Group:G", "Topic:Mine")]
        access.change_users(
            lambda table: table.put_acl("User:nobody", {"policies": [{"entries": entries, "policyType": "Custom"}]})
        )
        end = desk.broker.state.store.written_to
        view = await ask(desk, RequestCode.VIEW_MESSAGE_BY_ID, NOBODY, fields={"offset": "0", "topic": "Mine"})
        back = {"offset": "0", "group": "G", "delayLevel": "0", "originTopic": "Mine"}
        sent_back = await ask(desk, RequestCode.CONSUMER_SEND_MSG_BACK, NOBODY, fields=back)
        assert (view.code, sent_back.code) == (ResponseCode.NO_PERMISSION, ResponseCode.NO_PERMISSION)
        assert (view.body, desk.broker.state.store.written_to) == (b"", end)
        assert (await ask(desk, RequestCode.VIEW_MESSAGE_BY_ID, ROOT, fields={"offset": "0"})).code == 0

    secured(tmp_path, work)


def test_accounts_of_1_0_are_refused_in_its_words(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "conf").mkdir(parents=True)
    account = "{accessKey: account-1, secretKey: secret-1, topicPerms: [Orders=PUB], defaultGroupPerm: SUB}"
    admin = "{accessKey: operator, secretKey: secret-2, admin: true}"
    (home / "conf" / "plain_acl.yml").write_text(f"accounts: [{account}, {admin}]")
    plain, operator = Credentials("account-1", "secret-1"), Credentials("operator", "secret-2")

    async def work(desk: Desk) -> None:
        assert (await send(desk, plain)).code == ResponseCode.SUCCESS
        refused = await send(desk, plain, "Other")
        assert refused.code == ResponseCode.SYSTEM_ERROR
        assert refused.remark == "org.apache.rocketmq.acl.common.AclException: No default permission for topic:Other"
        assert (await ask(desk, RequestCode.UPDATE_BROKER_CONFIG, plain)).code == ResponseCode.SYSTEM_ERROR
        changed = await ask(desk, RequestCode.UPDATE_BROKER_CONFIG, operator, body=b"brokerPermission=6")
        assert changed.code == ResponseCode.SUCCESS

    at_desk(tmp_path / "store", work, aclEnable="true", rocketmqHome=str(home))
