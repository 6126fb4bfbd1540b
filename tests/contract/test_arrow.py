"""Arrow batches hold what `formats` decodes, column by column, however the batches are cut."""

from __future__ import annotations

import pyarrow as pa
import pytest

from orbitlog.formats.records.message import Message, encode_message, make_message
from orbitlog.formats.records.message_scan import Damage, scan_messages
from orbitlog.kernels.arrow_batches import SCHEMA, ArrowDecoder
from orbitlog.testing.golden import GoldenStore
from tests.support.logs import make_log, random_kinds


def row_of(message: Message) -> dict[str, object]:
    row = {name: getattr(message, name) for name in SCHEMA.names if hasattr(message, name)}
    properties = message.properties
    row["properties"] = list(properties.items())
    row |= {"tags": properties.get("TAGS"), "keys": properties.get("KEYS"), "unique_key": properties.get("UNIQ_KEY")}
    assert row.keys() == set(SCHEMA.names)
    return row


def rows_of(batches: list[pa.RecordBatch]) -> list[dict[str, object]]:
    for batch in batches:
        batch.validate(full=True)
    return [row for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize("name", ["golden_497", "golden_550_crash"])
def test_golden_logs(name: str, request: pytest.FixtureRequest) -> None:
    golden: GoldenStore = request.getfixturevalue(name)
    decoder = ArrowDecoder(batch_rows=100)
    count = 0
    for path in sorted((golden.store / "commitlog").iterdir()):
        data, base = path.read_bytes(), int(path.name)
        found = scan_messages(data, base_physical_offset=base)
        expected = [row_of(message) for message in found if isinstance(message, Message)]
        assert rows_of(list(decoder.decode(data, base_physical_offset=base))) == expected
        count += len(expected)
    assert count == len(golden.manifest["messages"])


@pytest.mark.parametrize(("batch_rows", "batch_bytes"), [(1, 1), (3, 10_000), (64, 700), (1000, 1 << 20)])
def test_every_kind_in_batches_of_any_size(batch_rows: int, batch_bytes: int) -> None:
    log = make_log(random_kinds(120, seed=2), segment_bytes=1 << 17)
    ((base, data),) = log.segments
    decoder = ArrowDecoder(batch_rows=batch_rows, batch_bytes=batch_bytes)
    batches = list(decoder.decode(data, base_physical_offset=base))
    assert rows_of(batches) == [row_of(message) for message in log.messages]
    assert max(len(batch) for batch in batches) <= batch_rows


@pytest.mark.parametrize("column", SCHEMA.names)
def test_each_column_alone(column: str) -> None:
    log = make_log(random_kinds(50, seed=4), segment_bytes=1 << 16)
    ((base, data),) = log.segments
    batches = list(ArrowDecoder([column]).decode(data, base_physical_offset=base))
    assert batches[0].schema.names == [column]
    assert [row[column] for row in rows_of(batches)] == [row_of(message)[column] for message in log.messages]


def test_batches_stay_as_they_are_when_the_next_is_made() -> None:
    log = make_log(["plain"] * 40, segment_bytes=1 << 16)
    ((base, data),) = log.segments
    decoder = ArrowDecoder(batch_rows=5)
    kept = list(decoder.decode(data, base_physical_offset=base))
    list(decoder.decode(data, base_physical_offset=base))
    assert rows_of(kept) == [row_of(message) for message in log.messages]


def test_one_record_larger_than_the_batch() -> None:
    small, large = make_message("T", b"s"), make_message("T", b"L" * 100_000)
    data = encode_message(small) + encode_message(large) + encode_message(small)
    batches = list(ArrowDecoder(["body"], batch_bytes=1000).decode(data))
    assert [row["body"] for row in rows_of(batches)] == [b"s", b"L" * 100_000, b"s"]


def test_damage_is_reported_after_what_was_readable() -> None:
    log = make_log(["plain"] * 10)
    base, data = log.segments[0]
    place = log.messages[4].physical_offset - base
    broken = bytearray(data)
    broken[place + 90] ^= 1
    decoder = ArrowDecoder(["queue_offset"])
    assert sum(len(batch) for batch in decoder.decode(broken, base_physical_offset=base)) == 4
    position, stop = decoder.ended
    assert position == place
    assert isinstance(stop, Damage)
    assert "CRC" in str(stop.error)


def test_an_unknown_column_is_refused() -> None:
    with pytest.raises(ValueError, match="no column bodies"):
        ArrowDecoder(["bodies"])
