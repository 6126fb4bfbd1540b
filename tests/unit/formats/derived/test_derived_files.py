from __future__ import annotations

import hashlib
from collections import Counter

import pytest

from orbitlog.errors import BadField
from orbitlog.formats.compat import COMPAT_4_9, COMPAT_5_5, Compat
from orbitlog.formats.delay_levels import STANDARD_LEVELS, DelayLevels
from orbitlog.formats.derived.derive import DeriveRules
from orbitlog.formats.derived.derived_files import DerivedFiles
from orbitlog.formats.derived.index_layout import (
    INDEX_SLOT,
    IndexLayout,
    decode_header,
    decode_index_entry,
    header_after,
    index_key,
    infer_layout,
    key_hash,
    tags_index_key,
)
from orbitlog.formats.derived.queue_entry import PRE_BLANK, PRE_BLANK_RAW, QueueEntry, scan_entries
from orbitlog.formats.java import string_hash
from orbitlog.formats.names import SCHEDULE_TOPIC
from orbitlog.formats.records.message import Message, make_message
from orbitlog.formats.records.message_scan import scan_messages
from orbitlog.testing.golden import GoldenStore

QUEUE_FILE_BYTES = 200
INDEX = IndexLayout(slot_count=10, entry_count=5)
STORED_MS = 1_600_000_000_000


def derived(*messages: Message, compat: Compat = COMPAT_4_9) -> DerivedFiles:
    files = DerivedFiles(DeriveRules(compat=compat), queue_file_bytes=QUEUE_FILE_BYTES, index_layout=INDEX)
    files.add(messages)
    return files


def stored(queue_offset: int, *, topic: str = "T", physical_offset: int | None = None, **properties: str) -> Message:
    return make_message(
        topic,
        b"x",
        properties=properties,
        queue_offset=queue_offset,
        physical_offset=queue_offset * 200 if physical_offset is None else physical_offset,
        store_timestamp_ms=STORED_MS + queue_offset * 1_000,
    )


@pytest.mark.parametrize("count", [1, 9, 10, 11, 25])
def test_units_fill_file_after_file(count: int) -> None:
    messages = [stored(number) for number in range(count)]
    queue = derived(*messages).queues["T", 0]
    assert list(queue) == list(range(0, count * 20, QUEUE_FILE_BYTES))
    assert {len(file) for file in queue.values()} == {QUEUE_FILE_BYTES}
    found = [entry for file in queue.values() for entry in scan_entries(file)]
    assert found == [QueueEntry(message.physical_offset, message.size_bytes, 0) for message in messages]


@pytest.mark.parametrize(("first", "base", "blanks"), [(15, 200, 5), (10, 200, 0), (19, 200, 9), (3, 0, 3)])
def test_a_queue_that_starts_late_gets_pre_blank_units(first: int, base: int, blanks: int) -> None:
    queue = derived(*(stored(number) for number in range(first, first + 12))).queues["T", 0]
    assert next(iter(queue)) == base
    found = list(scan_entries(queue[base]))
    assert found[:blanks] == [PRE_BLANK] * blanks
    assert not any(entry.is_pre_blank for entry in found[blanks:])
    assert PRE_BLANK_RAW not in queue[base + QUEUE_FILE_BYTES], "only a queue's first file has them"


def test_queues_are_kept_apart() -> None:
    files = derived(stored(0), stored(0, topic="U"), stored(0)._replace(queue_id=-3))
    assert set(files.queues) == {("T", 0), ("U", 0), ("T", -3)}


def test_feeding_in_parts_is_the_same() -> None:
    messages = [stored(number, UNIQ_KEY=f"u{number}", KEYS="k") for number in range(13)]
    whole, parts = derived(*messages), derived()
    for message in messages:
        parts.add([message])
    assert (parts.queues, parts.index_files) == (whole.queues, whole.index_files)


@pytest.mark.parametrize("message", [stored(-1, physical_offset=0), stored(0, physical_offset=-1)])
def test_offsets_that_no_file_can_hold(message: Message) -> None:
    with pytest.raises(BadField) as caught:
        derived(message)
    assert caught.value.field == "queue unit"


def test_index_files_roll_in_the_middle_of_a_message() -> None:
    files = derived(*(stored(number, UNIQ_KEY=f"u{number}", KEYS="a b") for number in range(3)))
    headers = [decode_header(file) for file in files.index_files]
    assert [header.key_count for header in headers] == [4, 4, 1]
    assert [header.begin_physical_offset for header in headers] == [0, 200, 400]
    assert [header.end_physical_offset for header in headers] == [200, 400, 400]
    first_of_third = decode_index_entry(files.index_files[2], INDEX.entry_position(1))
    assert first_of_third.time_diff_seconds == 0, "counted from the end of the file before, the same message"


def test_a_message_without_keys_begins_an_index_file_as_in_java() -> None:
    (empty,) = derived(stored(0)).index_files
    assert not any(empty)
    keyed = [stored(number, KEYS="a b") for number in range(2)]
    full, begun = derived(*keyed, stored(2)).index_files
    assert decode_header(full).key_count == 4
    # Begun with the end of the one before, and no entry counted on disk yet.
    assert decode_header(begun) == header_after(decode_header(full))
    assert begun[36:40] == bytes(4)
    assert not any(begun[40:])
    assert len(derived(*keyed).index_files) == 1


# What the brokers of the golden stores derived


