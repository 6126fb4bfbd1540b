"""A store with filter bit maps of a Java broker is read, filtered and written to; a notice reports their fate."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitlog.formats.derived.index_layout import IndexLayout
from orbitlog.formats.derived.queue_entry import QUEUE_ENTRY
from orbitlog.formats.derived.queue_ext import QueueExtUnit, encode_ext_unit, ext_address
from orbitlog.formats.java import string_hash
from orbitlog.formats.records.message import decode_message, make_message
from orbitlog.settings.store_settings import StoreGeometry
from orbitlog.store.message_store import MessageStore
from orbitlog.store.reads.queue_reader import ReadRequest
from orbitlog.store.reads.store_reader import StoreReader
from orbitlog.storefiles.store_config import StoreConfig

CONFIG = StoreConfig(StoreGeometry(segment_bytes=65536, queue_file_bytes=2000, index_layout=IndexLayout(10, 100)))
TAGS = ["A", "B", "A", None, "C"]


@pytest.fixture
def extended(tmp_path: Path) -> Path:
    """A closed store as a broker with `enableConsumeQueueExt` leaves it: units hold addresses."""
    with MessageStore.open(tmp_path, CONFIG, lambda: 1_700_000_000_000) as store:
        for number, tags in enumerate(TAGS):
            properties = {"TAGS": tags} if tags else {}
            store.append(make_message("T", b"%d" % number, properties=properties))
        assert store.notices == []
    queue = tmp_path / "consumequeue" / "T" / "0" / f"{0:020d}"
    units, extension = bytearray(queue.read_bytes()), b""
    for number in range(len(TAGS)):
        physical_offset, size_bytes, code = QUEUE_ENTRY.struct.unpack_from(units, 20 * number)
        QUEUE_ENTRY.struct.pack_into(units, 20 * number, physical_offset, size_bytes, ext_address(len(extension)))
        extension += encode_ext_unit(QueueExtUnit(code, 1_700_000_000_000, b"\1" * 8))
    queue.write_bytes(units)
    directory = tmp_path / "consumequeue_ext" / "T" / "0"
    directory.mkdir(parents=True)
    (directory / f"{0:020d}").write_bytes(extension.ljust(1000, b"\0"))
    (tmp_path / "orbitlog.state").unlink()
    return tmp_path


def bodies(store: MessageStore | StoreReader, tags: str) -> list[bytes]:
    wanted = string_hash(tags)
    request = ReadRequest(0, 32, tags_filter=lambda code: code == wanted)
    return [decode_message(record).body for record in store.get("T", 0, request).records]


def test_tags_are_asked_of_the_messages(extended: Path) -> None:
    with StoreReader.open(extended, CONFIG) as reader:
        assert bodies(reader, "A") == [b"0", b"2"]
        assert bodies(reader, "C") == [b"4"]
        assert bodies(reader, "D") == []
        assert len(reader.get("T", 0, ReadRequest(0, 32)).records) == len(TAGS)


def test_units_get_plain_hashes_and_the_operator_is_warned(extended: Path) -> None:
    with MessageStore.open(extended, CONFIG, lambda: 1_700_000_000_001) as store:
        (notice,) = store.notices
        assert "filter bit maps of 1 queues" in notice.sentence
        assert not store.damage
        assert bodies(store, "A") == [b"0", b"2"]
        store.append(make_message("T", b"5", properties={"TAGS": "A"}))
        store.dispatch_once()
        assert bodies(store, "A") == [b"0", b"2", b"5"]
    units = (extended / "consumequeue" / "T" / "0" / f"{0:020d}").read_bytes()
    codes = [QUEUE_ENTRY.struct.unpack_from(units, 20 * number)[2] for number in range(6)]
    assert codes == [string_hash(tags) if tags else 0 for tags in [*TAGS, "A"]]
    assert (extended / "consumequeue_ext" / "T" / "0" / f"{0:020d}").exists()
