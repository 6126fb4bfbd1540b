"""RocksDB databases: opens one for reading and writes nothing into its directory.

Opening a database writes a log, a lock file and options into its directory, even for reading. So a directory of links
to its immutable files and copies of the others is opened instead. The binding (`rocksdict`) is an extra.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from orbitlog.errors import StoreLayoutError, StoreLinkError
from orbitlog.formats import store_tree as tree
from orbitlog.storefiles.confined.store_links import find_links
from orbitlog.storefiles.disk import RealDisk, make_link
from orbitlog.storefiles.mapped_view import copy_written, mapped_view
from orbitlog.storefiles.store_files import is_database

BINDING = "rocksdict"
INSTALL_ADVICE = "install rocksdict with pip install 'orbitlog[rocksdb]'"
DEFAULT_FAMILY = "default"
# Never changed after they were written: linked, because the tables of a large store may have many gigabytes.
_IMMUTABLE_SUFFIXES = (".sst", ".blob")
# Written by whichever process opens the database; the copy gets its own. The last is a file of the binding: with it a
# store could choose that values are Python objects, which run code when they are read.
_OF_THE_PROCESS = ("LOCK", "LOG", "rocksdict-config.json")
_COPIED_BYTES_MAX = 4 * 1024**3


def has_entries(directory: Path) -> bool:
    """Return whether a database has a table, or a log with an entry: Java creates empty databases at each start."""
    return is_database(directory) and any(
        path.suffix == ".sst" or (re.fullmatch(r"[0-9]+\.log", path.name) is not None and path.stat().st_size > 0)
        for path in directory.iterdir()
    )


def has_binding() -> bool:
    """Return whether the package that reads databases is installed."""
    return find_spec(BINDING) is not None


def refuse_without_binding(directory: Path) -> None:
    """Raise `StoreLayoutError` with the extra to install if the binding is missing."""
    if not has_binding():
        raise StoreLayoutError(f"store not read: reading {directory} needs a package; {INSTALL_ADVICE}")


class Database:
    """A database that is open for reading."""

    def __init__(self, directory: Path, opened: Any, families: list[str]) -> None:
        self.directory = directory
        self.families = frozenset(families)
        self._opened = opened
        self._handles: dict[str, Any] = {}

    def items(self, family: str = DEFAULT_FAMILY, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries of a column family from a key on, in the order of keys; nothing if there is no such one."""
        if family not in self.families:
            return
        handle = self._handles.get(family)
        if handle is None:
            handle = self._handles[family] = self._opened.get_column_family(family)
        for key, value in handle.items(from_key=start) if start else handle.items():
            yield bytes(key), bytes(value)


@contextmanager
def open_database(directory: Path) -> Iterator[Database]:
    """Open a database; raise `StoreLayoutError` if the binding is missing or cannot read it."""
    refuse_without_binding(directory)
    _refuse_links(directory)
    from rocksdict import AccessType, Options, Rdict

    with tempfile.TemporaryDirectory(prefix="orbitlog-rocksdb-") as temporary:
        try:
            copy = str(_readable_copy(directory, Path(temporary) / directory.name))
            options = Options(raw_mode=True)
            names = Rdict.list_cf(copy, options)
            opened: Any = Rdict(copy, options, {name: Options(raw_mode=True) for name in names}, AccessType.read_only())
        except Exception as error:  # noqa: BLE001 - the binding raises nothing narrower for what RocksDB reports
            raise StoreLayoutError(
                f"store not read: {directory} cannot be opened as a RocksDB database: {error}"
            ) from None
        try:
            yield Database(directory, opened, names)
        finally:
            opened.close()


def _refuse_links(directory: Path) -> None:
    """Raise `StoreLinkError` if the database, config/ above it or one of its files is a link."""
    above = (directory, directory.parent) if directory.parent.name == tree.CONFIG else (directory,)
    for link in (*filter(Path.is_symlink, above), *find_links(directory)):
        raise StoreLinkError(f"store not read: {link} is a link to {link.readlink()}, which is not followed")


def _readable_copy(directory: Path, copy: Path) -> Path:
    """Create a directory with links to the immutable files and copies of the others; pipes and devices are left out."""
    disk = RealDisk()
    disk.make_directory(copy, durable=False)
    left_bytes = _COPIED_BYTES_MAX
    for path in directory.iterdir():
        if not path.is_file():
            continue
        if path.name.endswith(_IMMUTABLE_SUFFIXES):
            make_link(path.resolve(), copy / path.name)
        elif not path.name.startswith(_OF_THE_PROCESS):
            left_bytes -= path.stat().st_size
            if left_bytes < 0:
                raise StoreLayoutError(
                    f"logs and manifests have more than {_COPIED_BYTES_MAX} bytes, which no broker writes"
                )
            _copy_file(disk, path, copy / path.name)
    return copy


def _copy_file(disk: RealDisk, path: Path, target: Path) -> None:
    file = disk.create_plain(target)
    try:
        with mapped_view(path) as view:
            copy_written(path, view, file)
    finally:
        file.close()
