"""The store's own life: append, dispatch, flush, read, close, open again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitlog.errors import DiskFull, StoreClosed, StoreError, StoreLayoutError, StoreLocked
from orbitlog.formats import names
from orbitlog.formats.compat import COMPAT_4_9
from orbitlog.formats.derived.derive import DeriveRules
from orbitlog.formats.derived.derived_files import DerivedFiles
from orbitlog.formats.derived.index_layout import IndexLayout
from orbitlog.formats.hosts import Host
from orbitlog.formats.records import flags
from orbitlog.formats.records.batch import BatchMember, encode_batch, expand_batch
from orbitlog.formats.records.message import Message, decode_message, encode_message, make_message
from orbitlog.formats.records.message_scan import scan_messages
from orbitlog.formats.records.properties import check_crc_property, decode_properties
from orbitlog.settings.store_settings import StoreGeometry
from orbitlog.store.appending.put_result import PutStatus
from orbitlog.store.message_store import MessageStore
from orbitlog.store.reads.key_query import KeyQuery
from orbitlog.store.reads.queue_reader import GetStatus, ReadLimits, ReadRequest
from orbitlog.storefiles.disk import RealMappedFile
from orbitlog.storefiles.store_config import StoreConfig

GEOMETRY = StoreGeometry(segment_bytes=4096, queue_file_bytes=200, index_layout=IndexLayout(10, 30))
CONFIG = StoreConfig(GEOMETRY, message_bytes_max=2000)


class Clock:
    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000

    def __call__(self) -> int:
        self.now_ms += 7
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path / "store", CONFIG, clock) as opened:
        yield opened


def order(number: int, *, topic: str = "Orders", body_bytes: int = 50, **fields: int) -> Message:
    properties = {"KEYS": f"k{number}", "TAGS": f"t{number % 2}", "UNIQ_KEY": f"U{number:04d}"}
    return make_message(topic, bytes([number % 256]) * body_bytes, properties=properties, **fields)


def drain(store: MessageStore, topic: str = "Orders", queue_id: int = 0) -> list[Message]:
    messages: list[Message] = []
    while True:
        result = store.get(topic, queue_id, ReadRequest(len(messages), 32))
        if result.status is not GetStatus.FOUND:
            return messages
        messages += map(decode_message, result.records)


def test_messages_come_back_in_order_over_rolls_and_reopening(tmp_path: Path, clock: Clock) -> None:
    for opening in range(4):
        with MessageStore.open(tmp_path, CONFIG, clock) as store:
            results = [store.append(order(opening * 30 + number)) for number in range(30)]
            assert {result.status for result in results} == {PutStatus.PUT_OK}
            assert [result.queue_offset for result in results] == list(range(opening * 30, opening * 30 + 30))
            store.dispatch_once()
            found = drain(store)
            assert [message.body[0] for message in found] == [number % 256 for number in range(opening * 30 + 30)]
            assert store.dispatched_to == store.written_to
    assert len(list((tmp_path / "commitlog").iterdir())) > 3


def test_derived_files_are_those_of_the_reference(tmp_path: Path, clock: Clock) -> None:
    with MessageStore.open(tmp_path, CONFIG, clock) as store:
        for number in range(80):
            kind = (0, flags.TransactionType.PREPARED, flags.TransactionType.COMMIT, flags.TransactionType.ROLLBACK)
            topic = names.SCHEDULE_TOPIC if number % 7 == 0 else f"T{number % 3}"
            store.append(order(number, topic=topic, queue_id=number % 2, sys_flag=int(kind[number % 4])))
            if number % 5 == 0:
                store.dispatch_once(max_bytes=300)
    expected = DerivedFiles(CONFIG.rules, queue_file_bytes=200, index_layout=GEOMETRY.index_layout)
    for path in sorted((tmp_path / "commitlog").iterdir()):
        found = scan_messages(path.read_bytes(), base_physical_offset=int(path.name))
        expected.add(message for message in found if isinstance(message, Message))
    made = {
        (path.parent.parent.name, int(path.parent.name), int(path.name)): path.read_bytes()
        for path in (tmp_path / "consumequeue").glob("*/*/*")
    }
    wanted = {(*queue, base): bytes(file) for queue, files in expected.queues.items() for base, file in files.items()}
    assert made == wanted
    assert [path.read_bytes() for path in sorted((tmp_path / "index").iterdir())] == expected.index_files


def test_batch_is_stored_in_one_segment(store: MessageStore) -> None:
    store.append(order(0, body_bytes=1500))
    store.append(order(1, body_bytes=1500))
    results = store.append_batch([order(number, body_bytes=500) for number in range(2, 5)])
    assert results[0].physical_offset == 4096
    assert [result.queue_offset for result in results] == [2, 3, 4]
    assert [result.physical_offset for result in results] == [4096, results[0].end, results[1].end]


@pytest.mark.parametrize(
    ("message", "status"),
    [
        (order(1, body_bytes=2001), PutStatus.MESSAGE_ILLEGAL),
        (make_message("T", b"", properties=b"x" * 32768), PutStatus.PROPERTIES_SIZE_EXCEEDED),
        (make_message("", b"x"), PutStatus.MESSAGE_ILLEGAL),
        (make_message("T" * 256, b"x"), PutStatus.MESSAGE_ILLEGAL),
    ],
)
def test_what_is_refused_leaves_no_trace(store: MessageStore, message: Message, status: PutStatus) -> None:
    result = store.append(message)
    assert (result.status, result.is_stored) == (status, False)
    assert result.reason
    assert store.written_to == 0


def test_a_4x_store_takes_no_long_topics(tmp_path: Path, clock: Clock) -> None:
    with MessageStore.open(tmp_path, StoreConfig(GEOMETRY, DeriveRules(COMPAT_4_9)), clock) as store:
        assert store.append(make_message("T" * 128, b"x")).status is PutStatus.MESSAGE_ILLEGAL


def test_readers_see_only_what_is_on_the_disk_where_sends_wait_for_it(tmp_path: Path, clock: Clock) -> None:
    with MessageStore.open(tmp_path, StoreConfig(GEOMETRY, sync_flush=True), clock) as store:
        result = store.append(order(1))
        assert store.dispatch_once() == []
        assert store.read_at(result.physical_offset) is None
        assert store.flush_log() >= result.end
        assert [arrival.queue_offset for arrival in store.dispatch_once()] == [0]
        assert store.read_at(result.physical_offset) is not None


def test_answers_about_offsets(store: MessageStore) -> None:
    assert store.get("Orders", 0, ReadRequest(0, 1)).status is GetStatus.NO_MESSAGE_IN_QUEUE
    for number in range(25):
        store.append(order(number))
    store.dispatch_once()
    answers = {offset: store.get("Orders", 0, ReadRequest(offset, 5)) for offset in (-1, 0, 8, 25, 26)}
    statuses = [answers[offset].status for offset in answers]
    assert statuses == [
        GetStatus.OFFSET_TOO_SMALL,
        GetStatus.FOUND,
        GetStatus.FOUND,
        GetStatus.OFFSET_OVERFLOW_ONE,
        GetStatus.OFFSET_OVERFLOW_BADLY,
    ]
    assert [answers[offset].next_offset for offset in answers] == [0, 5, 10, 25, 25]
    assert len(answers[8].records) == 2, "a read ends with the queue file, which holds ten units"


def test_filters_and_limits(store: MessageStore) -> None:
    for number in range(8):
        store.append(order(number))
    store.dispatch_once()
    tags = {decode_message(record).properties["TAGS"] for record in store.get("Orders", 0, ReadRequest(0, 9)).records}
    assert tags == {"t0", "t1"}
    wanted = order(1)
    from orbitlog.formats.java import string_hash

    code = string_hash(wanted.properties["TAGS"])
    odd = store.get("Orders", 0, ReadRequest(0, 9, tags_filter=lambda tags_code: tags_code == code))
    assert (len(odd.records), odd.next_offset) == (4, 8)
    none = store.get("Orders", 0, ReadRequest(0, 9, record_filter=lambda record: False))
    assert (none.status, none.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 8)
    size = len(odd.records[0])
    few = store.get("Orders", 0, ReadRequest(0, 9, limits=ReadLimits(bytes_in_memory=2 * size)))
    assert (len(few.records), few.next_offset) == (2, 2)


def test_query_states_when_it_is_not_complete(store: MessageStore) -> None:
    for _ in range(3):
        store.append(order(5))
    behind = store.query(KeyQuery("Orders", "k5"))
    assert (behind.messages, behind.complete) == ([], False)
    assert "behind" in behind.reason
    store.dispatch_once()
    assert len(store.query(KeyQuery("Orders", "k5")).messages) == 3
    capped = store.query(KeyQuery("Orders", "k5", limit=2))
    assert (len(capped.messages), capped.complete) == (2, False)
    assert store.query(KeyQuery("Orders", "U0005", unique_key_only=True)).complete
    assert store.query(KeyQuery("Orders", "k5", unique_key_only=True)).messages == []


def test_two_writers_are_refused(tmp_path: Path, clock: Clock) -> None:
    # The lock belongs to the process, so the second writer must be another one.
    import subprocess
    import sys

    program = (
        "import sys, pathlib\nfrom orbitlog.store.message_store import MessageStore\n"
        "from orbitlog.storefiles.store_config import StoreConfig\nfrom orbitlog.errors import StoreLocked\n"
        "try:\n    MessageStore.open(pathlib.Path(sys.argv[1]), StoreConfig(), lambda: 1)\n"
        "except StoreLocked as error:\n    sys.exit(str(error))\n"
    )
    with MessageStore.open(tmp_path, CONFIG, clock):
        command = [sys.executable, "-c", program, str(tmp_path)]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert "in use by another broker" in run.stderr
    assert issubclass(StoreLocked, StoreError)


def test_a_store_of_other_geometry_is_refused(tmp_path: Path, clock: Clock) -> None:
    with MessageStore.open(tmp_path, CONFIG, clock) as store:
        store.append(order(1))
    with pytest.raises(StoreLayoutError, match="4096 bytes"):
        MessageStore.open(tmp_path, StoreConfig(StoreGeometry(segment_bytes=8192)), clock)
    MessageStore.open(tmp_path, CONFIG, clock).close()


def test_a_closed_store_takes_nothing(tmp_path: Path, clock: Clock) -> None:
    store = MessageStore.open(tmp_path, CONFIG, clock)
    store.close()
    store.close()
    with pytest.raises(StoreClosed):
        store.append(order(1))
    assert not (tmp_path / "abort").exists()
    assert issubclass(DiskFull, StoreError)


def test_the_clock_may_jump_back(tmp_path: Path) -> None:
    times = iter([1000, 900, 1100])
    with MessageStore.open(tmp_path, CONFIG, lambda: next(times)) as store:
        stored = [store.append(order(number)).store_timestamp_ms for number in range(3)]
    assert stored == [1000, 1000, 1100]


def test_next_segment_is_created_ahead_and_removed_if_unused(tmp_path: Path, clock: Clock) -> None:
    with MessageStore.open(tmp_path, CONFIG, clock) as store:
        assert not store.prepare_once()
        store.append(order(1, body_bytes=1900))
        store.append(order(2, body_bytes=500))
        assert store.prepare_once()
        assert not store.prepare_once()
        assert len(list((tmp_path / "commitlog").iterdir())) == 2
    assert len(list((tmp_path / "commitlog").iterdir())) == 1


def test_a_log_whose_only_segment_is_empty_and_not_the_first(tmp_path: Path, clock: Clock) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / f"{8192:020d}").write_bytes(bytes(4096))
    for opening in range(2):
        with MessageStore.open(tmp_path, CONFIG, clock) as store:
            assert store.min_physical_offset == 8192
            assert store.append(order(1)).queue_offset == opening


@pytest.mark.parametrize("raw", [b"a\1\0\2", b"a\1\0", b"a\1" + bytes(1200)])
def test_zeros_in_properties_come_back_with_a_checksum_over_the_record(store: MessageStore, raw: bytes) -> None:
    result = store.append(make_message("T", b"body", properties=raw))
    found = store.read_at(result.physical_offset)
    assert found is not None
    assert found.properties_raw.startswith(raw)
    assert check_crc_property(encode_message(found))
    assert found.properties["a"] == decode_properties(raw)["a"]


def test_a_batch_has_no_transaction_and_no_delay(store: MessageStore) -> None:
    plain = make_message("T", b"x")
    for wrong in (
        plain._replace(sys_flag=4),
        plain._replace(sys_flag=8),
        plain._replace(properties_raw=b"DELAY\x013\2"),
        plain._replace(sys_flag=flags.INNER_BATCH),
        plain._replace(properties_raw=b"INNER_NUM\x013\2"),
        plain._replace(body=b"x" * 1990),
    ):
        results = store.append_batch([plain, wrong])
        assert [result.status for result in results] == [PutStatus.MESSAGE_ILLEGAL] * 2
        assert results[0].reason
    assert store.append_batch([]) == []
    assert store.written_to == 0
    for right in (plain._replace(properties_raw=b"DELAY\x010\2"), plain._replace(properties_raw=b"XDELAY\x011\2")):
        assert all(result.is_stored for result in store.append_batch([plain, right]))
    assert store.append_batch([plain._replace(sys_flag=4)])[0].is_stored  # one alone is no batch


@pytest.mark.parametrize("topic", ["", "a/b", "..", "a b", "ü", "L" * 128, "%DLQ%" + "g" * 130])
def test_a_topic_that_no_queue_can_have_is_refused(store: MessageStore, topic: str) -> None:
    result = store.append(make_message("T", b"x")._replace(topic=topic, version=1 if len(topic) < 128 else 2))
    assert result.status is PutStatus.MESSAGE_ILLEGAL
    assert result.reason
    assert store.written_to == 0


def test_a_long_retry_topic_is_taken_and_read(store: MessageStore) -> None:
    topic = "%RETRY%" + "g" * 150
    assert store.append(make_message(topic, b"x")).is_stored
    assert store.dispatch_once()[0].topic == topic
    assert not store.damage


def test_a_batch_taken_whole_is_what_its_members_are(tmp_path: Path) -> None:
    host = Host(bytes((127, 0, 0, 1)), 10911)
    logs = []
    for way in ("whole", "whole, with kernels", "one by one"):
        root = tmp_path / way
        with MessageStore.open(root, CONFIG, lambda: 1_700_000_000_000) as store:
            if way == "whole, with kernels":
                store.load_kernels()
            for number in range(60):
                members = [BatchMember(b"%d-%d" % (number, each) * 9, b"KEYS\x01k\x02") for each in range(5)]
                batch = make_message("T", encode_batch(members), born_host=host, store_host=host, queue_id=1)
                if way != "one by one":
                    appended = store.append_members(batch, b"CLUSTER\x01c\x02")
                    assert appended is not None and appended.queue_offset == 5 * number
                    assert appended.end == store.written_to
                else:
                    store.append_batch(expand_batch(batch._replace(properties_raw=b"CLUSTER\x01c\x02")))
            store.dispatch_once(1 << 30)
        logs.append({path.name: path.read_bytes() for path in sorted((root / "commitlog").iterdir())})
    assert logs[0] == logs[1] == logs[2] and len(logs[0]) > 1


def test_what_is_written_next_is_fetched_before_in_halves_and_up_to_the_segment_end(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[tuple[int, int]] = []
    monkeypatch.setattr(RealMappedFile, "fetch", lambda _, start, stop: fetched.append((start, stop)))
    assert store.fetch_ahead(1000) is None, "there is no file yet"
    segment_bytes = GEOMETRY.segment_bytes
    store.append(make_message("T", b"x" * 100))
    while store.written_to < segment_bytes:
        fetch = store.fetch_ahead(1000)
        if fetch is not None:
            written_to = store.written_to
            fetch()
            assert fetched[-1][1] == min(written_to + 1000, segment_bytes)
        assert store.fetch_ahead(1000) is None, "it is fetched already"
        store.append(make_message("T", b"x" * 100))
    assert [start for start, _ in fetched[1:]] == [stop for _, stop in fetched[:-1]], "nothing twice, nothing left out"
    assert fetched[-1][1] == segment_bytes
    fetch = store.fetch_ahead(1000)
    assert fetch is not None, "the next segment has not been fetched"
    fetch()
    assert fetched[-1][0] == store.written_to - segment_bytes
