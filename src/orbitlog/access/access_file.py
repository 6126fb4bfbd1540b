"""Access file: the users and policies of ACL 2.0 in one JSON file that only its owner can read.

    {"dataVersion": {"counter": 3}, "users": [...], "topicOwners": {"topic": "user"}, "acls": [...]}

It is replaced atomically. HMAC needs the passwords themselves, so they are stored as they are: a file that other users
can read is refused.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import orjson

from orbitlog.access.access_model import BadPolicy
from orbitlog.access.user_records import Acl, parse_policies, parse_subject, parse_user
from orbitlog.access.user_table import UserTable
from orbitlog.errors import OrbitlogError
from orbitlog.settings.atomic_file import create_directory, open_for_reading, replace_file

ACCESS_FILE = "access.json"
FILE_BYTES_MAX = 64 * 1024 * 1024
FILE_MODE = 0o600


class BadAccessFile(OrbitlogError):
    """A file with users or accounts that cannot be used; the sentence names it."""


class FileTooLarge(OrbitlogError):
    """A change that would make the access file too large to be read."""


def load_access_file(path: Path) -> UserTable:
    """Return the users and policies of a file, none if it does not exist; raise `BadAccessFile` if it is invalid."""
    try:
        data = read_private_file(path, FILE_BYTES_MAX)
    except FileNotFoundError:
        return UserTable()
    return decode_access_file(data, str(path))


def read_private_file(path: Path, bytes_max: int) -> bytes:
    """Return the bytes of a file with secrets; raise `BadAccessFile` if other users can read it or it is too large."""
    try:
        with open_for_reading(path) as file:
            status = os.fstat(file.fileno())  # of the open file, so that it cannot be replaced after the checks
            if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise BadAccessFile(f"{path} contains secrets and other users can read it; run chmod 600 {path}")
            if status.st_size > bytes_max:
                raise BadAccessFile(f"{path} has {status.st_size} bytes, more than the maximum of {bytes_max}")
            return file.read(bytes_max)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise BadAccessFile(f"could not read {path}: {error.strerror}") from None


def save_access_file(path: Path, table: UserTable, counter: int = 0) -> None:
    """Replace the file; it is created with mode 0600, so other users can never read it. Raise `OSError`.

    Root may replace the file of a server that runs as another user: it stays that user's. A link stays, its target is
    replaced. Raise `FileTooLarge` for one that `load_access_file` would refuse: the server could not start again.
    """
    data = encode_access_file(table, counter)
    if len(data) > FILE_BYTES_MAX:
        raise FileTooLarge(
            f"users and policies would take {len(data)} bytes, more than the maximum of {FILE_BYTES_MAX}"
        )
    target = path.resolve()
    create_directory(target.parent, keeps_owner=True)
    replace_file(target, data, mode=FILE_MODE, keeps_owner=True)


def encode_access_file(table: UserTable, counter: int = 0) -> bytes:
    """Return the bytes of a file."""
    content = {
        "dataVersion": {"counter": counter},
        "users": [user.to_file() for _, user in sorted(table.users.items())],
        "topicOwners": dict(sorted(table.topic_owners.items())),
        "acls": [acl.to_json() for _, acl in sorted(table.acls.items())],
    }
    return orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def decode_access_file(data: bytes, source: str) -> UserTable:
    """Return the users and policies in the bytes of a file; raise `BadAccessFile` if one of them is invalid."""
    try:
        content: Any = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise BadAccessFile(f"{source} is not valid JSON: {error}") from None
    table = UserTable()
    try:
        for fields in _records(content, "users"):
            user = parse_user(fields)
            if user.username in table.users:
                raise BadPolicy(f"user {user.username} is given twice")
            table.users[user.username] = user
        for fields in _records(content, "acls"):
            acl = Acl(parse_subject(fields.get("subject")))
            if acl.username not in table.users:
                raise BadPolicy(f"policies of {acl.subject}, which is not among the users")
            for policy_type, entries in parse_policies(fields):
                acl = acl.with_entries(policy_type, entries)
            table.acls[acl.subject] = acl
        table.topic_owners = _owners(content.get("topicOwners"))
    except BadPolicy as error:
        raise BadAccessFile(f"{source} is not a valid access file: {error}") from None
    return table


def _owners(value: Any) -> dict[str, str]:
    """Return which user created a topic; files of earlier versions do not have it."""
    owners = {} if value is None else value
    if not isinstance(owners, dict) or not all(isinstance(name, str) for name in owners.values()):
        raise BadPolicy('"topicOwners" is not an object of user names')
    return owners


def _records(content: Any, key: str) -> list[dict[str, Any]]:
    records = content.get(key) if isinstance(content, dict) else None
    if not isinstance(records, list) or not all(isinstance(fields, dict) for fields in records):
        raise BadPolicy(f'no list "{key}"')
    return records
