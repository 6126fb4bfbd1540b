"""Tables below config/ as a broker would load them: the file, or its backup if the file is missing or damaged."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from orbitlog.errors import FormatError, StoreLinkError
from orbitlog.formats import store_tree as tree
from orbitlog.formats.tables.config_files import choose_config
from orbitlog.formats.tables.json_records import JsonFile, JsonRecord
from orbitlog.formats.tables.offset_tables import CONSUMER_OFFSET, LMQ_CONSUMER_OFFSET, ConsumerOffsets
from orbitlog.storefiles.config_reading import stored_table
from orbitlog.storefiles.confined.regular_files import read_below
from orbitlog.storefiles.offset_files import OffsetsFile

R = TypeVar("R", bound=JsonRecord)


def read_table(root: Path, file: JsonFile[R]) -> R | None:
    """Return a table; None if it is missing or unreadable."""
    try:
        return load_table(root, file)
    except FormatError:
        return None


def read_offsets(root: Path, file: OffsetsFile) -> ConsumerOffsets | None:
    """Return one of the two tables of committed offsets; None if it is missing or unreadable."""
    if file is LMQ_CONSUMER_OFFSET:
        return read_table(root, LMQ_CONSUMER_OFFSET)
    return read_table(root, CONSUMER_OFFSET)


def load_table(root: Path, file: JsonFile[R]) -> R | None:
    """Return a table, None if it is missing; raise `FormatError` if the file and its backup are unreadable."""
    path = root / tree.CONFIG / file.name
    stored = stored_table(path)
    if stored is not None:
        return file.decode(stored.decode())
    try:
        main, backup = (read_below(root, each) for each in (path, path.with_name(file.name + tree.BACKUP_SUFFIX)))
    except (IsADirectoryError, NotADirectoryError, StoreLinkError):
        return None
    chosen = choose_config(main, backup, file.decode)
    return None if chosen is None else chosen.value
