"""Damage outside the bodies of a store with property CRCs: found, and repaired without losing a body."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitlog.doctor.examination import examine
from orbitlog.doctor.repair.store_repair import apply_repair
from orbitlog.formats.derived.index_layout import IndexLayout
from orbitlog.formats.records.message import Message, make_message
from orbitlog.formats.records.message_scan import scan_messages
from orbitlog.settings.store_settings import StoreGeometry
from orbitlog.store.appending.put_result import PutResult
from orbitlog.store.log.property_crc_mode import find_records_without_crc
from orbitlog.store.message_store import MessageStore
from orbitlog.storefiles.store_config import PropertyCrc, StoreConfig
from orbitlog.storefiles.store_files import find_store_files

GEOMETRY = StoreGeometry(segment_bytes=16_384, queue_file_bytes=2000, index_layout=IndexLayout(10, 300))


@pytest.fixture
def stored(tmp_path: Path) -> list[PutResult]:
    """Return what ten messages became in a store below `tmp_path`."""
    config = StoreConfig(GEOMETRY, property_crc=PropertyCrc(append=True))
    with MessageStore.open(tmp_path, config, lambda: 1_700_000_000_000) as store:
        results = [
            store.append(make_message("T", b"body %d" % number, properties={"KEYS": f"k{number}", "A": "value" * 30}))
            for number in range(10)
        ]
        store.dispatch_once()
    config_directory = tmp_path / "config"
    config_directory.mkdir()
    (config_directory / "topics.json").write_text('{"topicConfigTable":{"T":{"topicName":"T","order":false}}}')
    return results


def flip(root: Path, physical_offset: int) -> None:
    path = root / "commitlog" / f"{0:020d}"
    raw = bytearray(path.read_bytes())
    raw[physical_offset] ^= 1
    path.write_bytes(raw)


def bodies(root: Path) -> list[bytes]:
    raw = (root / "commitlog" / f"{0:020d}").read_bytes()
    return [each.body for each in scan_messages(raw, base_physical_offset=0) if isinstance(each, Message)]


def log_findings(root: Path) -> list[str]:
    return [each.finding.reason for each in examine(root).diagnoses if "__CRC32#" in each.finding.reason]


def test_damaged_property_is_found_and_its_message_kept(tmp_path: Path, stored: list[PutResult]) -> None:
    assert not log_findings(tmp_path)
    flip(tmp_path, stored[4].end - 30)
    assert log_findings(tmp_path)
    assert apply_repair(tmp_path).is_sound
    assert bodies(tmp_path) == [b"body %d" % number for number in range(10)]
    assert find_records_without_crc(find_store_files(tmp_path).segments).count == 0


def test_what_takes_the_place_of_a_damaged_body_has_a_property_crc(tmp_path: Path, stored: list[PutResult]) -> None:
    flip(tmp_path, stored[4].physical_offset + 88)
    assert apply_repair(tmp_path).is_sound
    found = bodies(tmp_path)
    assert found[:4] == [b"body %d" % number for number in range(4)]
    assert found[-5:] == [b"body %d" % number for number in range(5, 10)]
    assert find_records_without_crc(find_store_files(tmp_path).segments).count == 0
