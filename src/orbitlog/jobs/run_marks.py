"""Run marks: show whether a journal or a plan in a store was written by this user on this machine.

A journal in a store is a list of changes to carry out, and a store may come from a stranger. So each one is signed with
a key that is kept outside every store, in `$XDG_STATE_HOME/orbitlog/journal.key` (`~/.local/state` by default). A
journal without a valid mark is carried out only when the operator asks for it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from pathlib import Path
from typing import Any

from orbitlog.errors import StoreLayoutError
from orbitlog.settings.atomic_file import create_directory, replace_file
from orbitlog.settings.user_directories import user_directory
from orbitlog.storefiles.confined.regular_files import open_regular

_KEY_BYTES = 32


def mark_of(content: dict[str, Any]) -> str | None:
    """Return the mark of a journal or plan; None if no key can be kept, so that the operator will be asked."""
    key = _key(create=True)
    return None if key is None else _digest(key, content)


def is_own(content: dict[str, Any], mark: object) -> bool:
    """Return whether `mark` is the one that this user's key gives."""
    key = _key(create=False)
    return key is not None and isinstance(mark, str) and hmac.compare_digest(_digest(key, content), mark)


def _digest(key: bytes, content: dict[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hmac.new(key, text.encode("ascii"), hashlib.sha256).hexdigest()


def _key_path() -> Path:
    return user_directory("XDG_STATE_HOME") / "journal.key"


def _key(*, create: bool) -> bytes | None:
    try:
        path = _key_path()
        return _read_key(path) or (_create_key(path) if create else None)
    except (OSError, RuntimeError):  # no home directory, or one that cannot be written to
        return None


def _read_key(path: Path) -> bytes | None:
    """Return the key; None if it is missing, or if another user could have chosen it."""
    try:
        descriptor = open_regular(path, os.O_RDONLY)
    except (FileNotFoundError, StoreLayoutError):
        return None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        is_private = status.st_uid == os.geteuid() and not status.st_mode & 0o077
        key = file.read(_KEY_BYTES) if is_private else b""
    return key if len(key) == _KEY_BYTES else None


def _create_key(path: Path) -> bytes | None:
    """Create the key and return it: of two processes at the same time, the one that was written last."""
    create_directory(path.parent, 0o700)
    replace_file(path, secrets.token_bytes(_KEY_BYTES), mode=0o600)
    return _read_key(path)
