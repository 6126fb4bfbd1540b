"""Stores of Apache brokers, damaged, repaired by the doctor, and judged by brokers of the same version."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from orbitlog.doctor.repair.store_repair import apply_repair
from orbitlog.formats import names
from orbitlog.formats.derived.timer_checkpoint import decode_timer_checkpoint
from orbitlog.formats.derived.timer_log import TimerLogUnit, scan_timer_log
from orbitlog.formats.records import timer_message
from orbitlog.formats.records.message import Message
from orbitlog.settings.store_settings import StoreSettings
from orbitlog.storefiles.log_walk import LogWalk
from orbitlog.storefiles.store_files import find_store_files
from orbitlog.storefiles.store_inference import infer_geometry
from orbitlog.testing.golden import GoldenStore
from tests.interop import our_reading
from tests.interop.harness.cluster import running_cluster
from tests.interop.harness.packages import ApachePackages
from tests.support.damage_zoo import ZOO

pytestmark = pytest.mark.interop

# What happened to the store, and whether its broker was killed: then Java goes through the log and derives again.
INCIDENTS = [
    ("missing_middle_segment", True),
    ("noise_in_log_queue_and_index", True),
    ("several_records_overwritten", False),
    ("swapped_segments", True),
    ("half_written_topics_without_a_backup", False),
    ("disk_full_while_rolling", True),
    ("missing_segment_and_all_queues", True),
    ("segment_of_another_broker", True),
    ("link_to_nowhere_in_the_place_of_a_segment", False),
    ("queue_of_a_copied_topic", False),
    ("consumer_offsets_out_of_range", False),
    ("segment_end_in_the_middle_of_a_segment", True),
    ("garbage_in_offsets_and_their_backups", False),
    ("everything_at_once", True),
]


def is_asked_for(message: Message) -> bool:
    """Messages of ordinary topics can be pulled by anybody."""
    is_ours = names.is_system_topic(message.topic) or message.topic.startswith(("%", names.LMQ_PREFIX))
    return message.transaction_type.enters_queue and not is_ours


@pytest.mark.parametrize("name,was_killed", INCIDENTS)
@pytest.mark.parametrize("version,golden_name", [("4.9.7", "golden_497"), ("5.5.0", "golden_550_crash")])
def test_apache_broker_serves_a_repaired_store(
    name: str,
    was_killed: bool,
    version: str,
    golden_name: str,
    request: pytest.FixtureRequest,
    packages_of: Callable[[str], ApachePackages],
    tmp_path: Path,
) -> None:
    golden: GoldenStore = request.getfixturevalue(golden_name)
    root = golden.copy_to(tmp_path / "store").store
    ZOO[name][0](root)
    assert_mended_and_served(root, packages_of(version), tmp_path, was_killed=was_killed)


def test_an_apache_broker_makes_damaged_timer_files_again(
    golden_550_crash: GoldenStore, packages_of: Callable[[str], ApachePackages], tmp_path: Path
) -> None:
    """Java reports a wheel of the wrong size, and ends."""
    root = golden_550_crash.copy_to(tmp_path / "store").store
    timer_log = find_store_files(root).timer_log[0].path.read_bytes()
    units = [one for _, one in scan_timer_log(timer_log) if isinstance(one, TimerLogUnit)]
    read_to_ms = decode_timer_checkpoint((root / "config" / "timercheck").read_bytes()).last_read_time_ms
    waiting = {one.physical_offset for one in units if one.due_time_ms >= read_to_ms}
    assert 0 < len(waiting) < len(units)
    end = max(message.physical_offset for message in timed_messages(root))
    os.truncate(root / "timerwheel", 1000)
    assert_mended_and_served(root, packages_of("5.5.0"), tmp_path, was_killed=True)

    wheel = (root / "timerwheel").read_bytes()
    for unit in units:
        second = unit.due_time_ms // 1000
        assert int.from_bytes(wheel[second % (len(wheel) // 32) * 32 :][:8], "big") == second, unit
    came = [message for message in timed_messages(root) if message.physical_offset > end]
    assert len(came) <= len(waiting), "a delivered message was redelivered"


def timed_messages(root: Path) -> list[Message]:
    """Messages that waited on the wheel, or do, each time that it was put into the log."""
    store = find_store_files(root)
    walk = LogWalk(store.segments, infer_geometry(store, StoreSettings()).segment_bytes)
    return [message for message, _ in walk.records() if timer_message.OUT_MS in message.properties]


def assert_mended_and_served(root: Path, packages: ApachePackages, tmp_path: Path, *, was_killed: bool) -> None:
    """Repair a store, and let a broker serve every message that could be read before."""
    geometry = infer_geometry(find_store_files(root), StoreSettings())
    walk = LogWalk(find_store_files(root).segments, geometry.segment_bytes)
    readable = {message.physical_offset for message, _ in walk.records()}

    mended = apply_repair(root, accept_lost_segments=True)
    assert mended.is_sound and not mended.problems

    (root / "abort").unlink(missing_ok=True)
    if was_killed:
        (root / "abort").touch()
    messages = {
        message.physical_offset: message
        for message in our_reading.read_log(find_store_files(root), geometry)
        if is_asked_for(message)
    }
    end = mended.examination.check.log_end if mended.examination else 0
    queues = sorted({(message.topic, message.queue_id) for message in messages.values()})
    timer_log = find_store_files(root).timer_log
    more = {"mappedFileSizeTimerLog": timer_log[0].size_bytes} if timer_log else {}
    settings = our_reading.broker_settings(geometry, **more)
    with running_cluster(packages, tmp_path, root, settings) as cluster:
        answers = cluster.read([("queue", *queue) for queue in queues])
        cluster.send("After", "plain", "rounds=2")
    ours = [answer for answer in answers if answer.get("commitLogOffset", end) < end]
    assert our_reading.assert_served(messages, ours, our_reading.compat_of(packages)) == len(messages)
    asked = {offset for offset in readable if offset in messages}
    assert asked <= {answer["commitLogOffset"] for answer in ours if answer["answer"] == "message"}
    assert len(asked) > 300
