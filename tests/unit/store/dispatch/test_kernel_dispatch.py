"""Kernel dispatch, bulk and live, writes the bytes of plain Python dispatch."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from orbitlog.errors import DiskFull
from orbitlog.formats.compat import COMPAT_4_9, COMPAT_5_5, Compat
from orbitlog.formats.derived.derive import DeriveRules, allows_light_queues, queue_units
from orbitlog.formats.derived.index_layout import IndexLayout
from orbitlog.formats.hosts import parse_host
from orbitlog.formats.names import SCHEDULE_TOPIC
from orbitlog.formats.records import flags
from orbitlog.formats.records.flags import TransactionType
from orbitlog.formats.records.message import Message, make_message
from orbitlog.settings.store_settings import StoreGeometry
from orbitlog.store.dispatch import dispatcher
from orbitlog.store.dispatch.arrival import Arrival
from orbitlog.store.message_store import MessageStore
from orbitlog.storefiles.store_config import StoreConfig
from orbitlog.testing.crash_disk import CrashDisk
from tests.support.invariants import check_derived, messages_in
from tests.support.workloads import ROOT, Clock

GEOMETRY = StoreGeometry(segment_bytes=8192, queue_file_bytes=200, index_layout=IndexLayout(10, 30))
HOSTS = [None, parse_host("10.0.0.7:4321"), parse_host("[2001:db8::7]:4321")]


def any_message(chance: Random, number: int, compat: Compat, light: dict[str, int]) -> Message:
    """A message of any kind that is derived differently."""
    properties = {}
    if chance.random() < 0.7:
        properties["UNIQ_KEY"] = f"7F0000011A2B4E0E2F2A49F7{number:08X}"
    if chance.random() < 0.6:
        properties["KEYS"] = " ".join(chance.choice(["k", "order-7", "ü", "", "x" * 40]) for _ in range(3))
    if chance.random() < 0.6:
        properties["TAGS"] = chance.choice(["A", "B", "Übung"])
    if chance.random() < 0.1:
        name = chance.choice(["%LMQ%a", "%LMQ%b"])
        properties |= {"INNER_MULTI_DISPATCH": name, "INNER_MULTI_QUEUE_OFFSET": str(light.get(name, 0))}
    topic, queue_id, kind = chance.choice(["Orders", "Ticks", "%RETRY%g"]), chance.randrange(3), TransactionType.NONE
    if chance.random() < 0.1:
        topic, properties["DELAY"] = SCHEDULE_TOPIC, chance.choice(["3", "0", "99", "x"])
    elif chance.random() < 0.2:
        kind = chance.choice(list(TransactionType))
    version = 2 if compat.long_topics and chance.random() < 0.1 else 1
    if "INNER_MULTI_DISPATCH" in properties and kind.enters_queue and allows_light_queues(topic):
        name = properties["INNER_MULTI_DISPATCH"]
        light[name] = light.get(name, 0) + 1
    return make_message(
        topic,
        chance.randbytes(chance.choice([0, 10, 100, 400])),
        properties=properties,
        queue_id=queue_id,
        sys_flag=int(kind),
        born_host=chance.choice(HOSTS),
        store_host=chance.choice(HOSTS),
        version=version,
    )


@pytest.mark.parametrize("kernels", [False, True])
@pytest.mark.parametrize("multi_dispatch", [False, True])
@pytest.mark.parametrize("compat", [COMPAT_4_9, COMPAT_5_5])
def test_queues_and_index_are_what_plain_python_makes(
    monkeypatch: pytest.MonkeyPatch, kernels: bool, multi_dispatch: bool, compat: Compat
) -> None:
    monkeypatch.setattr(dispatcher, "_LIVE_BYTES_MIN", 500)
    monkeypatch.setattr(dispatcher, "STEP_BYTES", 1500)  # copied at a time: records lie across its ends
    config = StoreConfig(GEOMETRY, DeriveRules(compat, multi_dispatch=multi_dispatch), segment_allocate_bytes=4096)
    for seed in range(4):
        chance, disk = Random(seed), CrashDisk()
        store = MessageStore.open(ROOT, config, Clock(chance), disk)
        if kernels:
            store.load_kernels()
        light: dict[str, int] = {}
        arrived = []
        for number in range(250):
            assert store.append(any_message(chance, number, compat, light)).is_stored
            if chance.random() < 0.1:
                arrived += store.dispatch_once(chance.choice([300, 3000, 1 << 20]))
        while store.dispatched_to < store.written_to:
            arrived += store.dispatch_once()
        check_derived(disk, config)
        check_arrivals(disk, arrived, config.rules)
        store.close()
        check_derived(disk, config)


def check_arrivals(disk: CrashDisk, arrived: list[Arrival], rules: DeriveRules) -> None:
    """Listeners are called for every unit, in the order of the log."""
    expected = [
        (unit.topic, unit.queue_id, unit.queue_offset, unit.entry.tags_code, message.store_timestamp_ms)
        for message in messages_in(disk.files())
        for unit in queue_units(message, rules)
    ]
    assert [tuple(arrival) for arrival in arrived] == expected


@pytest.mark.parametrize("kernels", [False, True])
def test_a_disk_that_fills_up_and_empties_again(monkeypatch: pytest.MonkeyPatch, kernels: bool) -> None:
    monkeypatch.setattr(dispatcher, "_LIVE_BYTES_MIN", 500)
    config = StoreConfig(GEOMETRY, DeriveRules(), segment_allocate_bytes=4096)
    for seed in range(12):
        chance, disk = Random(seed), CrashDisk()
        store = MessageStore.open(ROOT, config, Clock(chance), disk)
        if kernels:
            store.load_kernels()
        for number in range(150):
            assert store.append(any_message(chance, number, COMPAT_5_5, {})).is_stored
        arrived = []
        while store.dispatched_to < store.written_to:
            disk.full_from = disk.steps + chance.randrange(80)
            try:
                arrived += store.dispatch_once()
            except DiskFull:
                disk.full_from = None
                arrived += store.dispatch_once(400)
            disk.full_from = None
        check_derived(disk, config)
        check_arrivals(disk, arrived, config.rules)
        store.close()


def test_a_queue_of_another_message_stops_the_kernels_and_is_reported(tmp_path: Path) -> None:
    """What the kernels cannot decide the plain way does: two messages with one queue offset."""
    config = StoreConfig(StoreGeometry(segment_bytes=65536, queue_file_bytes=2000, index_layout=IndexLayout(10, 300)))
    with MessageStore.open(tmp_path, config, lambda: 1_700_000_000_000) as store:
        store.load_kernels()
        for number in range(60):
            if number == 30:
                store._appender.next_queue_offsets["T", 0] -= 1
            store.append(make_message("T", b"x" * 200, properties={"KEYS": f"k{number}"}))
        assert len(store.dispatch_once()) == 59
        assert [damage.reason for damage in store.damage] == ["queue offset at byte 0: 29 is that of another message"]
        assert store.dispatched_to == store.written_to


@pytest.mark.parametrize("kernels", [False, True])
def test_the_last_of_each_queue_is_enough_for_who_waits_for_none(
    monkeypatch: pytest.MonkeyPatch, kernels: bool
) -> None:
    monkeypatch.setattr(dispatcher, "_LIVE_BYTES_MIN", 500)
    config = StoreConfig(StoreGeometry(segment_bytes=65536), DeriveRules(), segment_allocate_bytes=4096)
    store = MessageStore.open(ROOT, config, Clock(Random(1)), CrashDisk())
    if kernels:
        store.load_kernels()
    for number in range(2):  # a queue's first message takes the longer way
        for queue_id in (0, 1) * (1 + 9 * number):
            store.append(make_message("Orders", b"body", queue_id=queue_id))
        arrived = store.dispatch_once(each=False)
    last = {(arrival.queue_id, arrival.queue_offset) for arrival in arrived}
    assert {(0, 10), (1, 10)} <= last
    assert len(arrived) == (2 if kernels else 20)
    store.close()


def write(root: Path, count: int, rules: DeriveRules) -> None:
    kinds = [0, 0, 0, int(flags.TransactionType.PREPARED), int(flags.TransactionType.COMMIT)]
    with MessageStore.open(root, StoreConfig(GEOMETRY, rules), lambda: 1_700_000_000_000) as store:
        for number in range(count):
            properties = {"KEYS": f"a{number} b{number % 5}", "TAGS": "t"} if number % 3 else {}
            if number % 10 == 7:
                properties |= {"INNER_MULTI_DISPATCH": "%LMQ%x", "INNER_MULTI_QUEUE_OFFSET": str(number // 10)}
            store.append(
                make_message(
                    f"T{number % 4}", b"x" * 70, properties=properties, queue_id=number % 2, sys_flag=kinds[number % 5]
                )
            )


def derived(root: Path) -> dict[str, bytes]:
    queues = {str(path.relative_to(root)): path.read_bytes() for path in (root / "consumequeue").glob("*/*/*")}
    indexes = {f"index {n}": path.read_bytes() for n, path in enumerate(sorted((root / "index").iterdir()))}
    return queues | indexes


@pytest.mark.parametrize("multi_dispatch", [False, True])
@pytest.mark.parametrize("kept", ["nothing", "index", "queues", "part of a queue"])
def test_the_same_bytes_as_step_by_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, multi_dispatch: bool, kept: str
) -> None:
    import shutil

    rules = DeriveRules(multi_dispatch=multi_dispatch)
    write(tmp_path, 200, rules)
    before = derived(tmp_path)
    if kept in ("nothing", "queues"):
        shutil.rmtree(tmp_path / "index")
    if kept in ("nothing", "index"):
        shutil.rmtree(tmp_path / "consumequeue")
    if kept == "part of a queue":
        (tmp_path / "consumequeue" / "T1" / "1" / f"{200:020d}").unlink()
    (tmp_path / "orbitlog.state").unlink()
    monkeypatch.setattr(dispatcher, "_BULK_BYTES_MIN", 1000)
    told: list[tuple[int, int]] = []
    config = StoreConfig(GEOMETRY, rules)
    with MessageStore.open(
        tmp_path, config, lambda: 1, progress=lambda done, total: told.append((done, total))
    ) as store:
        assert store.dispatched_to == store.written_to
        assert told[-1] == (store.written_to, store.written_to)
        assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert derived(tmp_path) == before
    assert len(before) > 20


def test_damage_is_left_to_the_step_that_reports_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rules = DeriveRules()
    write(tmp_path, 100, rules)
    segment = tmp_path / "commitlog" / f"{0:020d}"
    data = bytearray(segment.read_bytes())
    size = int.from_bytes(data[:4], "big")
    data[size + 4] ^= 0xFF  # the second record's magic
    segment.write_bytes(data)
    (tmp_path / "orbitlog.state").unlink()
    monkeypatch.setattr(dispatcher, "_BULK_BYTES_MIN", 1000)
    with MessageStore.open(tmp_path, StoreConfig(GEOMETRY, rules), lambda: 1) as store:
        assert {part.physical_offset for part in store.damage} == {size}
        assert store.dispatched_to == store.written_to > 8192


def test_an_index_that_is_just_full_stays_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Queues are lost, the index is whole and full to its last entry: deriving again begins no file behind it."""
    import shutil

    monkeypatch.setattr(dispatcher, "_BULK_BYTES_MIN", 0)
    config = StoreConfig(GEOMETRY)
    with MessageStore.open(tmp_path, config, lambda: 1_700_000_000_000) as store:
        for number in range(29):  # entry 0 of the 30 is never used
            store.append(make_message("T", b"x" * 70, properties={"KEYS": f"a{number}"}))
    before = derived(tmp_path)
    assert [name for name in before if name.startswith("index")] == ["index 0"]
    shutil.rmtree(tmp_path / "consumequeue")
    (tmp_path / "orbitlog.state").unlink()
    MessageStore.open(tmp_path, config, lambda: 1_700_000_000_000).close()
    assert derived(tmp_path) == before
