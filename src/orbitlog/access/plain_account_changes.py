"""Changes of account files of ACL 1.0, as `mqadmin` of 4.x requests them, and the YAML of a changed file.

A change returns the one file that differs; the caller saves it. The YAML has the block style of Java, with every text
in quotes, so that no reader takes a secret for a number. Mirrors Java `PlainPermissionManager.updateAccessConfig`,
`deleteAccessConfig` and `updateGlobalWhiteAddrsConfig`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, TypeVar

from orbitlog.access.plain_accounts import (
    DENY,
    KEY_CHARACTERS_MIN,
    PERMISSION_WORDS,
    BadAccounts,
    PlainAccount,
    PlainFile,
    split_permission,
)

ACCOUNTS_MAX = 100_000
Files = Mapping[Path, PlainFile]
T = TypeVar("T")


class AccountChange(NamedTuple):
    """The fields of one account in a request; None keeps the value of an account that exists."""

    access_key: str
    secret_key: str
    white_address: str | None = None
    is_admin: bool = False
    default_topic_permission: str | None = None
    default_group_permission: str | None = None
    topic_permissions: tuple[str, ...] | None = None
    group_permissions: tuple[str, ...] | None = None


class ChangedFile(NamedTuple):
    """A file, and what it is to contain."""

    path: Path
    content: PlainFile


def put_account(files: Files, default: Path, change: AccountChange, now_ms: int) -> ChangedFile:
    """Add an account to the file `default`, or change it in its own file; it becomes the last one there.

    Raise `BadAccounts` if the change is invalid.
    """
    _check(change)
    path, present = find_account(files, change.access_key) or (default, None)
    account = present or PlainAccount(change.access_key, change.secret_key)
    content = files.get(path, PlainFile((), ()))
    others = tuple(other for other in content.accounts if other.access_key != change.access_key)
    if len(others) >= ACCOUNTS_MAX:
        raise BadAccounts(f"the maximum of {ACCOUNTS_MAX} accounts in a file is reached")
    changed = replace(
        account,
        secret_key=change.secret_key,
        white_address=_given(change.white_address, account.white_address),
        is_admin=change.is_admin,
        default_topic_permission=change.default_topic_permission or account.default_topic_permission,
        default_group_permission=change.default_group_permission or account.default_group_permission,
        topic_permissions=_given(change.topic_permissions, account.topic_permissions),
        group_permissions=_given(change.group_permissions, account.group_permissions),
    )
    return ChangedFile(path, _next_version(content._replace(accounts=(*others, changed)), now_ms))


def delete_account(files: Files, access_key: str, now_ms: int) -> ChangedFile | None:
    """Delete an account from its file; return None if no file contains it."""
    found = find_account(files, access_key)
    if found is None:
        return None
    path, account = found
    content = files[path]
    kept = tuple(other for other in content.accounts if other is not account)
    return ChangedFile(path, _next_version(content._replace(accounts=kept), now_ms))


def put_white_addresses(files: Files, path: Path, addresses: tuple[str, ...], now_ms: int) -> ChangedFile:
    """Replace the global white addresses of a file."""
    content = files.get(path, PlainFile((), ()))
    return ChangedFile(path, _next_version(content._replace(global_white_addresses=addresses), now_ms))


def find_account(files: Files, access_key: str) -> tuple[Path, PlainAccount] | None:
    """Return an account with the file that contains it."""
    for path, content in files.items():
        for account in content.accounts:
            if account.access_key == access_key:
                return path, account
    return None


def _given(value: T | None, present: T) -> T:
    return present if value is None else value


def _check(change: AccountChange) -> None:
    """Raise `BadAccounts` with the sentence of 4.9.7, without the secret."""
    if min(len(change.access_key), len(change.secret_key)) < KEY_CHARACTERS_MIN:
        raise BadAccounts(
            f"The accessKey={change.access_key[:255]} and its secretKey cannot be null and length should longer than"
            f" {KEY_CHARACTERS_MIN - 1}"
        )
    for permission in (*(change.topic_permissions or ()), *(change.group_permissions or ())):
        _, word = split_permission(permission)
        if word not in PERMISSION_WORDS:
            raise BadAccounts(
                f"Parse resource permission error for {permission[:255]}.\n"
                "The expected permissions are 'SUB' or 'PUB' or 'SUB|PUB' or 'PUB|SUB'."
            )
    for default in (change.default_topic_permission, change.default_group_permission):
        if default and default not in PERMISSION_WORDS:
            raise BadAccounts(f"default permission {default[:255]} is not one of PUB, SUB, PUB|SUB and {DENY}")


def _next_version(content: PlainFile, now_ms: int) -> PlainFile:
    return content._replace(version_counter=content.version_counter + 1, version_timestamp_ms=now_ms)


# The file


def encode_plain_file(content: PlainFile) -> bytes:
    """Return the bytes of a file; `parse_plain_file` reads the same content."""
    return "".join(f"{line}\n" for line in _lines(content)).encode()


def _lines(content: PlainFile) -> Iterator[str]:
    yield from _list("", "globalWhiteRemoteAddresses", content.global_white_addresses)
    yield "accounts:" if content.accounts else "accounts: []"
    for account in content.accounts:
        yield f"- accessKey: {_quoted(account.access_key)}"
        yield f"  secretKey: {_quoted(account.secret_key)}"
        yield f"  admin: {'true' if account.is_admin else 'false'}"
        for key, text in (
            ("whiteRemoteAddress", account.white_address),
            ("defaultTopicPerm", account.default_topic_permission),
            ("defaultGroupPerm", account.default_group_permission),
        ):
            if text:
                yield f"  {key}: {_quoted(text)}"
        yield from _list("  ", "topicPerms", account.topic_permissions)
        yield from _list("  ", "groupPerms", account.group_permissions)
    yield "dataVersion:"
    yield f"- counter: {content.version_counter}"
    yield f"  timestamp: {content.version_timestamp_ms}"


def _list(indent: str, key: str, values: tuple[str, ...]) -> Iterator[str]:
    if values:
        yield f"{indent}{key}:"
    for value in values:
        yield f"{indent}- {_quoted(value)}"


def _quoted(text: str) -> str:
    """Return a text as a double-quoted scalar; what is not printable is escaped."""
    return f'"{"".join(map(_escaped, text))}"'


def _escaped(letter: str) -> str:
    if letter in '"\\':
        return "\\" + letter
    if letter.isprintable():
        return letter
    return f"\\u{ord(letter):04x}" if ord(letter) <= 0xFFFF else f"\\U{ord(letter):08x}"
