"""Deriving: both twins make the same queue and index files, and they are the files that Apache brokers wrote."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitlog.formats.compat import COMPAT_4_9, COMPAT_5_5, Compat
from orbitlog.formats.delay_levels import DelayLevels, parse_delay_levels
from orbitlog.formats.derived.derive import DeriveRules, index_hashes, queue_units
from orbitlog.formats.derived.index_layout import IndexHeader, IndexLayout, decode_header
from orbitlog.formats.derived.queue_entry import PRE_BLANK_RAW
from orbitlog.formats.records.message import encode_message, make_message
from orbitlog.kernels.dispatch import DispatchScan
from orbitlog.kernels.index_build import IndexBuilder
from orbitlog.kernels.queue_build import QueueBuilder
from orbitlog.testing.golden import GoldenStore
from tests.support.logs import KINDS, make_log, random_kinds
from tests.support.twins import FORMATS, KERNELS, TWINS, Derived, Twin

GEOMETRY = {"golden_497": (COMPAT_4_9, IndexLayout(200, 400)), "golden_550_crash": (COMPAT_5_5, IndexLayout(100, 300))}


def live_files(golden: GoldenStore) -> Derived:
    queues = {}
    for path in (golden.store / "consumequeue").glob("*/*/*"):
        queues[path.parent.parent.name, int(path.parent.name), int(path.name)] = path.read_bytes()
    return Derived(queues, [path.read_bytes() for path in sorted((golden.store / "index").iterdir())])


@pytest.mark.parametrize("name", GEOMETRY)
@pytest.mark.parametrize("twin", TWINS.values(), ids=TWINS)
def test_golden_files_are_made_again_byte_for_byte(twin: Twin, name: str, request: pytest.FixtureRequest) -> None:
    golden = request.getfixturevalue(name)
    compat, layout = GEOMETRY[name]
    segments = [(int(path.name), path.read_bytes()) for path in sorted((golden.store / "commitlog").iterdir())]
    made, live = twin.derive(segments, DeriveRules(compat), 1000, layout), live_files(golden)
    assert made.queues.keys() == live.queues.keys()
    assert [queue for queue in live.queues if made.queues[queue] != live.queues[queue]] == []
    assert made.indexes == live.indexes
    assert len(live.indexes) >= 5


@given(
    kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=60),
    compat=st.sampled_from([COMPAT_4_9, COMPAT_5_5]),
    layout=st.builds(IndexLayout, st.integers(1, 20), st.integers(2, 40)),
    units_in_file=st.integers(1, 9),
    first_queue_offset=st.sampled_from([0, 1, 7, 23]),
)
@settings(deadline=None, max_examples=60)
def test_generated_logs_derive_to_the_same_files(
    kinds: list[str], compat: Compat, layout: IndexLayout, units_in_file: int, first_queue_offset: int
) -> None:
    log = make_log(kinds, first_queue_offset=first_queue_offset)
    rules = DeriveRules(compat)
    kernels = KERNELS.derive(log.segments, rules, 20 * units_in_file, layout)
    assert kernels == FORMATS.derive(log.segments, rules, 20 * units_in_file, layout)


def test_a_queue_that_starts_late_is_filled_up_with_pre_blank_units() -> None:
    log = make_log(["plain"], first_queue_offset=3)
    for twin in TWINS.values():
        (file,) = twin.derive(log.segments, DeriveRules(), 100, IndexLayout(5, 5)).queues.values()
        assert file[:60] == PRE_BLANK_RAW * 3
        assert file[80:] == bytes(20)


@pytest.mark.parametrize("levels", [parse_delay_levels("1s 1d"), DelayLevels(())])
def test_other_delay_levels(levels: DelayLevels) -> None:
    log = make_log(["delayed"] * 16)
    rules = DeriveRules(delay_levels=levels)
    made = [twin.derive(log.segments, rules, 400, IndexLayout(5, 50)) for twin in TWINS.values()]
    assert made[0] == made[1]


def test_more_queues_than_the_table_had_room_for() -> None:
    data, expected = b"", []
    for number in range(3000):
        message = make_message(f"topic{number % 1500}", b"", queue_id=number % 2, physical_offset=len(data))
        expected.append((message.topic, message.queue_id))
        data += encode_message(message)
    scan = DispatchScan(DeriveRules(), chunk_rows=500)
    codes = [int(code) for columns in scan.scan(data, base_physical_offset=0) for code in columns.queue_code]
    assert [scan.queues.queue(code) for code in codes] == expected
    assert len(scan.queues) == len(set(expected)) == 1500


def test_light_queues_are_found() -> None:
    properties = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b", "INNER_MULTI_QUEUE_OFFSET": "5,17", "TAGS": "t"}
    plain = make_message("T", b"x", properties={"INNER_MULTI_DISPATCX": "%LMQ%a", "TAGS": "t"})
    light = make_message("T", b"x", properties=properties, physical_offset=len(encode_message(plain)), queue_id=3)
    data = encode_message(plain) + encode_message(light)
    rules = DeriveRules(multi_dispatch=True)
    scan = DispatchScan(rules)
    (columns,) = scan.scan(data, base_physical_offset=0)
    assert columns.is_multi_dispatch.tolist() == [False, True]
    units = scan.light_queue_units(data, columns, 0)
    assert [(unit.topic, unit.queue_id, unit.queue_offset) for unit in units] == [("%LMQ%a", 0, 5), ("%LMQ%b", 0, 17)]
    assert units == queue_units(light, rules)[1:]
    assert DispatchScan(DeriveRules()).light_queue_units(data, columns, 0) == []
    made = [twin.derive([(0, data)], rules, 100, IndexLayout(5, 50)) for twin in TWINS.values()]
    assert made[0] == made[1]
    assert ("%LMQ%b", 0, 300) in made[0].queues


def test_most_keys_that_a_record_can_have() -> None:
    keys = " ".join("k" * 1 for _ in range(16_000))
    message = make_message("T", b"", properties={"KEYS": keys, "UNIQ_KEY": "u", "TAGS": "t"})
    (columns,) = DispatchScan(DeriveRules(), chunk_rows=1).scan(encode_message(message), base_physical_offset=0)
    assert columns.key_hashes.tolist() == index_hashes(message, COMPAT_5_5)
    assert len(columns.key_hashes) == 16_002


def test_index_resumes_where_another_process_left_it() -> None:
    log = make_log(random_kinds(60, seed=3), segment_bytes=1 << 16)
    ((base, data),) = log.segments
    layout = IndexLayout(7, 50)
    whole = FORMATS.derive(log.segments, DeriveRules(), 200, layout).indexes
    files: list = []

    def open_file(_: int):
        from orbitlog.kernels.arrays import np

        files.append(np.zeros(layout.file_bytes, np.uint8))
        return files[-1]

    # A new builder for every chunk: each resumes the last file, or begins the next after it.
    header: IndexHeader | None = None
    for columns in DispatchScan(DeriveRules(), chunk_rows=3).scan(data, base_physical_offset=base):
        builder = IndexBuilder(layout, open_file, after=header)
        if files and decode_header(files[-1].data).index_count < layout.entry_count:
            builder.resume(files[-1])
        builder.add(columns)
        header = decode_header(files[-1].data)
    assert [bytes(file) for file in files] == whole
    assert len(whole) > 2


def test_builders_refuse_files_of_another_size() -> None:
    from orbitlog.kernels.arrays import np

    log = make_log(["plain"])
    (columns,) = DispatchScan(DeriveRules()).scan(log.segments[0][1], base_physical_offset=0)
    with pytest.raises(ValueError, match="queue file has 100"):
        QueueBuilder(100, lambda code, base: np.zeros(99, np.uint8)).add(columns)
    with pytest.raises(ValueError, match="index file has"):
        IndexBuilder(IndexLayout(5, 5), lambda time: np.zeros(99, np.uint8)).add(columns)
    bad = make_message("T", b"", queue_offset=-1)
    (columns,) = DispatchScan(DeriveRules()).scan(encode_message(bad), base_physical_offset=0)
    with pytest.raises(ValueError, match="queue offset -1"):
        QueueBuilder(100, lambda code, base: np.zeros(100, np.uint8)).add(columns)
