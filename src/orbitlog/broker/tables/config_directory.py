"""Config directory: a broker's tables in config/*.json, in the format of a Java broker, which can take them over.

A file is replaced as a whole and its predecessor kept as `.bak`, as Java does. The owner of a table encodes it; any
thread may write, one file at a time.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from orbitlog.errors import FormatError, StoreError
from orbitlog.formats import store_tree as tree
from orbitlog.formats.compat import Compat
from orbitlog.formats.java import utf8_encode
from orbitlog.formats.tables.config_files import ChosenConfig, ConfigSource, choose_config
from orbitlog.formats.tables.group_config import CONSUMER_FILTER, MESSAGE_REQUEST_MODE, SUBSCRIPTION_GROUP
from orbitlog.formats.tables.json_records import JsonFile, JsonRecord
from orbitlog.formats.tables.offset_tables import (
    CONSUMER_OFFSET,
    CONSUMER_ORDER_INFO,
    DELAY_OFFSET,
    LMQ_CONSUMER_OFFSET,
)
from orbitlog.formats.tables.pop_progress import POP_PROGRESS
from orbitlog.formats.tables.timer_progress import TIMER_PROGRESS
from orbitlog.formats.tables.topic_config import TOPICS
from orbitlog.storefiles.disk import Disk

R = TypeVar("R", bound=JsonRecord)

# The tables that the broker loads at its start.
BROKER_TABLES: tuple[JsonFile[Any], ...] = (
    TOPICS,
    SUBSCRIPTION_GROUP,
    CONSUMER_OFFSET,
    LMQ_CONSUMER_OFFSET,
    CONSUMER_FILTER,
    DELAY_OFFSET,
    TIMER_PROGRESS,
    POP_PROGRESS,
    CONSUMER_ORDER_INFO,
    MESSAGE_REQUEST_MODE,
)


class ConfigDirectory:
    """The config directory of one store."""

    def __init__(self, disk: Disk, root: Path, compat: Compat) -> None:
        self._disk = disk
        self._directory = root / tree.CONFIG
        self._compat = compat
        # Content of each file now: an unchanged table is not written, and a backup needs no read.
        self._written: dict[str, bytes] = {}
        # Tables that `check` has decoded, with the bytes of file and backup that they were decoded from.
        self._checked: dict[str, tuple[bytes | None, bytes | None, Any]] = {}

    @property
    def path(self) -> Path:
        return self._directory

    def modified_ms(self, file_name: str) -> int | None:
        """Return the modification time of a file; None if it does not exist or the disk has no times."""
        try:
            return (self._directory / file_name).stat().st_mtime_ns // 1_000_000
        except OSError:
            return None

    def has(self, file_name: str) -> bool:
        """Return whether a table exists; its backup does not count."""
        return bool(self._disk.read_file(self._directory / file_name))

    def check(self, file: JsonFile[Any]) -> None:
        """Raise `StoreError` if a table cannot be read; the next `load` decodes it again only if it has changed."""
        main, backup = self._read(file)
        self._checked[file.name] = main, backup, self._choose(file, main, backup)

    def load(self, file: JsonFile[R]) -> R | None:
        """Read a table, or its backup if it is damaged; return None if neither exists."""
        main, backup = self._read(file)
        chosen: ChosenConfig[R] | None
        checked_main, checked_backup, chosen = self._checked.pop(file.name, (None, None, None))
        if chosen is None or (checked_main, checked_backup) != (main, backup):
            chosen = self._choose(file, main, backup)
        if chosen is None:
            return None
        if main is not None and chosen.source is ConfigSource.MAIN:
            # A damaged file must not replace the backup, the only valid copy until the next save.
            self._written[file.name] = main
        return chosen.value

    def _read(self, file: JsonFile[Any]) -> tuple[bytes | None, bytes | None]:
        path = self._directory / file.name
        return self._disk.read_file(path), self._disk.read_file(path.with_name(file.name + tree.BACKUP_SUFFIX))

    def _choose(self, file: JsonFile[R], main: bytes | None, backup: bytes | None) -> ChosenConfig[R] | None:
        try:
            return choose_config(main, backup, file.decode)
        except FormatError as error:
            raise StoreError(
                f"cannot read {self._directory / file.name}: {error}; repair it, or replace its content by {{}} to"
                " start without it"
            ) from None

    def encode(self, file: JsonFile[R], table: R) -> bytes:
        return utf8_encode(file.encode(table, self._compat))

    def write(self, file_name: str, content: bytes) -> None:
        """Replace a file, and keep its predecessor as the backup."""
        before = self._written.get(file_name)
        if before == content:
            return
        self._disk.make_directory(self._directory)
        path = self._directory / file_name
        if before is not None:
            self._disk.replace_file(path.with_name(file_name + tree.BACKUP_SUFFIX), before)
        self._disk.replace_file(path, content)
        self._written[file_name] = content
