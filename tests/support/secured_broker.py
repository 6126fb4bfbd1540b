"""A broker with access control, and signed requests to it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from orbitlog.access.access_settings import QuotaLimits
from orbitlog.access.credentials import Credentials
from orbitlog.formats.records.properties import encode_properties
from orbitlog.wire.codes import RequestCode
from orbitlog.wire.command import Command, Serialization
from orbitlog.wire.send_headers import SendMessageV2Request
from tests.support.broker_desk import TIMEOUT_S, Desk, at_desk

ROOT = Credentials("root-user", "root-secret")
WRITER = Credentials("writer", "writer-secret")
NOBODY = Credentials("nobody", "nobody-secret")
SECURE = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": ROOT.access_key, "password": ROOT.secret_key}),
    "authenticationFailuresPerMinuteMax": "1000000",  # tests fail often, and must not wait for it
}


def secured(tmp_path: Path, work: Callable[[Desk], Awaitable[None]], **settings: str) -> None:
    at_desk(tmp_path, work, **{**SECURE, **settings})


async def ask(
    desk: Desk,
    code: int,
    credentials: Credentials | None = None,
    *,
    fields: dict[str, str] | None = None,
    body: bytes = b"",
    serialization: int = Serialization.JSON,
    signature: str | None = None,
) -> Command:
    """Send a request; `signature` replaces the one that the credentials give."""
    command = Command(code, ext_fields=dict(fields or {}), body=body, serialization=serialization)
    if credentials is not None:
        credentials.sign(command)
    if signature is not None:
        command.ext_fields["Signature"] = signature
    return await desk.client.invoke(desk.address, command, TIMEOUT_S)


def send_command(
    credentials: Credentials | None, topic: str = "Orders", body: bytes = b"hello", **more: Any
) -> Command:
    properties = more.pop("properties", {"UNIQ_KEY": "7F00000100002A9F0000000000000001", "WAIT": "true"})
    fields = {"queue_id": 0, "default_topic_queue_count": 4, "sys_flag": 0, "born_timestamp_ms": 1, "flag": 0, **more}
    raw = encode_properties(properties).decode()
    header = SendMessageV2Request(producer_group="P", topic=topic, default_topic="TBW102", properties=raw, **fields)
    command = Command(RequestCode.SEND_MESSAGE_V2, ext_fields=header.to_ext_fields(), body=body)
    if credentials is not None:
        credentials.sign(command)
    return command


async def send(desk: Desk, credentials: Credentials | None, topic: str = "Orders", **more: Any) -> Command:
    return await desk.client.invoke(desk.address, send_command(credentials, topic, **more), TIMEOUT_S)


async def add_writer(desk: Desk, limits: QuotaLimits) -> None:
    access = desk.broker._access
    assert access is not None
    access.change_users(lambda table: table.create_user("writer", {"password": WRITER.secret_key}))
    entries = [{"actions": ["Pub", "Create"], "decision": "Allow", "resource": "Topic:*"}]
    policy = {"policies": [{"entries": entries, "policyType": "Custom"}]}
    access.change_users(lambda table: table.put_acl("User:writer", policy))
    access.change_users(lambda table: table.set_limits("writer", limits))


def quota_clock(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Stop the clock of the quotas; return it as a list of one number."""
    access = desk.broker._access
    assert access is not None
    now = [1_000]
    monkeypatch.setattr(access.quotas, "_now_ms", lambda: now[0])
    return now


def allow(desk: Desk, user: Credentials, *entries: tuple[str, str]) -> None:
    """Give a user these actions on these resources, and nothing else; create the user if needed."""
    access = desk.broker._access
    assert access is not None
    if user.access_key not in access.users.users:
        access.change_users(lambda table: table.create_user(user.access_key, {"password": user.secret_key}))
    lines = [{"resource": name, "actions": actions.split(","), "decision": "Allow"} for name, actions in entries]
    policy = {"policies": [{"entries": lines, "policyType": "Custom"}]}
    access.change_users(lambda table: table.acls.pop(f"User:{user.access_key}", None))
    if lines:
        access.change_users(lambda table: table.put_acl(f"User:{user.access_key}", policy))


def end_of(desk: Desk, topic: str, queue_id: int = 0) -> int:
    return desk.broker.state.max_offset(topic, queue_id)


async def heartbeat(desk: Desk, credentials: Credentials, client_id: str, *producers: str) -> Command:
    data = {
        "clientID": client_id,
        "consumerDataSet": [],
        "producerDataSet": [{"groupName": name} for name in producers],
    }
    return await ask(desk, RequestCode.HEART_BEAT, credentials, body=orjson.dumps(data))
