"""A store for the tests on Spark, written by the plain Python writer: what it derived is what Spark must make."""

from __future__ import annotations

import random
from pathlib import Path
from zlib import crc32

from orbitlog.formats.derived.derive import DeriveRules
from orbitlog.formats.derived.index_layout import IndexLayout
from orbitlog.formats.records.message import BODY_CRC_MASK
from orbitlog.settings.store_settings import StoreGeometry
from orbitlog.store.offline_writer import OfflineStoreWriter
from tests.support.logs import KINDS, make_kind

GEOMETRY = StoreGeometry(segment_bytes=512 * 1024, queue_file_bytes=2000, index_layout=IndexLayout(500, 3000))


def write_store(root: Path, *, messages: int, seed: int) -> Path:
    """Write messages of every kind, with bodies of up to 1 KB."""
    chance = random.Random(seed)
    with OfflineStoreWriter(root, GEOMETRY, DeriveRules()) as writer:
        for number in range(messages):
            message = make_kind(chance.choice(KINDS), number)
            body = chance.randbytes(chance.randrange(1024))
            writer.append(message._replace(body=body, body_crc=crc32(body) & BODY_CRC_MASK))
    return root


def derived_files(root: Path) -> dict[str, bytes]:
    """Read everything derived, by its path; index files by their number, for their names contain only a time."""
    files = {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in (root / "consumequeue").rglob("*")
        if path.is_file()
    }
    for number, path in enumerate(sorted((root / "index").iterdir())):
        files[f"index/{number}"] = path.read_bytes()
    files["checkpoint"] = (root / "checkpoint").read_bytes()
    return files