def messages_of(golden: GoldenStore) -> list[Message]:
    return [
        found
        for segment in sorted((golden.store / "commitlog").iterdir())
        for found in scan_messages(segment.read_bytes(), base_physical_offset=int(segment.name))
        if isinstance(found, Message)
    ]


def index_layout_of(golden: GoldenStore) -> IndexLayout:
    config = golden.manifest["brokerConfig"]
    return IndexLayout(int(config["maxHashSlotNum"]), int(config["maxIndexNum"]))


def derive_golden(golden: GoldenStore, compat: Compat, levels: DelayLevels = STANDARD_LEVELS) -> DerivedFiles:
    queue_file_bytes = int(golden.manifest["brokerConfig"]["mappedFileSizeConsumeQueue"])
    rules = DeriveRules(compat=compat, delay_levels=levels)
    files = DerivedFiles(rules, queue_file_bytes=queue_file_bytes, index_layout=index_layout_of(golden))
    files.add(messages_of(golden))
    return files


@pytest.fixture(
    params=[("golden_497", COMPAT_4_9, 41, 5), ("golden_550_crash", COMPAT_5_5, 50, 11)], ids=lambda p: p[0]
)
def golden_case(request: pytest.FixtureRequest) -> tuple[GoldenStore, Compat, int, int]:
    name, compat, queue_files, index_files = request.param
    return request.getfixturevalue(name), compat, queue_files, index_files


GoldenCase = tuple[GoldenStore, Compat, int, int]


def test_every_golden_queue_file_is_derived_byte_for_byte(golden_case: GoldenCase) -> None:
    golden, compat, file_count, _ = golden_case
    expected = {
        (path.parts[-3], int(path.parts[-2]), int(path.name)): path.read_bytes()
        for path in (golden.store / "consumequeue").glob("*/*/*")
    }
    assert len(expected) == file_count
    made = {
        (topic, queue_id, base): bytes(file)
        for (topic, queue_id), queue in derive_golden(golden, compat).queues.items()
        for base, file in queue.items()
    }
    assert made.keys() == expected.keys()
    assert [key for key in expected if made[key] != expected[key]] == []


def test_every_golden_index_file_is_derived_byte_for_byte(golden_case: GoldenCase) -> None:
    golden, compat, _, file_count = golden_case
    expected = [path.read_bytes() for path in sorted((golden.store / "index").iterdir())]
    assert len(expected) == file_count
    assert [bytes(file) for file in derive_golden(golden, compat).index_files] == expected


def test_the_other_version_s_rules_give_other_index_files(golden_case: GoldenCase) -> None:
    golden, compat, _, file_count = golden_case
    other = COMPAT_5_5 if compat is COMPAT_4_9 else COMPAT_4_9
    assert len(derive_golden(golden, other).index_files) != file_count


def test_the_layout_of_every_golden_index_file_is_inferred(golden_case: GoldenCase) -> None:
    golden, _, _, file_count = golden_case
    inferred = [infer_layout(path.read_bytes()) for path in (golden.store / "index").iterdir()]
    assert inferred == [index_layout_of(golden)] * file_count


def test_recovery_without_a_level_table_derives_what_java_did(golden_497: GoldenStore) -> None:
    """The real 4.9.7 broker rebuilt the schedule topic's queues with hashes of tags where times belong."""
    (rebuild,) = [case for case in golden_497.manifest["rebuilds"] if "abort file added" in case["case"]]
    expected = {
        int(file["path"].split("/")[2]): file["sha256"]
        for file in rebuild["consumequeue"]["different"]
        if SCHEDULE_TOPIC in file["path"]
    }
    assert sorted(expected) == [0, 1, 2, 16, 17]
    queues = derive_golden(golden_497, COMPAT_4_9, levels=DelayLevels(())).queues
    made = {queue_id: hashlib.sha256(queues[SCHEDULE_TOPIC, queue_id][0]).hexdigest() for queue_id in expected}
    assert made == expected


def offsets_found(golden: GoldenStore, hashed_key: int, limit: int) -> list[int]:
    """Follow the chains of every index file, newest first, as `IndexService.queryOffset` does for all times."""
    layout = index_layout_of(golden)
    found: list[int] = []
    for path in sorted((golden.store / "index").iterdir(), reverse=True):
        data = path.read_bytes()
        (number,) = INDEX_SLOT.struct.unpack_from(data, layout.slot_position(hashed_key))
        while number and len(found) < limit:
            entry = decode_index_entry(data, layout.entry_position(number))
            if entry.key_hash == hashed_key:
                found.append(entry.physical_offset)
            number = entry.previous_entry
    return sorted(found)


def test_keys_and_tags_are_found_as_the_brokers_found_them(golden_case: GoldenCase) -> None:
    golden = golden_case[0]
    queries = [(query, index_key(query["topic"], query["key"])) for query in golden.manifest["queries"]]
    queries += [
        (query, tags_index_key(query["topic"], query["tag"])) for query in golden.manifest.get("tagQueries", [])
    ]
    outcomes: Counter[int] = Counter()
    for query, key in queries:
        if "hashOfTopicAndKey" in query:
            assert string_hash(key) == query["hashOfTopicAndKey"]
        if query["begin"] == 0 and query["end"] == 2**63 - 1:
            assert offsets_found(golden, key_hash(key), query["maxNum"]) == query["brokerReturns"], query
            outcomes[len(query["brokerReturns"])] += 1
    assert outcomes.total() > 180
    assert len(outcomes) > 5, "none, one and many"
