"""Signatures of the official hooks, both directions and both header encodings; fields added after signing."""

import base64
import hashlib
import hmac
import json
from pathlib import Path

import pytest

from orbitlog.access import request_signature
from orbitlog.access.credentials import Credentials
from orbitlog.access.request_signature import UNSIGNED_FIELDS, FieldOrder, SigningKey, is_signed_by, signature_of
from orbitlog.wire.command import Command
from orbitlog.wire.frames import FrameDecoder

VECTORS = json.loads((Path(__file__).parents[2] / "support" / "signed_requests.json").read_text())
REQUESTS = [(version, request) for version in ("4.9.7", "5.5.0") for request in VECTORS[version]]
IDS = [f"{version}-{request['id']}" for version, request in REQUESTS]


@pytest.mark.parametrize(("version", "vector"), REQUESTS, ids=IDS)
def test_signature_of_official_request_is_reproduced(version, vector):
    unsigned = {name: text for name, text in vector["extFields"].items() if name not in ("Signature", "AccessKey")}
    command = Command(vector["code"], ext_fields=unsigned, body=bytes.fromhex(vector["bodyHex"]))
    token = vector["securityToken"]

    Credentials(vector["accessKey"], vector["secretKey"], token).sign(command)

    assert command.ext_fields == vector["extFields"]
    assert FieldOrder().content(command.ext_fields) + command.body == bytes.fromhex(vector["contentHex"])


@pytest.mark.parametrize("encoding", ["jsonFrameHex", "binaryFrameHex"])
@pytest.mark.parametrize(("version", "vector"), REQUESTS, ids=IDS)
def test_official_frame_is_verified_in_both_header_encodings(version, vector, encoding):
    (command,) = FrameDecoder().receive_data(bytes.fromhex(vector[encoding]))
    key = SigningKey(vector["secretKey"])

    assert is_signed_by(key, command.ext_fields, command.body)
    assert not is_signed_by(SigningKey(vector["secretKey"] + "x"), command.ext_fields, command.body)
    assert not is_signed_by(key, command.ext_fields, command.body + b"x")
    for name in command.ext_fields.keys() - UNSIGNED_FIELDS:
        changed = {**command.ext_fields, name: command.ext_fields[name] + "x"}
        assert is_signed_by(key, changed, command.body) is False


@pytest.mark.parametrize("secret", ["", "k", "k" * 64, "k" * 65, "пароль密"])
@pytest.mark.parametrize("body", [b"", b"x", b"x" * 5000])
def test_signing_key_equals_the_standard_hmac(secret, body):
    expected = hmac.new(secret.encode(), b"content" + body, hashlib.sha1).digest()

    assert SigningKey(secret).sign(b"content", body) == base64.b64encode(expected)


@pytest.mark.parametrize("added", ["_UNIQUE_KEY_QUERY", "__ZONE_NAME", "__ZONE_MODE", "SecurityToken"])
def test_field_added_after_signing_is_accepted_if_it_changes_no_right(added):
    fields = {"topic": "T", "AccessKey": "account"}
    fields["Signature"] = signature_of("secret-1", fields, b"")

    assert is_signed_by(SigningKey("secret-1"), {**fields, added: "true"}, b"")
    assert is_signed_by(SigningKey("secret-1"), {**fields, added: "true", "__ZONE_NAME": "z"}, b"")


def test_any_other_field_added_after_signing_is_refused():
    fields = {"topic": "T", "AccessKey": "account"}
    fields["Signature"] = signature_of("secret-1", fields, b"")

    assert not is_signed_by(SigningKey("secret-1"), {**fields, "queueId": "1"}, b"")


def test_signed_unique_key_flag_is_accepted():
    fields = {"topic": "T", "AccessKey": "account", "_UNIQUE_KEY_QUERY": "true"}
    fields["Signature"] = signature_of("secret-1", fields, b"")

    assert is_signed_by(SigningKey("secret-1"), fields, b"")


@pytest.mark.parametrize("fields", [{}, {"Signature": ""}, {"Signature": "ä\ud800"}, {"a": "\ud800"}])
def test_request_without_valid_signature_is_refused_without_an_error(fields):
    assert not is_signed_by(SigningKey("secret-1"), fields, b"")


def test_signatures_are_compared_in_constant_time(monkeypatch):
    compared = []
    monkeypatch.setattr(request_signature.hmac, "compare_digest", lambda a, b: compared.append((a, b)) or a == b)
    fields = {"AccessKey": "account"}
    fields["Signature"] = signature_of("secret-1", fields, b"")

    assert is_signed_by(SigningKey("secret-1"), fields, b"")
    assert not is_signed_by(SigningKey("secret-2"), fields, b"")
    assert len(compared) == 2


def test_order_of_fields_is_that_of_utf_16_units():
    fields = {"zeta": "5", "_u": "3", "A": "1", "\U00010000": "6", "\uffff": "7", "a": "4", "Zeta": "2"}

    assert FieldOrder().content(fields) == b"1234567"


def test_number_of_remembered_field_orders_is_limited(monkeypatch):
    monkeypatch.setattr(request_signature, "_SHAPES_MAX", 4)
    order = FieldOrder()
    for number in range(20):
        assert order.content({f"f{number}": "v"}) == b"v"

    assert len(order._getters) <= 4


def test_secrets_are_not_part_of_repr():
    assert "secret-1" not in repr(SigningKey("secret-1"))
    assert "secret-1" not in repr(Credentials("account", "secret-1"))
