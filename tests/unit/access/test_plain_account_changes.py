"""Changes of account files: what stays, what is refused, and that a written file is read back as it was."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitlog.access.plain_account_changes import (
    AccountChange,
    delete_account,
    encode_plain_file,
    put_account,
    put_white_addresses,
)
from orbitlog.access.plain_accounts import BadAccounts, PlainAccount, PlainFile, parse_plain_file

DEFAULT, OTHER = Path("conf/plain_acl.yml"), Path("conf/acl/more.yml")
ANN = PlainAccount("account-1", "secret-1", "10.0.0.1", True, "PUB", "SUB", ("T=PUB",), ("g=SUB",))
BOB = PlainAccount("account-2", "secret-2")
FILES = {OTHER: PlainFile(("10.0.0.*",), (ANN, BOB), 4, 7)}


def test_new_account_is_added_to_the_default_file_with_denials():
    path, content = put_account(FILES, DEFAULT, AccountChange("account-3", "secret-3"), 1000)

    assert path == DEFAULT
    assert content == PlainFile((), (PlainAccount("account-3", "secret-3"),), 1, 1000)


def test_account_is_changed_in_its_own_file_and_keeps_absent_fields_except_admin():
    path, content = put_account(FILES, DEFAULT, AccountChange("account-1", "another", topic_permissions=("U=SUB",)), 9)

    changed = PlainAccount("account-1", "another", "10.0.0.1", False, "PUB", "SUB", ("U=SUB",), ("g=SUB",))
    assert path == OTHER
    assert content == PlainFile(("10.0.0.*",), (BOB, changed), 5, 9)


def test_account_is_deleted_from_its_file():
    assert delete_account(FILES, "account-1", 9) == (OTHER, PlainFile(("10.0.0.*",), (BOB,), 5, 9))
    assert delete_account(FILES, "unknown", 9) is None


def test_white_addresses_are_replaced():
    path, content = put_white_addresses(FILES, OTHER, ("192.168.0.1",), 9)

    assert (path, content) == (OTHER, PlainFile(("192.168.0.1",), (ANN, BOB), 5, 9))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (AccountChange("short", "secret-1"), "length should longer than 6"),
        (AccountChange("account-9", "short"), "length should longer than 6"),
        (AccountChange("account-9", "secret-9", topic_permissions=("a=WHAT",)), "Parse resource permission error"),
        (AccountChange("account-9", "secret-9", group_permissions=("a",)), "is not name=PUB"),
        (AccountChange("account-9", "secret-9", default_topic_permission="pub"), "default permission pub"),
    ],
)
def test_invalid_change_is_refused_without_showing_the_secret(change, problem):
    with pytest.raises(BadAccounts, match=problem) as refused:
        put_account(FILES, DEFAULT, change, 1)
    assert change.secret_key not in str(refused.value)


KEYS = st.text(min_size=7, max_size=12).filter(lambda text: not any(0xD800 <= ord(letter) < 0xE000 for letter in text))


@given(KEYS, KEYS, st.sampled_from(["", "10.0.0.*", "*"]), st.booleans(), st.integers(0, 10**12))
def test_written_file_is_read_back_as_it_was(key, secret, white, is_admin, version):
    account = PlainAccount(key, secret, white, is_admin, "PUB|SUB", "DENY", ("T=PUB", '"q"\\=SUB'), ())
    content = PlainFile(("192.168.0.1-9",), (account,), version, version)

    assert parse_plain_file(encode_plain_file(content), "file") == content


@pytest.mark.parametrize("secret", ["01234567", "12:30:45", "1234e10", "1234567", "null or so", "2024-01-01"])
def test_secret_that_yaml_would_read_as_another_value_is_quoted(secret):
    content = PlainFile((), (PlainAccount("account-1", secret),))

    assert parse_plain_file(encode_plain_file(content), "file").accounts[0].secret_key == secret
