"""Pulled records as batches: the requested rows, each once; damage and foreign records are lost data."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow")

from orbitlog.formats.records.message import encode_message, make_message
from orbitlog.pipeline.network.pulled_batches import PulledDecoder
from orbitlog.pipeline.network.queue_pulls import LostOffsets, PulledRecords
from orbitlog.pipeline.sources.queue_scan import IDENTITY_COLUMNS, ScanRules
from orbitlog.pipeline.sources.read_plan import ClusterShape, QueueRange
from orbitlog.pipeline.sources.source_errors import DataLoss

RANGE = QueueRange(ClusterShape("a"), "T", 2, 10, 20)


def record(queue_offset: int, *, topic: str = "T", tag: str = "A") -> bytes:
    message = make_message(
        topic,
        b"body %d" % queue_offset,
        properties={"TAGS": tag},
        queue_id=2,
        queue_offset=queue_offset,
        physical_offset=queue_offset * 1000,
    )
    return encode_message(message)


def offsets(
    *bodies: bytes, tags: tuple[str, ...] = (), strict: bool = True, lost: list[LostOffsets] | None = None
) -> list[int]:
    decoder = PulledDecoder([*IDENTITY_COLUMNS, "tags", "body"], ScanRules(tags, True, strict))
    rows = []
    for body in bodies:
        for batch in decoder.batches(RANGE, PulledRecords(0, [body], lost or [], 20)):
            rows += batch.to_pylist()
    assert all(row["body"] == b"body %d" % row["queue_offset"] for row in rows)
    return [row["queue_offset"] for row in rows]


def test_records_of_several_pulls_are_decoded_together() -> None:
    decoder = PulledDecoder([*IDENTITY_COLUMNS, "body"], ScanRules())
    pulled = PulledRecords(0, [record(10) + record(11), record(12)], [], 13)
    (batch,) = decoder.batches(RANGE, pulled)
    assert batch.column("queue_offset").to_pylist() == [10, 11, 12]


def test_filtered_window_that_reads_ahead_gives_no_duplicates() -> None:
    first = record(11) + record(14) + record(17)
    assert offsets(first, record(14) + record(17) + record(19) + record(25)) == [11, 14, 17, 19]


def test_tags_are_compared_by_text() -> None:
    # The Java hashes of Aa and BB are equal, so a broker sends both.
    assert offsets(record(10, tag="Aa") + record(11, tag="BB"), tags=("BB",)) == [11]


def test_lost_offsets_end_the_query_or_are_skipped() -> None:
    lost = [LostOffsets(10, 12, "the queue now starts at 12")]
    with pytest.raises(DataLoss, match="queue 2 of T at a: offsets 10 to 11 were requested, but the queue now starts"):
        offsets(record(12), lost=lost)
    with pytest.warns(UserWarning, match="offsets 10 to 11"):
        assert offsets(record(12), strict=False, lost=lost) == [12]


@pytest.mark.parametrize("place", [4, 30, -3])
def test_damaged_record_is_lost_and_the_next_is_read(place: int) -> None:
    damaged = bytearray(record(11))
    damaged[place] ^= 0x55
    body = record(10) + bytes(damaged) + record(12)
    if place == 30:  # the physical offset, which a pull cannot check
        assert offsets(body) == [10, 11, 12]
        return
    if place == -3:  # in the properties, which have no checksum
        assert 12 in offsets(body)
        return
    with pytest.raises(DataLoss, match="damaged record"):
        offsets(body)
    with pytest.warns(UserWarning, match="damaged record"):
        assert offsets(body, strict=False) == [10, 12]


def test_garbage_ends_without_a_loop() -> None:
    with pytest.warns(UserWarning, match="damaged record"):
        assert offsets(record(10) + b"\xff" * 300, strict=False) == [10]


def test_records_of_another_topic_are_lost_data() -> None:
    with pytest.raises(DataLoss, match="another queue"):
        offsets(record(10, topic="Other"))
