"""Tables of a broker in config/*.json, the files that a Java broker keeps: either can go on with what the other left.

A file is replaced whole, and the one before it stays as `.bak`, as Java does it. Encoding is done by whoever owns the
table; writing may happen in any thread, one file at a time.
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
    """config/ of one store."""

    def __init__(self, disk: Disk, root: Path, compat: Compat) -> None:
        self._disk = disk
        self._directory = root / tree.CONFIG
        self._compat = compat
        # What a file holds now, so that nothing is written, nor read back, for nothing.
        self._written: dict[str, bytes] = {}

    @property
    def path(self) -> Path:
        return self._directory

    def modified_ms(self, file_name: str) -> int | None:
        """Return when a file was written last; None if there is none, or the disk has no times."""
        try:
            return (self._directory / file_name).stat().st_mtime_ns // 1_000_000
        except OSError:
            return None

    def load(self, file: JsonFile[R]) -> R | None:
        """Read a table, or its backup where it is damaged; None where there is neither."""
        path = self._directory / file.name
        main = self._disk.read_file(path)
        backup = self._disk.read_file(path.with_name(file.name + tree.BACKUP_SUFFIX))
        try:
            chosen = choose_config(main, backup, file.decode)
        except FormatError as error:
            raise StoreError(f"{path} cannot be read: {error}; mend it, or remove it to start without it") from None
        if chosen is None:
            return None
        if main is not None and chosen.source is ConfigSource.MAIN:
            # A damaged file must not become the backup: until it is replaced the backup is all there is.
            self._written[file.name] = main
        return chosen.value

    def encode(self, file: JsonFile[R], table: R) -> bytes:
        return utf8_encode(file.encode(table, self._compat))

    def write(self, file_name: str, content: bytes) -> None:
        """Replace a file, and keep the one before as its backup."""
        before = self._written.get(file_name)
        if before == content:
            return
        self._disk.make_directory(self._directory)
        path = self._directory / file_name
        if before is not None:
            self._disk.replace_file(path.with_name(file_name + tree.BACKUP_SUFFIX), before)
        self._disk.replace_file(path, content)
        self._written[file_name] = content
