"""The sample has every kind of message, and a store of it is what the kernels derive from its log."""

from __future__ import annotations

from pathlib import Path

from orbitlog.formats.derived.derive import DeriveRules
from orbitlog.formats.derived.index_layout import IndexLayout
from orbitlog.formats.records import flags
from orbitlog.kernels.derivation import Derivation
from orbitlog.settings.store_settings import StoreGeometry, StoreSettings
from orbitlog.store.offline_writer import OfflineStoreWriter
from orbitlog.storefiles.mapped_view import mapped_view
from orbitlog.storefiles.store_files import find_store_files
from orbitlog.storefiles.store_inference import infer_compat, infer_geometry
from orbitlog.testing.sample_messages import sample_messages

GEOMETRY = StoreGeometry(segment_bytes=64 * 1024, queue_file_bytes=100 * 20, index_layout=IndexLayout(500, 1000))
FIRST_MS = 1_700_000_000_000


def test_every_kind_of_message_is_among_them() -> None:
    messages = list(sample_messages(FIRST_MS))
    assert {flags.compression_type(m.sys_flag) for m in messages if m.sys_flag & flags.COMPRESSED} == {
        flags.CompressionType.ZLIB,
        flags.CompressionType.LZ4,
        flags.CompressionType.ZSTD,
    }
    assert any(message.born_host.is_ipv6 for message in messages)
    assert any(not message.body for message in messages)
    assert any("DELAY" in message.properties for message in messages)
    assert any(not message.properties.get("TAGS", "").isascii() for message in messages)
    assert messages == list(sample_messages(FIRST_MS))


def test_plain_python_and_the_kernels_derive_the_same_files(tmp_path: Path) -> None:
    messages = list(sample_messages(FIRST_MS))
    with OfflineStoreWriter(tmp_path / "store", GEOMETRY, DeriveRules()) as writer:
        for message in messages:
            writer.append(message)
    store = find_store_files(tmp_path / "store")
    assert store.foreign == () and len(store.segments) >= 3
    assert infer_geometry(store, StoreSettings()) == GEOMETRY
    assert infer_compat(store, StoreSettings()).name == "5.5"
    derived = Derivation(DeriveRules(), queue_file_bytes=GEOMETRY.queue_file_bytes, index_layout=GEOMETRY.index_layout)
    for segment in store.segments:
        with mapped_view(segment.path) as view:
            derived.add(bytes(view), segment.base)
    assert derived.message_count == len(messages) >= 1000
    written = {(*queue, file.base): file.path.read_bytes() for queue, files in store.queues.items() for file in files}
    made = {
        (*queue, base): bytes(content) for queue, files in derived.queues.items() for base, content in files.items()
    }
    assert written == made
    assert [file.path.read_bytes() for file in store.index_files] == [bytes(made) for made in derived.index_files]
