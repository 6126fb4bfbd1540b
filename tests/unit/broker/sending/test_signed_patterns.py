"""Signed send patterns admit what the request guard admits, and nothing else."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orbitlog.access.access_model import Account, Action, PolicyEntry, Resource
from orbitlog.access.credentials import Credentials
from orbitlog.access.request_guard import AccessPolicy, RequestGuard
from orbitlog.broker.sending.signed_patterns import SignedPatterns
from orbitlog.wire.command import Command, Serialization, encode_command
from orbitlog.wire.frames import Frame
from tests.support.secured_broker import send_command

BOB, EVE = Credentials("bob", "secret-2"), Credentials("eve", "secret-3")
IP = "10.0.0.1"
JSON = int(Serialization.JSON)


def account(name: str, secret: str, *resources: str) -> Account:
    entries = tuple(PolicyEntry(Resource.parse(text), Action.PUB, True) for text in resources)
    return Account(name, secret, custom=entries)


POLICY = AccessPolicy({"bob": account("bob", "secret-2", "Topic:Orders"), "eve": account("eve", "secret-3")})


def frame_of(command: Command) -> Frame:
    raw = encode_command(command)
    return JSON, raw[8 : len(raw) - len(command.body)], command.body


def learnt(command: Command | None = None) -> tuple[RequestGuard, SignedPatterns]:
    guard = RequestGuard(POLICY)
    patterns = SignedPatterns(guard.policy)
    command = command or send_command(BOB)
    frame = frame_of(command)
    for _ in range(40):
        patterns.learn(guard, command.code, json.loads(frame[1])["extFields"], frame[1], IP)
    return guard, patterns


@pytest.mark.parametrize(
    "command",
    [
        send_command(BOB),
        send_command(BOB, body=b"another body" * 500, queue_id=3, born_timestamp_ms=1_700_000_000_000),
        send_command(BOB, properties={"KEYS": "naïve ☃ 😀", "a": ""}),
        replace(send_command(BOB), opaque=77),
    ],
)
def test_signed_send_is_admitted_with_an_empty_signature(command: Command) -> None:
    _, patterns = learnt()
    frame = frame_of(command)

    signature = command.ext_fields["Signature"].encode()
    assert patterns.verified(frame, POLICY) == (JSON, frame[1].replace(signature, b""), command.body)


def test_every_change_after_signing_is_left_to_the_slow_path() -> None:
    _, patterns = learnt()
    for name, value in (("e", "1"), ("g", "2"), ("i", "x"), ("b", "Other"), ("AccessKey", "eve"), ("a", "Q")):
        command = send_command(BOB)
        command.ext_fields[name] = value
        assert patterns.verified(frame_of(command), POLICY) is None, name
    command = send_command(BOB)
    command.body = b"changed"
    assert patterns.verified(frame_of(command), POLICY) is None
    for credentials in (None, EVE, Credentials("bob", "wrong-secret")):
        assert patterns.verified(frame_of(send_command(credentials)), POLICY) is None
    serialization, header, body = frame_of(send_command(BOB))
    assert patterns.verified((serialization + 1, header, body), POLICY) is None


def test_patterns_end_with_the_policy() -> None:
    _, patterns = learnt()
    frame = frame_of(send_command(BOB))
    assert patterns.verified(frame, POLICY) is not None

    changed = AccessPolicy({"bob": account("bob", "secret-2")})
    assert patterns.verified(frame, changed) is None
    assert patterns.verified(frame, POLICY) is None  # not even if the policy in force before returns


def test_account_without_permission_gets_no_pattern() -> None:
    _, patterns = learnt(send_command(EVE))

    assert patterns.verified(frame_of(send_command(EVE)), POLICY) is None


def test_header_with_escapes_outside_the_properties_gets_no_pattern() -> None:
    guard = RequestGuard(POLICY)
    patterns = SignedPatterns(guard.policy)
    serialization, header, body = frame_of(send_command(BOB))
    header = header.replace(b'"e":"0"', b'"e":"0","\\u0065":"0"')
    for _ in range(40):
        patterns.learn(guard, 310, json.loads(header)["extFields"], header, IP)

    assert patterns.verified((serialization, header, body), POLICY) is None


@given(st.integers(0, 400), st.integers(0, 255))
@example(290, 0)
def test_flipped_byte_is_never_admitted_unless_the_guard_admits_it(position: int, byte: int) -> None:
    guard, patterns = learnt()
    serialization, header, body = frame_of(send_command(BOB))
    position %= len(header)
    changed = header[:position] + bytes((byte,)) + header[position + 1 :]

    if patterns.verified((serialization, changed, body), POLICY) is not None:
        fields = json.loads(changed)
        assert guard.is_admitted(fields["code"], fields["extFields"], body, IP)
