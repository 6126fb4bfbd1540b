"""Records read through a list of their places, and counts of a log, against what plain Python finds."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from orbitlog.formats.records.message import encode_message
from orbitlog.formats.records.properties import TAGS
from orbitlog.kernels import tally
from orbitlog.kernels.arrow_batches import ArrowDecoder
from orbitlog.kernels.listed_records import ListedDecoder
from tests.support.logs import KINDS, Log, make_log


@pytest.fixture(scope="module")
def log() -> Log:
    return make_log([KINDS[number % len(KINDS)] for number in range(200)], segment_bytes=16384)


def listed(log: Log, base: int, size_bytes: int) -> tuple[np.ndarray, np.ndarray]:
    inside = [message for message in log.messages if base <= message.physical_offset < base + size_bytes]
    places = np.array([message.physical_offset - base for message in inside], np.int64)
    return places, np.array([len(encode_message(message)) for message in inside], np.int32)


@pytest.mark.parametrize("batch_rows", [3, 8192])
def test_all_records_listed_are_what_a_walk_finds(log: Log, batch_rows: int) -> None:
    for base, segment in log.segments:
        places, sizes = listed(log, base, len(segment))
        walked = pa.Table.from_batches(ArrowDecoder().decode(segment, base_physical_offset=base))
        decoder = ListedDecoder(batch_rows=batch_rows, batch_bytes=700)
        batches = list(decoder.decode_listed(segment, places, sizes, base_physical_offset=base))
        assert pa.Table.from_batches([found.batch for found in batches]).equals(walked)
        firsts = np.cumsum([0, *(found.batch.num_rows for found in batches)])[:-1]
        assert [found.first for found in batches] == firsts.tolist()


def test_any_order_and_any_choice(log: Log) -> None:
    base, segment = log.segments[0]
    places, sizes = listed(log, base, len(segment))
    chosen = np.arange(len(places))[::-3]
    decoder = ListedDecoder(["physical_offset", "topic"])
    found = list(decoder.decode_listed(segment, places[chosen], sizes[chosen], base_physical_offset=base))
    offsets = [offset for part in found for offset in part.batch["physical_offset"].to_pylist()]
    assert offsets == (places[chosen] + base).tolist()


def test_what_the_list_has_wrong_is_named_and_passed_over(log: Log) -> None:
    base, segment = log.segments[0]
    places, sizes = listed(log, base, len(segment))
    places, sizes = places[:8].copy(), sizes[:8].copy()
    places[2], places[3], places[4], places[5] = -1, len(segment) + 5, places[5] + 1, len(segment) - 3
    sizes[6] += 1
    found = list(ListedDecoder(["topic"]).decode_listed(segment, places, sizes, base_physical_offset=base))
    assert [part.first for part in found if part.batch is None] == [2, 3, 4, 5, 6]
    assert sum(part.batch.num_rows for part in found if part.batch is not None) == 3


def test_a_body_with_another_crc_is_no_record(log: Log) -> None:
    base, segment = log.segments[0]
    message = next(message for message in log.messages if message.topic == "Plain" and message.body)
    damaged = bytearray(segment)
    damaged[message.physical_offset + 88] ^= 1
    places = np.array([message.physical_offset], np.int64)
    sizes = np.array([len(encode_message(message))], np.int32)
    decoder = ListedDecoder(["topic"])
    (found,) = decoder.decode_listed(damaged, places, sizes, base_physical_offset=base)
    assert found.batch is None
    (found,) = decoder.decode_listed(damaged, places, sizes, base_physical_offset=base, check_crc=False)
    assert found.batch is not None


def counted(parts: list[tally.Counted], kind: str) -> Counter[tuple[str, object]]:
    result: Counter[tuple[str, object]] = Counter()
    for part in parts:
        if part.kind == kind:
            for topic, value, messages in zip(part.topics, part.values, part.sums.messages.tolist(), strict=True):
                result[topic, value] += messages
    return result


@pytest.mark.parametrize("groups_max", [4, 4096])
def test_counts_by_every_kind(log: Log, groups_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tally, "GROUPS_MAX", groups_max)
    counting, parts = tally.Tally(), []
    for base, segment in log.segments:
        parts += [
            part for taken in counting.count(segment, 0, len(segment), base_physical_offset=base) for part in taken
        ]
    parts += counting.take()
    messages = log.messages
    assert counting.message_count == len(messages)
    assert counted(parts, "queue") == Counter((message.topic, message.queue_id) for message in messages)
    assert counted(parts, "hour") == Counter((m.topic, m.store_timestamp_ms // 3_600_000) for m in messages)
    assert counted(parts, "host") == Counter((message.topic, message.born_host.address) for message in messages)
    # One kind of odd record has tags that are no text; plain Python reads U+FFFD there.
    tags = Counter((message.topic, message.properties.get(TAGS)) for message in messages)
    assert counted(parts, "tag") == Counter(
        {(topic, tally.OTHER_TAGS if tag and "\ufffd" in tag else tag): count for (topic, tag), count in tags.items()}
    )
    queue_parts = [part.sums for part in parts if part.kind == "queue"]
    assert sum(int(sums.stored_bytes.sum()) for sums in queue_parts) == sum(len(encode_message(m)) for m in messages)
    assert sum(int(sums.histogram.sum()) for sums in queue_parts) == len(messages)
    assert min(int(sums.first_ms.min()) for sums in queue_parts) == min(m.store_timestamp_ms for m in messages)


def test_every_size_is_within_its_step() -> None:
    bounds = [tally.bucket_bounds(bucket) for bucket in range(tally.BUCKETS)]
    assert bounds[0] == (0, 0)
    assert all(earlier[1] + 1 == later[0] for earlier, later in pairwise(bounds))
    assert max((high - low) / low for low, high in bounds[1:]) < 1 / 32
