"""Accounts of ACL 1.0: reads `plain_acl.yml` and translates each account into the access model.

Explicit permissions become custom entries, default permissions default entries; groups are kept as in Java under their
retry topic. A file with an invalid account is refused as a whole: an account that is left out would be a client that
is locked out, a permission that is left out could be a denial. Mirrors Java `PlainAccessConfig`,
`PlainPermissionManager`, `Permission`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from orbitlog.access.access_model import Account, Action, PolicyEntry, Resource, ResourceKind
from orbitlog.access.source_addresses import BadAddress, white_address
from orbitlog.access.yaml_scalars import Scalar
from orbitlog.access.yaml_subset import BadYaml, YamlValue, read_yaml
from orbitlog.errors import OrbitlogError
from orbitlog.formats.names import RETRY_PREFIX

KEY_CHARACTERS_MIN = 7
_TRUE = frozenset(("true", "yes", "on", "y"))
_ADMIN_ACTIONS = Action.CREATE | Action.UPDATE | Action.DELETE
# SUB includes reading offsets and statistics, which 4.9.7 allows to every account.
_PERMISSIONS = {
    "PUB": Action.PUB,
    "SUB": Action.SUB | Action.GET,
    "PUB|SUB": Action.PUB | Action.SUB | Action.GET,
    "SUB|PUB": Action.PUB | Action.SUB | Action.GET,
}
DENY = "DENY"
PERMISSION_WORDS = frozenset((*_PERMISSIONS, DENY))


class BadAccounts(OrbitlogError):
    """A file of accounts that is invalid; the sentence names file and account."""


@dataclass(frozen=True, slots=True)
class PlainAccount:
    """One account as its file has it; the secret is never part of `repr`."""

    access_key: str
    secret_key: str = field(repr=False)
    white_address: str = ""
    is_admin: bool = False
    default_topic_permission: str = ""
    """Empty if it is not given: that denies, as `DENY` does."""
    default_group_permission: str = ""
    topic_permissions: tuple[str, ...] = ()
    group_permissions: tuple[str, ...] = ()


class PlainFile(NamedTuple):
    """The content of one file."""

    global_white_addresses: tuple[str, ...]
    accounts: tuple[PlainAccount, ...]
    version_counter: int = 0
    version_timestamp_ms: int = 0


_TOP_KEYS = frozenset(("globalWhiteRemoteAddresses", "accounts", "dataVersion"))
_ACCOUNT_KEYS = frozenset(
    ("accessKey", "secretKey", "whiteRemoteAddress", "admin", "defaultTopicPerm", "defaultGroupPerm")
) | frozenset(("topicPerms", "groupPerms"))


def parse_plain_file(data: bytes, source: str) -> PlainFile:
    """Return the accounts and global white addresses of a file; raise `BadAccounts` with its name."""
    try:
        content = read_yaml(data)
        table = _table(content, _TOP_KEYS, "the file")
        addresses = tuple(_texts(table.get("globalWhiteRemoteAddresses"), "globalWhiteRemoteAddresses"))
        for address in addresses:
            white_address(address)
        accounts = table.get("accounts")
        if accounts is not None and not isinstance(accounts, list):
            raise BadYaml("accounts is not a list")
        counter, timestamp_ms = _data_version(table.get("dataVersion"))
        return PlainFile(addresses, tuple(map(_account, accounts or ())), counter, timestamp_ms)
    except (BadYaml, BadAddress, BadAccounts) as error:
        raise BadAccounts(f"{source}: {error}") from None


def _table(value: YamlValue, keys: Iterable[str], name: str) -> dict[str, YamlValue]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadYaml(f"{name} is not a mapping")
    unknown = sorted(set(value).difference(keys))
    if unknown:
        raise BadYaml(f"{name} has the unknown key {unknown[0][:40]!r}, which would have no effect; remove it")
    return value


def _account(value: YamlValue) -> PlainAccount:
    table = _table(value, _ACCOUNT_KEYS, "an account")
    access_key = _key(table.get("accessKey"), "accessKey", "an account")
    name = f"account {access_key}"
    account = PlainAccount(
        access_key,
        _key(table.get("secretKey"), "secretKey", name),
        _text(table.get("whiteRemoteAddress"), "whiteRemoteAddress"),
        _truth(table.get("admin")),
        _text(table.get("defaultTopicPerm"), "defaultTopicPerm"),
        _text(table.get("defaultGroupPerm"), "defaultGroupPerm"),
        tuple(_texts(table.get("topicPerms"), "topicPerms")),
        tuple(_texts(table.get("groupPerms"), "groupPerms")),
    )
    try:
        check_plain_account(account)
    except (BadAccounts, BadAddress) as error:
        raise BadAccounts(f"{name}: {error}") from None
    return account


def check_plain_account(account: PlainAccount) -> None:
    """Raise `BadAccounts` or `BadAddress` if an account is invalid."""
    for text in (account.access_key, account.secret_key):
        if len(text) < KEY_CHARACTERS_MIN:
            raise BadAccounts(f"accessKey and secretKey need at least {KEY_CHARACTERS_MIN} characters")
    white_address(account.white_address)
    for permission in (*account.topic_permissions, *account.group_permissions):
        split_permission(permission)


def split_permission(permission: str) -> tuple[str, str]:
    """Return name and permission of `name=PUB`; raise `BadAccounts` if it does not have this form."""
    name, separator, text = permission.partition("=")
    if not separator or "=" in text or not name.strip() or not text.strip():
        raise BadAccounts(f"permission {permission[:255]!r} is not name=PUB, SUB, PUB|SUB or DENY")
    return name.strip(), text.strip()


def _key(value: YamlValue, key: str, name: str) -> str:
    """Return an access key or secret; raise `BadYaml` for a scalar that Java would read as another text."""
    if not isinstance(value, Scalar):
        raise BadYaml(f"{key} of {name} is missing")
    if not (value.is_text or value.is_decimal):
        raise BadYaml(f"line {value.line}: {key} of {name} is not read as text by YAML; put it in quotes")
    return value.text


def _text(value: YamlValue, key: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, Scalar):
        raise BadYaml(f"{key} is not a single value")
    return value.text


def _texts(value: YamlValue, key: str) -> Iterable[str]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise BadYaml(f"{key} is not a list")
    return [_text(item, key) for item in value]


def _truth(value: YamlValue) -> bool:
    text = _text(value, "admin").lower()
    return text in _TRUE or (text.isdecimal() and int(text[:18]) != 0)


def _data_version(value: YamlValue) -> tuple[int, int]:
    table = value[0] if isinstance(value, list) and value else None
    numbers = [_text(table.get(key), key) if isinstance(table, dict) else "" for key in ("counter", "timestamp")]
    return (*(int(text[:18]) if text.isdecimal() else 0 for text in numbers),)  # type: ignore[return-value]


def account_of(plain: PlainAccount) -> Account:
    """Translate an account of 1.0: the decisions of the model are those of its permissions."""
    permissions = [
        *plain.topic_permissions,
        *(RETRY_PREFIX + permission.strip() for permission in plain.group_permissions),
    ]
    is_super = plain.is_admin and not permissions
    added = _ADMIN_ACTIONS if plain.is_admin else Action(0)
    custom = [_entry(_resource(name), text, added) for name, text in map(split_permission, permissions)]
    default = [
        _entry(Resource.parse("Topic:*"), plain.default_topic_permission, added),
        _entry(Resource.parse("Group:*"), plain.default_group_permission, added),
    ]
    if plain.is_admin:
        custom.append(PolicyEntry(Resource.parse("Cluster:*"), Action.ALL, True))
    return Account(
        plain.access_key,
        plain.secret_key,
        is_super=is_super,
        custom=tuple(custom),
        default=tuple(default),
        manages_accounts=plain.is_admin,
        white_address=plain.white_address,
        is_plain=True,
    )


def _resource(name: str) -> Resource:
    if name.startswith(RETRY_PREFIX):
        return Resource.literal(ResourceKind.GROUP, name[len(RETRY_PREFIX) :])
    return Resource.literal(ResourceKind.TOPIC, name)


def _entry(resource: Resource, permission: str, added: Action) -> PolicyEntry:
    """Return the entry of a permission; an unknown text denies, as DENY does."""
    actions = _PERMISSIONS.get(permission.strip())
    if actions is None and not added:
        return PolicyEntry(resource, Action.ALL, False)
    # An administrator creates and deletes what it may not read: 4.9.7 checks those requests by the flag alone.
    return PolicyEntry(resource, (actions or Action(0)) | added, True)
