"""Config directory: a broker's tables in config/*.json, in the format of a Java broker, which can take them over.

A file is replaced as a whole and its predecessor kept as `.bak`, as Java does. The owner of a table encodes it; any
thread may write, one file at a time.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from orbitlog.errors import FormatError, StoreError
from orbitlog.formats import store_tree as tree
from orbitlog.formats.compat import Compat
from orbitlog.formats.java import utf8_encode
from orbitlog.formats.tables.config_files import ConfigSource, choose_config
from orbitlog.formats.tables.json_records import JsonFile, JsonRecord
from orbitlog.storefiles.disk import Disk

R = TypeVar("R", bound=JsonRecord)


class ConfigDirectory:
    """The config directory of one store."""

    def __init__(self, disk: Disk, root: Path, compat: Compat) -> None:
        self._disk = disk
        self._directory = root / tree.CONFIG
        self._compat = compat
        # Content of each file now: an unchanged table is not written, and a backup needs no read.
        self._written: dict[str, bytes] = {}

    @property
    def path(self) -> Path:
        return self._directory

    def modified_ms(self, file_name: str) -> int | None:
        """Return the modification time of a file; None if it does not exist or the disk has no times."""
        try:
            return (self._directory / file_name).stat().st_mtime_ns // 1_000_000
        except OSError:
            return None

    def load(self, file: JsonFile[R]) -> R | None:
        """Read a table, or its backup if it is damaged; return None if neither exists."""
        path = self._directory / file.name
        main = self._disk.read_file(path)
        backup = self._disk.read_file(path.with_name(file.name + tree.BACKUP_SUFFIX))
        try:
            chosen = choose_config(main, backup, file.decode)
        except FormatError as error:
            raise StoreError(f"cannot read {path}: {error}; repair it, or remove it to start without it") from None
        if chosen is None:
            return None
        if main is not None and chosen.source is ConfigSource.MAIN:
            # A damaged file must not replace the backup, the only valid copy until the next save.
            self._written[file.name] = main
        return chosen.value

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
