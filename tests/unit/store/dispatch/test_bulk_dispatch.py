"""Catching up with the kernels gives the bytes of dispatching step by step."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitlog.formats.derived.derive import DeriveRules
from orbitlog.formats.derived.index_layout import IndexLayout
from orbitlog.formats.records import flags
from orbitlog.formats.records.message import make_message
from orbitlog.settings.store_settings import StoreGeometry
from orbitlog.store.dispatch import dispatcher
from orbitlog.store.message_store import MessageStore
from orbitlog.storefiles.store_config import StoreConfig

GEOMETRY = StoreGeometry(segment_bytes=8192, queue_file_bytes=200, index_layout=IndexLayout(10, 30))


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
