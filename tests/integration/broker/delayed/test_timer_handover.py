"""Hand-over of a store with waiting messages: Java's timer files, written and read."""

from __future__ import annotations

from pathlib import Path

from orbitlog.broker.runtime.broker_settings import TIMER_LOG_BYTES
from orbitlog.formats.derived.timer_checkpoint import TimerCheckpoint, decode_timer_checkpoint, encode_timer_checkpoint
from orbitlog.formats.derived.timer_log import TimerLogUnit, read_timer_unit_at
from orbitlog.formats.records.timer_message import ROLL_WINDOW_MS
from tests.support.broker_desk import Desk, at_desk
from tests.support.timed_broker import START_MS, Clock, bodies, settled

LOG_NAME = "timerlog/00000000000000000000"


def units(root: Path) -> list[TimerLogUnit]:
    log = (root / LOG_NAME).read_bytes()
    assert len(log) == TIMER_LOG_BYTES.default
    found = []
    while isinstance(unit := read_timer_unit_at(log, len(found) * 52), TimerLogUnit):
        found.append(unit)
    return found


def checkpoint(root: Path) -> TimerCheckpoint:
    return decode_timer_checkpoint((root / "config/timercheck").read_bytes())


async def send_later(desk: Desk, body: bytes, delay_ms: int, number: int = 0) -> None:
    properties = {"TIMER_DELIVER_MS": str(START_MS + delay_ms), "UNIQ_KEY": f"{number:032X}"}
    await desk.send(body=body, properties=properties)


def test_waiting_messages_are_written_for_java(tmp_path: Path) -> None:
    clock = Clock()

    async def work(desk: Desk) -> None:
        for number, delay_ms in enumerate((20_500, 5_000, 20_700, 10 * ROLL_WINDOW_MS, 6_000)):
            await send_later(desk, b"%d" % delay_ms, delay_ms, number)
        await settled(desk)
        clock.now_ms += 10_000
        await settled(desk)
        assert await bodies(desk) == [b"5000", b"6000"]
        (tmp_path / "timerwheel").write_bytes(b"of a broker before")
        (tmp_path / "timerlog").mkdir()
        (tmp_path / "timerlog" / "00000000000104857600").write_bytes(b"x")

    at_desk(tmp_path, work, now_ms=clock)
    assert not (tmp_path / "timerwheel").exists()
    assert [each.name for each in (tmp_path / "timerlog").iterdir()] == [Path(LOG_NAME).name]
    first, second, rolled, last = units(tmp_path)
    assert (first.due_time_ms, second.due_time_ms) == (START_MS + 20_000, START_MS + 20_000)
    assert (first.previous_log_position, second.previous_log_position) == (None, 0)
    assert rolled.is_roll and rolled.due_time_ms == START_MS + ROLL_WINDOW_MS
    said = checkpoint(tmp_path)
    assert (said.last_queue_offset, said.last_log_flush_position) == (5, 4 * 52)
    # The last message of the topic was delivered; Java must learn of it, and must not redeliver it.
    assert last.due_time_ms < said.last_read_time_ms <= START_MS + 10_000


def test_message_delivered_by_java_is_not_redelivered(tmp_path: Path) -> None:
    clock = Clock()

    async def before(desk: Desk) -> None:
        for number, delay_ms in enumerate((10_500, 20_500, 10_000)):
            await send_later(desk, b"%d" % delay_ms, delay_ms, number)
        await settled(desk)

    async def after(desk: Desk) -> None:
        await settled(desk)
        assert await bodies(desk) == [b"20500"]

    at_desk(tmp_path, before, now_ms=clock)
    java = TimerCheckpoint(last_read_time_ms=START_MS + 11_000, last_queue_offset=3, master_queue_offset=3)
    (tmp_path / "config/timercheck").write_bytes(encode_timer_checkpoint(java))
    clock.now_ms += 60_000
    at_desk(tmp_path, after, now_ms=clock)
    at_desk(tmp_path, after, now_ms=clock)


def test_message_unknown_to_java_is_delivered(tmp_path: Path) -> None:
    clock = Clock()

    async def before(desk: Desk) -> None:
        for number in range(3):
            await send_later(desk, b"%d" % number, 10_000, number)
        await settled(desk)

    async def after(desk: Desk) -> None:
        await settled(desk)
        assert await bodies(desk) == [b"2"]

    at_desk(tmp_path, before, now_ms=clock)
    (tmp_path / "config/orbitlogTimers.json").unlink()
    java = TimerCheckpoint(last_read_time_ms=START_MS + 60_000, last_queue_offset=2, master_queue_offset=2)
    (tmp_path / "config/timercheck").write_bytes(encode_timer_checkpoint(java))
    clock.now_ms += 90_000
    at_desk(tmp_path, after, now_ms=clock)


def test_damaged_checkpoint_is_ignored(tmp_path: Path) -> None:
    clock = Clock()

    async def before(desk: Desk) -> None:
        await send_later(desk, b"one", 10_000)

    async def after(desk: Desk) -> None:
        await settled(desk)
        assert await bodies(desk) == [b"one"]

    at_desk(tmp_path, before, now_ms=clock)
    (tmp_path / "config/timercheck").write_bytes(b"short")
    clock.now_ms += 60_000
    at_desk(tmp_path, after, now_ms=clock)


def test_store_of_4_9_gets_no_timer_files(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await send_later(desk, b"one", 10_000)
        await settled(desk)

    at_desk(tmp_path, work, now_ms=Clock(), compat="4.9")
    assert not (tmp_path / "timerlog").exists()
    assert not (tmp_path / "config/timercheck").exists()


def test_timer_log_has_the_size_of_the_setting(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await send_later(desk, b"later", 20_000)
        await settled(desk)
        (tmp_path / "timerlog").mkdir()
        (tmp_path / LOG_NAME).write_bytes(bytes(4096))

    at_desk(tmp_path, work, now_ms=Clock(), mappedFileSizeTimerLog="16777216")
    assert (tmp_path / LOG_NAME).stat().st_size == 16_777_216
