"""Console users: names, roles and password hashes in `users.json`, which only its owner can read.

Passwords are hashed with scrypt; the parameters are stored with each hash, so that they can be raised later.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orbitlog.console.session.console_roles import ROLE_WORDS, Role, role_of
from orbitlog.errors import OrbitlogError
from orbitlog.settings.atomic_file import create_directory, replace_file

FILE_NAME = "users.json"
PASSWORD_CHARACTERS_MIN = 8
PASSWORD_CHARACTERS_MAX = 1024
USERS_MAX = 10_000
_FILE_BYTES_MAX = 16 << 20
_NAME = re.compile(r"[\w.@-]{1,64}", re.ASCII)
_COST, _BLOCK, _PARALLEL = 1 << 15, 8, 1
_COST_MAX, _BLOCK_MAX, _PARALLEL_MAX = 1 << 17, 16, 4
_MEMORY_BYTES_MAX = 64 << 20
_SALT_BYTES, _HASH_BYTES = 16, 32


class UserFileError(OrbitlogError):
    """A user file that is not valid, or a change of it that is refused."""


@dataclass(frozen=True, slots=True)
class PasswordHash:
    """A scrypt hash with its salt and parameters."""

    salt: bytes
    digest: bytes
    cost: int = _COST
    block: int = _BLOCK
    parallel: int = _PARALLEL

    def matches(self, password: str) -> bool:
        """Return whether this is the hash of a password; takes about 0.1 s, so call it in a thread."""
        return hmac.compare_digest(_digest(password, self.salt, self.cost, self.block, self.parallel), self.digest)


@dataclass(frozen=True, slots=True)
class User:
    """A user of the console."""

    name: str
    role: Role
    password: PasswordHash


def hash_password(password: str) -> PasswordHash:
    salt = secrets.token_bytes(_SALT_BYTES)
    return PasswordHash(salt, _digest(password, salt, _COST, _BLOCK, _PARALLEL))


def _digest(password: str, salt: bytes, cost: int, block: int, parallel: int) -> bytes:
    return hashlib.scrypt(
        password.encode(), salt=salt, n=cost, r=block, p=parallel, maxmem=_MEMORY_BYTES_MAX, dklen=_HASH_BYTES
    )


# An unknown name is compared with this hash, so that it takes as long as a known one.
_NO_USER = PasswordHash(b"\0" * _SALT_BYTES, b"\0" * _HASH_BYTES)


class UserFile:
    """The users of a console; the file is read when its size or time has changed."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / FILE_NAME
        self._users: dict[str, User] = {}
        self._read_at: tuple[int, int] | None = None

    def users(self) -> dict[str, User]:
        """Return the users by name; none if there is no file."""
        try:
            status = self.path.stat()
        except FileNotFoundError:
            self._users, self._read_at = {}, None
            return self._users
        version = status.st_mtime_ns, status.st_size
        if version != self._read_at:
            if status.st_size > _FILE_BYTES_MAX:
                raise UserFileError(f"{self.path}: larger than {_FILE_BYTES_MAX} bytes")
            self._users = _parse(self.path, self.path.read_bytes())
            self._read_at = version
        return self._users

    def verify(self, name: str, password: str) -> User | None:
        """Return the user if name and password match; unknown names take as long as wrong passwords."""
        user = self.users().get(name)
        expected = _NO_USER if user is None else user.password
        is_valid = len(password) <= PASSWORD_CHARACTERS_MAX and expected.matches(password)
        return user if is_valid else None

    def put(self, name: str, role: Role, password: str) -> None:
        """Add or replace a user; raise `UserFileError` for an invalid name or password."""
        if not _NAME.fullmatch(name):
            raise UserFileError(f"invalid user name {name[:80]!r}: letters, digits and . _ @ -, at most 64 characters")
        if not PASSWORD_CHARACTERS_MIN <= len(password) <= PASSWORD_CHARACTERS_MAX:
            raise UserFileError(
                f"invalid password: between {PASSWORD_CHARACTERS_MIN} and {PASSWORD_CHARACTERS_MAX} characters"
            )
        users = dict(self.users())
        if name not in users and len(users) >= USERS_MAX:
            raise UserFileError(f"{self.path} has {USERS_MAX} users already, which is the maximum")
        self._save({**users, name: User(name, role, hash_password(password))})

    def remove(self, name: str) -> None:
        users = dict(self.users())
        if users.pop(name, None) is None:
            raise UserFileError(f"unknown user {name[:80]!r} in {self.path}")
        self._save(users)

    def _save(self, users: dict[str, User]) -> None:
        # Root also edits the users of a service that runs without rights, which must be able to read them.
        create_directory(self.path.parent, 0o700, keeps_owner=True)
        table = {name: _as_json(user) for name, user in sorted(users.items())}
        replace_file(self.path, json.dumps({"users": table}, indent=1).encode() + b"\n", mode=0o600, keeps_owner=True)
        self._read_at = None


def _as_json(user: User) -> dict[str, Any]:
    password = user.password
    return {
        "role": user.role.word,
        "salt": password.salt.hex(),
        "hash": password.digest.hex(),
        "n": password.cost,
        "r": password.block,
        "p": password.parallel,
    }


def _parse(path: Path, content: bytes) -> dict[str, User]:
    try:
        table = json.loads(content)["users"]
        return {name: _user(name, fields) for name, fields in table.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserFileError(
            f"{path}: not a valid user file ({type(error).__name__}: {error}); roles are {', '.join(ROLE_WORDS)}"
        ) from None


def _user(name: str, fields: dict[str, Any]) -> User:
    cost, block, parallel = int(fields["n"]), int(fields["r"]), int(fields["p"])
    if not (1 < cost <= _COST_MAX and 0 < block <= _BLOCK_MAX and 0 < parallel <= _PARALLEL_MAX):
        raise ValueError("scrypt parameters out of range")
    password = PasswordHash(bytes.fromhex(fields["salt"]), bytes.fromhex(fields["hash"]), cost, block, parallel)
    return User(name, role_of(fields["role"]), password)
