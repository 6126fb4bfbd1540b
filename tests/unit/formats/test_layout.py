from __future__ import annotations

import struct

import numpy as np
import pytest

from orbitlog.formats import layout as layout_module
from orbitlog.formats.derived import checkpoint, index_layout, queue_entry
from orbitlog.formats.layout import Field, Layout, declared_layouts
from orbitlog.formats.records import batch, message, message_scan


@pytest.fixture(autouse=True)
def _declares_nothing_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layouts of these tests are forgotten with them: documentation is drawn from all that are declared."""
    monkeypatch.setattr(layout_module, "_REGISTRY", dict(declared_layouts()))


def test_a_layout_knows_its_struct_size_and_positions() -> None:
    layout = Layout("test of mixed types", Field("a", "i8", ""), Field("b", "u32", ""), Field("c", "20s", ""))
    assert layout.struct.format == ">bI20s"
    assert layout.size_bytes == 25
    assert [layout.position(name) for name in "abc"] == [0, 1, 5]


@pytest.mark.parametrize(
    ("kind", "size_bytes", "lowest"),
    [
        ("i8", 1, -(2**7)),
        ("u8", 1, 0),
        ("i16", 2, -(2**15)),
        ("u16", 2, 0),
        ("i32", 4, -(2**31)),
        ("u32", 4, 0),
        ("i64", 8, -(2**63)),
    ],
)
def test_a_type_has_its_width_and_sign(kind: str, size_bytes: int, lowest: int) -> None:
    field = Field("x", kind, "")
    packed = struct.pack(">" + field.code, lowest)
    assert field.size_bytes == size_bytes == len(packed)
    with pytest.raises(struct.error):
        struct.pack(">" + field.code, lowest - 1)


def test_a_title_is_declared_once() -> None:
    Layout("test of titles")
    with pytest.raises(AssertionError, match="declared twice"):
        Layout("test of titles")


def test_declared_layouts_is_a_copy() -> None:
    declared_layouts().clear()
    assert "ConsumeQueue unit" in declared_layouts()


def test_unknown_field_names_are_refused() -> None:
    with pytest.raises(KeyError):
        queue_entry.QUEUE_ENTRY.position("no such field")


@pytest.mark.parametrize(
    ("layout", "size_bytes"),
    [
        (message.RECORD_PREFIX, 88),
        (message.RECORD_TAIL, 3),
        (message_scan.BLANK, 8),
        (queue_entry.QUEUE_ENTRY, 20),
        (index_layout.INDEX_HEADER, 40),
        (index_layout.INDEX_SLOT, 4),
        (index_layout.INDEX_ENTRY, 20),
        (checkpoint.CHECKPOINT, 48),
        (batch.BATCH_MEMBER, 20),
    ],
    ids=lambda value: value.title if isinstance(value, Layout) else None,
)
def test_sizes_are_those_of_the_format(layout: Layout, size_bytes: int) -> None:
    assert layout.size_bytes == size_bytes
    assert declared_layouts()[layout.title] is layout
    assert all(field.meaning for field in layout.fields)


def test_record_is_at_the_position_that_java_reads() -> None:
    positions = {field.name: message.RECORD_PREFIX.position(field.name) for field in message.RECORD_PREFIX.fields}
    assert positions == {
        "total_size": 0,
        "magic": 4,
        "body_crc": 8,
        "queue_id": 12,
        "flag": 16,
        "queue_offset": 20,
        "physical_offset": 28,
        "sys_flag": 36,
        "born_timestamp_ms": 40,
        "born_host_raw": 48,
        "store_timestamp_ms": 56,
        "store_host_raw": 64,
        "reconsume_times": 72,
        "prepared_transaction_offset": 76,
        "body_length": 84,
    }


MIXED = (
    Field("a", "i8", ""),
    Field("b", "u32", ""),
    Field("c", "8s", ""),
    Field("d", "i16", ""),
    Field("e", "i64", ""),
)


def test_partial_names_fields_and_pads_the_others() -> None:
    layout = Layout("test of partial structs", *MIXED)
    raw = layout.struct.pack(-1, 7, b"raw-data", 300, -5)
    assert layout.partial("b", "e").unpack(raw) == (7, -5)
    assert layout.partial("a", ("b", "c"), "d").unpack_from(raw) == (-1, raw[1:13], 300)
    assert layout.partial("d", start="d").size == 2
    assert layout.partial("c", "e", start="b").unpack(raw[1:]) == (b"raw-data", -5)
    assert layout.partial("a", "b", "c", "d", "e").unpack(raw) == layout.struct.unpack(raw)


@pytest.mark.parametrize("items", [("b", "a"), ("a", "a"), (("a", "c"),), (("c", "b"),)])
def test_partial_in_another_order_is_refused(items: tuple[str | tuple[str, ...], ...]) -> None:
    layout = Layout("test of orders", *MIXED)
    with pytest.raises(AssertionError, match="test of orders"):
        layout.partial(*items)


def test_partial_with_an_unknown_field_is_refused() -> None:
    with pytest.raises(KeyError):
        queue_entry.QUEUE_ENTRY.partial("no such field")


def test_numpy_fields_have_the_positions_of_the_layout() -> None:
    layout = queue_entry.QUEUE_ENTRY
    dtype = np.dtype(layout.numpy_fields)
    assert dtype.itemsize == layout.size_bytes
    assert dtype.fields is not None
    assert {name: dtype.fields[name][1] for name in dtype.names or ()} == {
        field.name: layout.position(field.name) for field in layout.fields
    }
    with pytest.raises(AssertionError, match="raw fields"):
        _ = message.RECORD_PREFIX.numpy_fields
