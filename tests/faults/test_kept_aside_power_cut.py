"""The power goes while messages wait, delayed, half or sent back: none is lost, early, or seen uncommitted."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from random import Random

import pytest

from orbitlog.formats import names
from orbitlog.formats.records.message import Message
from orbitlog.testing.crash_disk import CrashDisk, PowerCut
from tests.faults.kept_aside import DAY_MS, Clock, KeptAside, Ledger, Promise

IMAGES = "images of a disk on which messages wait"
STEPS = 90
LIVES = 4


class Life:
    """Random work of one broker between two crashes."""

    def __init__(self, disk: CrashDisk, clock: Clock, ledger: Ledger, chance: Random) -> None:
        self.kept = KeptAside(disk, clock, ledger)
        self.chance, self.clock, self.ledger = chance, clock, ledger

    def one_step(self, number: int, loop: asyncio.AbstractEventLoop) -> None:
        kept, chance = self.kept, self.chance
        kinds = {
            self.send_level: 4,
            self.send_for_a_moment: 4,
            self.send_half: 4,
            self.leave_undeliverable: 2,
            self.send_and_send_back: 3,
            self.end_some_half: 3,
            self.send_back_again: 2,
            self.take_one_back: 1,
            self.ask_producers: 2,
            self.let_time_pass: 6,
        }
        work = chance.choices([*kinds, None], [*kinds.values(), 8])[0]
        if work is not None:
            work(f"{number}")
            return
        steps = [kept.store.flush_log, kept.store.flush_derived, kept.dispatch]
        kind = chance.randrange(6)
        if kind < len(steps):
            steps[kind]()
        else:
            loop.run_until_complete(kept.save(chance))

    def send_level(self, number: str) -> None:
        kept, level = self.kept, self.chance.randint(1, 5)
        kept.send("Level", f"l{number}", DELAY=str(level))
        due_ms = kept.state.delay_levels.deliver_timestamp_ms(level, self.clock.now_ms)
        kept.promise(Promise(f"l{number}", kept.store.written_to, due_ms))

    def send_for_a_moment(self, number: str) -> None:
        kept, chance = self.kept, self.chance
        wait_ms = chance.choice([1, 999, 1_000, 61_234, 3_600_000, DAY_MS, 3 * DAY_MS, 40 * DAY_MS])
        name, due_ms = f"m{number}", self.clock.now_ms + wait_ms
        kind = chance.randrange(3)
        if kind == 0:
            kept.send("Moment", name, TIMER_DELIVER_MS=str(due_ms))
        elif kind == 1:
            kept.send("Moment", name, TIMER_DELAY_MS=str(wait_ms))
        else:
            kept.send("Moment", name, TIMER_DELAY_SEC=str(-(-wait_ms // 1000)))
        kept.promise(Promise(name, kept.store.written_to, due_ms))

    def send_half(self, number: str) -> None:
        kept, chance, name = self.kept, self.chance, f"h{number}"
        own = {"CHECK_IMMUNITY_TIME_IN_SECONDS": "30"} if chance.random() < 0.3 else {}
        kept.send("Half", name, TRAN_MSG="true", PGROUP="P", **own)
        will_commit = chance.random() < 0.6
        kept.promise(Promise(name, kept.store.written_to, is_half=True, will_commit=will_commit))

    def leave_undeliverable(self, number: str) -> None:
        """Leave a delayed or timer message that can only be quarantined."""
        kept, chance = self.kept, self.chance
        targets = [{"REAL_TOPIC": "a/b", "REAL_QID": "0"}, {"REAL_TOPIC": "Level", "REAL_QID": "9" * 100}, {}]
        if chance.random() < 0.5:
            kept.append_undeliverable(names.SCHEDULE_TOPIC, f"p{number}", DELAY="1", **chance.choice(targets))
        else:
            out_ms = str(self.clock.now_ms + chance.choice([0, 1_000, 3_600_000]))
            kept.append_undeliverable(names.TIMER_TOPIC, f"p{number}", TIMER_OUT_MS=out_ms, **chance.choice(targets))

    def send_and_send_back(self, number: str) -> None:
        kept = self.kept
        kept.send("Retried", f"r{number}")
        kept.send_back(f"r{number}", kept.last_in("Retried"), 0, self.chance.choice([0, 0, 1, 2]))

    def end_some_half(self, _: str) -> None:
        kept, chance = self.kept, self.chance
        pending = [each for each in kept.check.pending(self.clock.now_ms) if chance.random() < 0.5]
        for each in pending[:2]:
            half = kept.store.read_at(each.physical_offset)
            assert half is not None
            self.answer(half.body.decode(), half)

    def answer(self, name: str, half: Message) -> None:
        promise = self.ledger.promises.get(name)
        self.kept.end_half(name, half, commit=promise is not None and promise.will_commit)

    def send_back_again(self, _: str) -> None:
        seen = [message for name, copies in self.kept.seen().items() if name[0] == "r" for message in copies]
        for message in self.chance.sample(seen, min(1, len(seen))):
            self.kept.send_back(message.body.decode(), message.physical_offset, message.reconsume_times, 0)

    def take_one_back(self, _: str) -> None:
        kept = self.kept
        waiting = [each for each in kept.timed.waiting() if each.due_ms > self.clock.now_ms + 1_000]
        for each in self.chance.sample(waiting, min(1, len(waiting))):
            name = bytes.fromhex(each.unique_id.lstrip("0").zfill(len(each.unique_id.lstrip("0")) // 2 * 2)).decode()
            if name in self.ledger.promises and name[0] != "p":
                kept.recall(each, name)

    def ask_producers(self, _: str) -> None:
        kept, chance = self.kept, self.chance
        kept.producer_is_there = chance.random() < 0.7
        kept.dispatch()
        kept.check.check_once(self.clock.now_ms)
        asked, kept.asked = kept.asked, []
        for name, half in asked:
            if chance.random() < 0.5:
                self.answer(name, half)

    def let_time_pass(self, _: str) -> None:
        self.clock.now_ms += self.chance.choice([1, 50, 1_000, 5_000, 120_000, 3_600_000, DAY_MS // 3])
        for _ in range(self.chance.randint(1, 4)):
            self.kept.deliver()


def check_image(disk: CrashDisk, ledger: Ledger, durable_to: int, now_ms: int, chance: Random) -> None:
    """Open what a crash left, let all time pass, and hold it against the ledger."""
    away_ms = chance.choice([0, 0, 1_000, 3_600_000, 9 * DAY_MS])
    kept = KeptAside(disk, Clock(now_ms + away_ms), ledger)
    survived_to = kept.store.written_to
    assert survived_to >= durable_to, f"the log ends at {survived_to}, promised was {durable_to}"
    ledger.forget_from(survived_to)
    committed = {name for name, each in ledger.promises.items() if each.commit_asked}
    too_soon = [name for name in kept.seen() if name[0] == "h" and name not in committed]
    assert not too_soon, f"{too_soon} can be seen and nobody committed"
    open_halves = {name for name, each in ledger.promises.items() if each.is_half and not each.end_asked}
    asked: set[str] = set()
    for _ in range(3_000):
        due_ms = kept.deliver()
        kept.check.check_once(kept.clock.now_ms)
        questions, kept.asked = kept.asked, []
        for name, half in questions:
            asked.add(name)
            kept.end_half(name, half, commit=name in ledger.promises and ledger.promises[name].will_commit)
        kept.dispatch()
        if due_ms is None and kept.clock.now_ms > now_ms + away_ms + DAY_MS and not questions:
            break
        kept.clock.now_ms = max(kept.clock.now_ms + 1, due_ms if due_ms is not None else kept.clock.now_ms + DAY_MS)
    else:
        raise AssertionError("messages wait for ever")
    kept.close()
    hold_against(ledger, kept.seen())
    assert kept.state.max_offset(names.CHECK_MAX_TIME_TOPIC, 0) == 0, "an end did not end the questions"
    assert open_halves <= asked, f"nobody was asked about {sorted(open_halves - asked)}"


def hold_against(ledger: Ledger, seen: dict[str, list[Message]]) -> None:
    """Compare what consumers can see in the end with what was promised."""
    for name, promise in ledger.promises.items():
        copies = seen.get(name, [])
        if promise.taken_back_at is not None:
            assert not copies, f"{name} was taken back, and came"
        elif promise.is_half and not promise.will_commit:
            assert not copies, f"{name} was rolled back, and came"
        else:
            assert copies or promise.recall_asked, f"{name} is lost"
        early = [
            promise.due_ms - each.store_timestamp_ms for each in copies if each.store_timestamp_ms < promise.due_ms
        ]
        assert not early, f"{name} came {early} ms early"


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    yield made
    made.close()


@pytest.mark.parametrize("part", range(4))
def test_what_waits_outlives_power_cuts(
    part: int, scale: int, checked: Counter[str], loop: asyncio.AbstractEventLoop
) -> None:
    """Work, crash, continue, crash; between any two steps check what a crash would leave."""
    for round_number in range(scale):
        seed = 7000 + part + 4 * round_number
        print(f"seed {seed}")
        chance, disk, clock, ledger = Random(seed), CrashDisk(), Clock(), Ledger()
        for life_number in range(LIVES):
            disk, ledger = one_life(seed, life_number, disk, clock, ledger, chance, checked, loop)


def one_life(
    seed: int,
    life_number: int,
    disk: CrashDisk,
    clock: Clock,
    ledger: Ledger,
    chance: Random,
    checked: Counter[str],
    loop: asyncio.AbstractEventLoop,
) -> tuple[CrashDisk, Ledger]:
    """Let a broker work until the power goes; returns the disk that the next one finds, and what is promised still."""
    life = Life(disk, clock, ledger, chance)
    store = life.kept.store
    ledger.forget_from(store.written_to)

    def look() -> None:
        if chance.randrange(25) == 0:
            image_seed = chance.randrange(1 << 30)
            told = f"seed {seed}, life {life_number}, before step {disk.steps}, image {image_seed}"
            try:
                check_image(disk.crash(image_seed), ledger.copy(), store.flushed_to, clock.now_ms, Random(image_seed))
            except (Exception, PowerCut) as error:
                raise AssertionError(f"{told}: {type(error).__name__}: {error}") from error
            checked.update([IMAGES])

    disk.on_step = look
    disk.cut_at = disk.steps + chance.randrange(200, 900)
    try:
        for number in range(STEPS):
            life.one_step(life_number * STEPS + number, loop)
    except PowerCut:
        pass
    disk.on_step = None
    life.kept.close()
    return (disk.kill() if chance.random() < 0.3 else disk.crash(chance.randrange(1 << 30))), ledger
