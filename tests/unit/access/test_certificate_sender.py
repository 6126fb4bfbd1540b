"""Requests without credentials over connections with a client certificate."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from orbitlog.access.access_model import Account
from orbitlog.access.account_quotas import AccountQuotas
from orbitlog.access.certificate_sender import named_by_certificate
from orbitlog.access.credentials import Credentials
from orbitlog.access.failed_attempts import FailedAttempts
from orbitlog.access.guarded_handler import guarded_handler
from orbitlog.access.request_guard import AccessPolicy, RequestGuard
from orbitlog.errors import RequestRefused
from orbitlog.wire.codes import RequestCode
from orbitlog.wire.command import Command

ALICE = Account("alice", "alice-secret", is_super=True)


def serve(certificate_name: str, command: Command, *accounts: Account) -> Command:
    guard = RequestGuard(AccessPolicy({account.name: account for account in accounts}))
    peer = SimpleNamespace(remote_address=("10.0.0.1", 1), certificate_name=certificate_name)
    access = SimpleNamespace(guard=guard, quotas=AccountQuotas(lambda: 0), failures=FailedAttempts(10, lambda: 0))
    handler = guarded_handler(access, lambda _, request: request, lambda error, _: request())
    return named_by_certificate(guard, handler)(peer, command)


def request() -> Command:
    return Command(RequestCode.GET_BROKER_CONFIG, ext_fields={"topic": "Orders"}, body=b"body")


def test_certificate_of_a_user_stands_for_its_signature() -> None:
    assert serve("alice", request(), ALICE).ext_fields == {"topic": "Orders"}


@pytest.mark.parametrize("name", ["", "bob"])
def test_certificate_without_a_user_proves_nothing(name: str) -> None:
    with pytest.raises(RequestRefused):
        serve(name, request(), ALICE)


def test_disabled_user_is_refused() -> None:
    with pytest.raises(RequestRefused, match="is disabled"):
        serve("alice", request(), Account("alice", "alice-secret", is_super=True, is_enabled=False))


def test_credentials_in_the_request_count_first() -> None:
    signed = request()
    Credentials("alice", "wrong-secret").sign(signed)
    with pytest.raises(RequestRefused, match="check signature failed"):
        serve("alice", signed, ALICE)


def test_empty_credentials_of_the_cpp_client_count_as_none() -> None:
    unsigned = request()
    unsigned.ext_fields |= {"AccessKey": "", "Signature": "", "OnsChannel": ""}
    assert serve("alice", unsigned, ALICE).ext_fields == {"topic": "Orders", "OnsChannel": ""}
