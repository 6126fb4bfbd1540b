"""Queues with extension units (`enableConsumeQueueExt`) and bloom filters of SQL subscriptions, by real brokers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from orbitlog.formats.derived.bloom import bloom_filter
from orbitlog.formats.derived.index_layout import IndexLayout
from orbitlog.formats.derived.queue_entry import scan_entries
from orbitlog.formats.derived.queue_ext import (
    LogEnd,
    QueueExtUnit,
    SegmentEnd,
    encode_ext_unit,
    ext_position,
    is_ext_address,
    read_ext_unit_at,
    scan_ext_file,
)
from orbitlog.formats.records.message import Message
from orbitlog.settings.store_settings import StoreGeometry
from orbitlog.storefiles.store_files import StoreFiles
from tests.interop import our_reading
from tests.interop.harness.cluster import running_cluster
from tests.interop.harness.packages import ApachePackages

pytestmark = pytest.mark.interop

EXT_FILE_BYTES = 500
GEOMETRY = StoreGeometry(
    segment_bytes=1 << 20,
    queue_file_bytes=2000,
    ext_queue_file_bytes=EXT_FILE_BYTES,
    index_layout=IndexLayout(50, 5000),
)
SETTINGS = {
    "enableConsumeQueueExt": "true",
    "mappedFileSizeConsumeQueueExt": EXT_FILE_BYTES,
    "enablePropertyFilter": "true",
    "enableCalcFilterBitMap": "true",
}
PREFIX = "Ext"
# What SendSome subscribes to, and for whom.
SQL_GROUP, SQL_TOPIC = f"{PREFIX}_sql", f"{PREFIX}Wide"


def is_wanted(message: Message) -> bool:
    """`a between 2 and 7 and TAGS is null`"""
    properties = message.properties
    return 2 <= int(properties.get("a", "-1")) <= 7 and "TAGS" not in properties


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_extension_units_say_what_the_records_say(
    version: str, packages_of: Callable[[str], ApachePackages], tmp_path: Path
) -> None:
    packages = packages_of(version)
    root = tmp_path / "store"
    with running_cluster(packages, tmp_path, root, our_reading.broker_settings(GEOMETRY, **SETTINGS)) as cluster:
        cluster.send(PREFIX, "plain", "consume", "rounds=10")
        cluster.send(PREFIX, "plain", "keys", "delayed", "rounds=80")
    files = our_reading.look_at(root)
    messages = our_reading.read_log(files, GEOMETRY)
    by_offset = {message.physical_offset: message for message in messages}
    rules = our_reading.rules_of(our_reading.compat_of(packages), {})
    hashed = our_reading.derive_in_python(messages, rules, GEOMETRY)

    compared, with_bitmap = 0, 0
    for queue, queue_files in files.queues.items():
        for file in queue_files:
            ours = scan_entries(bytes(hashed.queues[*queue, file.base]))
            for unit, expected in zip(scan_entries(file.path.read_bytes()), ours, strict=True):
                message = by_offset[unit.physical_offset]
                assert (unit.physical_offset, unit.size_bytes) == (expected.physical_offset, expected.size_bytes)
                assert is_ext_address(unit.tags_code)
                ext = ext_unit(files, queue, ext_position(unit.tags_code))
                assert (ext.tags_code, ext.store_timestamp_ms) == (expected.tags_code, message.store_timestamp_ms)
                assert not ext.bitmap or message.topic == SQL_TOPIC
                if ext.bitmap:
                    assert ext.bitmap == expected_bitmap(message)
                compared, with_bitmap = compared + 1, with_bitmap + bool(ext.bitmap)
    assert compared > 250
    assert with_bitmap > 10
    assert_files_are_written_back(files)


def ext_unit(files: StoreFiles, queue: tuple[str, int], position: int) -> QueueExtUnit:
    base = position // EXT_FILE_BYTES * EXT_FILE_BYTES
    (file,) = [file for file in files.ext_queues[queue] if file.base == base]
    found = read_ext_unit_at(file.path.read_bytes(), position - base)
    assert isinstance(found, QueueExtUnit), found
    return found


def expected_bitmap(message: Message) -> bytes:
    bloom = bloom_filter()
    positions = bloom.positions(group=SQL_GROUP, topic=SQL_TOPIC)
    return bloom.bitmap([positions] if is_wanted(message) else [])


def assert_files_are_written_back(files: StoreFiles) -> None:
    """Every extension file is its units one after the other, then its end."""
    rolled = 0
    for ext_files in files.ext_queues.values():
        for file in ext_files:
            content = file.path.read_bytes()
            *units, (position, end) = scan_ext_file(content)
            assert isinstance(end, SegmentEnd | LogEnd), end
            assert b"".join(encode_ext_unit(unit) for _, unit in units) == content[:position]
            rolled += isinstance(end, SegmentEnd)
    assert rolled > 3
