"""Account files of ACL 1.0 below Java's home directory: finds them, reads all of them, and notices changes.

The files are `conf/plain_acl.yml` and every `.yml` or `.yaml` below `conf/acl`, except `tools.yml`. A change of any
file reads all of them: the accounts in force are always those of one state of the directory. Mirrors Java
`PlainPermissionManager`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from orbitlog.access.access_file import FILE_MODE, BadAccessFile
from orbitlog.access.access_model import Account
from orbitlog.access.plain_account_changes import encode_plain_file
from orbitlog.access.plain_accounts import BadAccounts, PlainFile, account_of, parse_plain_file
from orbitlog.access.yaml_subset import TEXT_BYTES_MAX
from orbitlog.settings.atomic_file import create_directory, replace_file

DEFAULT_FILE = "conf/plain_acl.yml"
DIRECTORY = "conf/acl"
_TOOLS_FILE = "tools.yml"
_FILES_MAX = 1000

FileMark = tuple[str, int, int, int]
"""Path, inode, modification time in nanoseconds and size: a changed file has another mark."""


class PlainAccounts(NamedTuple):
    """The accounts of all files, with the global white addresses."""

    files: Mapping[Path, PlainFile]
    accounts: Mapping[str, Account]
    global_white_addresses: tuple[str, ...]


def account_files(home: Path) -> list[Path]:
    """Return the files with accounts that exist, those of the directory first.

    Raise `BadAccessFile` for a directory that cannot be searched: its accounts would be missing.
    """
    directory = home / DIRECTORY
    try:
        paths = sorted(path for path in _files_below(directory) if path.suffix in (".yml", ".yaml") and path.is_file())
        default = home / DEFAULT_FILE
        return [*(path for path in paths if path.name != _TOOLS_FILE), *([default] if default.is_file() else [])]
    except OSError as error:
        raise BadAccessFile(f"could not search {error.filename}: {error.strerror}") from None


def _files_below(directory: Path) -> Iterator[Path]:
    for parent, directories, names in os.walk(directory, onerror=_raise_unless_absent):
        # Kubernetes mounts files as links into a directory `..data`: they would be found twice.
        directories[:] = [name for name in directories if not name.startswith("..")]
        yield from (Path(parent, name) for name in names)


def _raise_unless_absent(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def marks_of(paths: list[Path]) -> tuple[FileMark, ...]:
    """Return the marks of files; they differ after a change."""
    marks = []
    for path in paths:
        try:
            status = path.stat()
        except OSError:
            marks.append((str(path), 0, 0, 0))
        else:
            marks.append((str(path), status.st_ino, status.st_mtime_ns, status.st_size))
    return tuple(marks)


def load_plain_accounts(home: Path) -> PlainAccounts:
    """Read all files; raise `BadAccounts` or `BadAccessFile` if one is invalid, or an account is in two files."""
    paths = account_files(home)
    if len(paths) > _FILES_MAX:
        raise BadAccounts(f"{home / DIRECTORY}: {len(paths)} files exceed the maximum of {_FILES_MAX}")
    return combined({path: parse_plain_file(_read(path), str(path)) for path in paths})


def combined(files: Mapping[Path, PlainFile]) -> PlainAccounts:
    """Return the accounts of all files; raise `BadAccounts` if an account is in two of them."""
    accounts: dict[str, Account] = {}
    origins: dict[str, Path] = {}
    for path, content in files.items():
        for plain in content.accounts:
            if plain.access_key in origins:
                other = origins[plain.access_key]
                raise BadAccounts(f"account {plain.access_key} is in {other} and in {path}; remove one of them")
            origins[plain.access_key] = path
            accounts[plain.access_key] = account_of(plain)
    white = dict.fromkeys(address for content in files.values() for address in content.global_white_addresses)
    return PlainAccounts(files, accounts, tuple(white))


def save_plain_file(path: Path, content: PlainFile) -> None:
    """Replace a file; raise `OSError`, and then leave it as it was, or `BadAccounts` if it could not be read back.

    It gets mode 0600, because it contains secrets. A link stays, its target is replaced.
    """
    data = encode_plain_file(content)
    parse_plain_file(data, str(path))
    target = path.resolve()
    create_directory(target.parent)
    replace_file(target, data, mode=FILE_MODE, keeps_owner=True)


def _read(path: Path) -> bytes:
    try:
        if path.stat().st_size > TEXT_BYTES_MAX:
            raise BadAccounts(f"{path}: more than the maximum of {TEXT_BYTES_MAX} bytes")
        return path.read_bytes()
    except OSError as error:
        raise BadAccessFile(f"could not read {path}: {error.strerror}") from None
