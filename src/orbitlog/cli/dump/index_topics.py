"""Topics of index entries: looks them up in the log, because the index contains only hashes."""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path

import click

from orbitlog.cli.dump.dump_target import one_log
from orbitlog.errors import FormatError
from orbitlog.formats import store_tree as tree
from orbitlog.formats.records.message import decode_message
from orbitlog.settings.store_settings import StoreSettings
from orbitlog.storefiles.store_files import OffsetFile, find_store_files
from orbitlog.storefiles.store_paths import StorePaths

_SIZE_BYTES = 4
_DLEDGER = f"{tree.DLEDGER_PREFIX}*"
_RECORD_BYTES_MAX = 64 * 1024 * 1024


class IndexTopics:
    """Looks up the topic of a record in the log of the index's store."""

    def __init__(self, path: Path, settings: StoreSettings) -> None:
        self._segments = _segments_beside(path, settings)
        self._bases = [segment.base for segment in self._segments]

    def topic_at(self, physical_offset: int) -> str | None:
        """Return the topic of the record, or None if the log does not contain a readable record there."""
        number = bisect_right(self._bases, physical_offset) - 1
        if number < 0:
            return None
        with self._segments[number].path.open("rb") as file:
            file.seek(physical_offset - self._bases[number])
            head = file.read(_SIZE_BYTES)
            size_bytes = int.from_bytes(head, "big")
            if not _SIZE_BYTES < size_bytes <= _RECORD_BYTES_MAX:
                return None
            record = head + file.read(size_bytes - _SIZE_BYTES)
        try:
            return decode_message(record, physical_offset=physical_offset, check_crc=False).topic
        except FormatError:
            return None


def _segments_beside(path: Path, settings: StoreSettings) -> tuple[OffsetFile, ...]:
    """Return the log of the store that contains an index; settings may name the log's directories."""
    candidates = (path, *path.resolve().parents[:2])
    for root in candidates:
        paths = StorePaths.of(root, settings)
        is_named = paths.is_configured or paths.dledger_given is not None
        if root.is_dir() and (is_named or (root / tree.COMMITLOG).is_dir() or any(root.glob(_DLEDGER))):
            return one_log(find_store_files(root, paths)).segments
    raise click.UsageError(
        "index files contain hashes, so --topic needs the commit log: give the store, --key as well, or the log's"
        " directory (--config broker.conf, --set storePathCommitLog=DIR)"
    )
