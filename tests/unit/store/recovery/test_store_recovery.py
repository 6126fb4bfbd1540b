"""Recovery without a valid state file: topics deleted and created again, lost and torn queue files."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from orbitlog.formats.compat import COMPAT_5_5
from orbitlog.formats.derived.derive import DeriveRules
from orbitlog.formats.derived.index_layout import IndexLayout
from orbitlog.formats.derived.queue_entry import ENTRY_BYTES, PRE_BLANK_RAW
from orbitlog.formats.derived.store_state import RECOVERY_FILE, STATE_FILE, RecoveryNote, encode_recovery_note
from orbitlog.formats.names import SCHEDULE_TOPIC
from orbitlog.formats.records.message import decode_message, make_message
from orbitlog.formats.tables.topic_config import TOPICS, DataVersion, TopicConfig, TopicTable
from orbitlog.settings.store_settings import StoreGeometry
from orbitlog.store.dispatch import dispatcher
from orbitlog.store.message_store import MessageStore
from orbitlog.store.reads.key_query import KeyQuery
from orbitlog.store.reads.queue_reader import ReadRequest
from orbitlog.store.reads.store_reader import StoreReader
from orbitlog.store.recovery import queue_survey
from orbitlog.storefiles.store_config import StoreConfig

GEOMETRY = StoreGeometry(segment_bytes=4096, queue_file_bytes=10 * ENTRY_BYTES, index_layout=IndexLayout(50, 200))
CONFIG = StoreConfig(GEOMETRY, DeriveRules())
START_MS = 1_790_000_000_000
Bodies = dict[tuple[str, int], list[str]]


class Life:
    """Writes a store with the engine: sends, deletes, closes."""

    def __init__(self, root: Path, config: StoreConfig = CONFIG) -> None:
        self.root, self.config = root, config
        self.clock = count(START_MS, 5)
        self.topics: set[str] = {"Always"}
        self.bodies: Bodies = {}
        self.store = MessageStore.open(root, config, lambda: next(self.clock))

    def send(self, topic: str, label: str, number: int, queue_id: int = 0, *, size: int = 60) -> Life:
        self.topics.add(topic)
        for at in range(number):
            body = f"{label}-{at}"
            properties = {"KEYS": body, "TAGS": label}
            message = make_message(topic, body.encode().ljust(size), properties=properties, queue_id=queue_id)
            assert self.store.append(message).is_stored
            self.bodies.setdefault((topic, queue_id), []).append(body)
        return self

    def delete(self, topic: str) -> Life:
        while self.store.dispatched_to < self.store.written_to:
            self.store.dispatch_once()
        assert self.store.delete_topics(lambda name: name == topic)
        self.topics.discard(topic)
        self.bodies = {key: bodies for key, bodies in self.bodies.items() if key[0] != topic}
        return self

    def close(self) -> Life:
        """Leave the store as a Java broker does: without our state file, but with topics.json."""
        self.store.close()
        forget_state(self.root, self.topics)
        return self


def forget_state(root: Path, topics: set[str]) -> None:
    (root / STATE_FILE).unlink()
    (root / "config").mkdir(exist_ok=True)
    table = TopicTable({topic: TopicConfig(topic) for topic in topics})
    (root / "config" / TOPICS.name).write_text(TOPICS.encode(table, COMPAT_5_5))


def bodies_in(store: MessageStore | StoreReader) -> Bodies:
    found: Bodies = {}
    for queue in store._queues:
        key, at = (queue.topic, queue.queue_id), queue.min_offset
        while at < queue.max_offset:
            result = store.get(*key, ReadRequest(queue_offset=at, max_count=32))
            messages = [decode_message(record) for record in result.records]
            found.setdefault(key, []).extend(message.body.decode().strip() for message in messages)
            assert result.next_offset > at
            at = result.next_offset
    return found


def derived(root: Path) -> dict[str, bytes]:
    parts = ("consumequeue", "index")
    paths = [path for part in parts for path in (root / part).rglob("*") if path.is_file()]
    return {str(path.relative_to(root)): path.read_bytes() for path in paths}


def queue_files(files: dict[str, bytes]) -> dict[str, bytes]:
    return {path: content for path, content in files.items() if path.startswith("consumequeue")}


@pytest.fixture(params=[False, True], ids=["python", "kernels"], autouse=True)
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    if request.param:
        monkeypatch.setattr(dispatcher, "_BULK_BYTES_MIN", 0)
        monkeypatch.setattr(queue_survey, "KERNEL_BYTES_MIN", 0)
    return bool(request.param)


def check_kept(life: Life) -> None:
    """Opening and closing changes no byte, every message is read, and the next one continues the queue."""
    root, before = life.root, derived(life.root)
    times = {path: path.stat().st_mtime_ns for path in (root / "consumequeue").rglob("*") if path.is_file()}
    with StoreReader.open(root, life.config) as reader:
        assert bodies_in(reader) == life.bodies
    check_recovered(life)
    assert derived(root) == before
    assert {path: path.stat().st_mtime_ns for path in times} == times, "a file that was complete was written to"


def check_recovered(life: Life) -> None:
    root = life.root
    with MessageStore.open(root, life.config, lambda: next(life.clock)) as store:
        assert bodies_in(store) == life.bodies
        assert store.damage == []
    assert not (root / RECOVERY_FILE).exists()
    after = derived(root)
    copy = Path(shutil.copytree(root, root.with_name(root.name + "-next")))
    (copy / STATE_FILE).unlink()
    with MessageStore.open(copy, life.config, lambda: next(life.clock)) as store:
        for key, bodies in life.bodies.items():
            result = store.append(make_message(key[0], b"next", queue_id=key[1]))
            assert result.queue_offset == len(bodies)
    assert derived(root) == after
    shutil.rmtree(copy)


@pytest.mark.parametrize(("old", "new"), [(3, 5), (5, 5), (9, 2), (3, 1), (1, 1), (25, 12), (12, 25)])
def test_recreated_topic_keeps_the_queue_of_its_last_life(tmp_path: Path, old: int, new: int) -> None:
    life = Life(tmp_path / "store").send("T", "old", old).send("Other", "other", 3).delete("T").send("T", "new", new)
    check_kept(life.close())


def test_topic_of_many_lives_in_several_queues_keeps_the_last(tmp_path: Path) -> None:
    life = Life(tmp_path / "store")
    for number in range(5):
        for queue_id in range(3):
            life.send("T", f"life{number}q{queue_id}", 3 + (number * 7 + queue_id) % 11, queue_id, size=200)
            life.send("Other", f"other{number}{queue_id}", 2, queue_id)
        if number < 4:
            life.delete("T")
    assert len(list((life.root / "commitlog").iterdir())) > 5
    check_kept(life.close())


def test_deleted_topic_gets_no_queue(tmp_path: Path) -> None:
    life = Life(tmp_path / "store").send("Gone", "old", 3).send("Kept", "kept", 3).delete("Gone")
    check_kept(life.close())
    assert not list((life.root / "consumequeue" / "Gone").glob("*/*"))
    with MessageStore.open(life.root, CONFIG, lambda: next(life.clock)) as store:
        assert store.append(make_message("Gone", b"new")).queue_offset == 0


def test_deleted_topic_with_the_last_messages_of_the_log_gets_no_queue(tmp_path: Path) -> None:
    check_kept(Life(tmp_path / "store").send("Kept", "kept", 3).send("Gone", "old", 3).delete("Gone").close())


def test_only_topic_that_was_deleted_gets_no_queue(tmp_path: Path) -> None:
    check_kept(Life(tmp_path / "store").send("Gone", "old", 3).delete("Gone").close())


def test_deleted_topic_is_reported(tmp_path: Path) -> None:
    life = Life(tmp_path / "store").send("Gone", "old", 3).send("Kept", "kept", 3).delete("Gone").close()
    with MessageStore.open(life.root, CONFIG, lambda: next(life.clock)) as store:
        assert [notice.sentence.partition(" (")[0] for notice in store.notices] == [
            "3 messages in the CommitLog belong to topics that were deleted"
        ]


def test_queue_without_messages_since_its_topic_was_recreated_stays_empty(tmp_path: Path) -> None:
    life = Life(tmp_path / "store")
    for at in range(3):
        for queue_id in range(4):
            life.send("T", f"old{at}", 1, queue_id)
    life.delete("T").send("T", "new", 2, 1)
    check_kept(life.close())


def test_queue_with_the_last_deleted_message_stays_empty(tmp_path: Path) -> None:
    life = Life(tmp_path / "store")
    for queue_id in range(4):
        life.send("T", "old", 1, queue_id)
    life.delete("T").send("T", "new", 1, 0)
    check_kept(life.close())


@pytest.mark.parametrize("table", ["listed", "missing", "unreadable", "empty"])
def test_lost_queue_is_rebuilt_unless_its_topic_is_known_to_be_deleted(tmp_path: Path, table: str) -> None:
    life = Life(tmp_path / "store").send("T", "some", 15).send("Other", "other", 4).close()
    before = derived(life.root)
    shutil.rmtree(life.root / "consumequeue" / "T")
    path = life.root / "config" / TOPICS.name
    if table == "missing":
        path.unlink()
    elif table == "unreadable":
        path.write_text("{")
    elif table == "empty":
        path.write_text("{}")
    check_recovered(life)
    assert derived(life.root) == before


def test_topic_recreated_without_a_message_since_stays_empty(tmp_path: Path) -> None:
    """topics.json changed after the last message, and its queue went before the broker stopped."""
    life = Life(tmp_path / "store").send("T", "old", 3).send("Other", "other", 3).delete("T")
    life.topics.add("T")
    life.close()
    forget_topic(life.root, life.topics, changed_ms=next(life.clock))
    check_kept(life)


@pytest.mark.parametrize("lost", ["consumequeue/T", "consumequeue/T/0", "consumequeue/T/0/*"])
def test_queue_lost_after_the_broker_stopped_is_rebuilt_though_topics_changed(tmp_path: Path, lost: str) -> None:
    life = Life(tmp_path / "store").send("T", "some", 13).send("Other", "other", 3).close()
    forget_topic(life.root, life.topics, changed_ms=next(life.clock))
    before = derived(life.root)
    age_files(life.root, seconds=0.02)
    for path in list(life.root.glob(lost)):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    check_recovered(life)
    assert derived(life.root) == before


@pytest.mark.parametrize("is_directory_left", [False, True])
def test_store_without_any_queue_gets_all_of_them_back(tmp_path: Path, is_directory_left: bool) -> None:
    life = Life(tmp_path / "store").send("T", "old", 4).delete("T").send("T", "new", 15).send("Unlisted", "some", 4)
    life.close()
    forget_topic(life.root, {"T"})
    before = derived(life.root)
    shutil.rmtree(life.root / "consumequeue")
    if is_directory_left:
        (life.root / "consumequeue").mkdir()
    check_recovered(life)
    assert derived(life.root) == before


def age_files(root: Path, *, seconds: float) -> None:
    """Make every file and directory older, as if time had passed since."""
    for path in [root, *root.rglob("*")]:
        status = path.stat()
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns - int(seconds * 1e9)))


def forget_topic(root: Path, topics: set[str], changed_ms: int = 0) -> None:
    table = TopicTable({topic: TopicConfig(topic) for topic in topics}, DataVersion(1, changed_ms))
    (root / "config" / TOPICS.name).write_text(TOPICS.encode(table, COMPAT_5_5))


def test_system_topic_without_entry_in_the_table_is_rebuilt(tmp_path: Path) -> None:
    life = Life(tmp_path / "store").send(SCHEDULE_TOPIC, "late", 4, 2).send("Other", "other", 4).close()
    forget_topic(life.root, {"Other"})
    shutil.rmtree(life.root / "consumequeue" / SCHEDULE_TOPIC)
    check_recovered(life)


@pytest.mark.parametrize("base", [0, 10, 20])
def test_lost_queue_file_of_the_last_life_is_rebuilt(tmp_path: Path, base: int) -> None:
    life = Life(tmp_path / "store").send("T", "old", 27).delete("T").send("T", "new", 26).close()
    before = derived(life.root)
    (life.root / "consumequeue" / "T" / "0" / f"{base * ENTRY_BYTES:020d}").unlink()
    check_recovered(life)
    assert derived(life.root) == before


@pytest.mark.parametrize("position", range(0, 200, 33))
@pytest.mark.parametrize("how", ["zeros", "flipped", "tail"])
def test_damaged_queue_file_of_the_last_life_is_rebuilt(tmp_path: Path, position: int, how: str) -> None:
    life = Life(tmp_path / "store").send("T", "old", 14).delete("T").send("T", "new", 12).close()
    before = derived(life.root)
    path = life.root / "consumequeue" / "T" / "0" / f"{0:020d}"
    content = bytearray(path.read_bytes())
    if how == "zeros":
        content[position : position + 30] = bytes(len(content[position : position + 30]))
    elif how == "tail":
        content[position:] = bytes(len(content) - position)
    else:
        content[position] ^= 0x41
    path.write_bytes(content)
    check_recovered(life)
    assert derived(life.root) == before


def test_queue_that_mixes_two_lives_gets_the_last(tmp_path: Path) -> None:
    """What an earlier version made of such a store: units of the deleted messages in place of the new ones."""
    root = tmp_path / "store"
    life = Life(root).send("T", "old", 3)
    life.store.close()
    path = root / "consumequeue" / "T" / "0" / f"{0:020d}"
    old_units = path.read_bytes()[: 3 * ENTRY_BYTES]
    life.store = MessageStore.open(root, CONFIG, lambda: next(life.clock))
    life.delete("T").send("T", "new", 5).close()
    before = derived(root)
    path.write_bytes(old_units + path.read_bytes()[3 * ENTRY_BYTES :])
    check_recovered(life)
    assert derived(root) == before


def test_files_of_the_deleted_life_that_came_back_are_replaced(tmp_path: Path) -> None:
    root = tmp_path / "store"
    life = Life(root).send("T", "old", 25)
    life.store.close()
    old = Path(shutil.copytree(root / "consumequeue" / "T", tmp_path / "T"))
    life.store = MessageStore.open(root, CONFIG, lambda: next(life.clock))
    life.delete("T").send("T", "new", 4).close()
    before = derived(root)
    shutil.rmtree(root / "consumequeue" / "T")
    shutil.copytree(old, root / "consumequeue" / "T")
    check_recovered(life)
    assert derived(root) == before


def test_deleted_messages_whose_queue_was_kept_stay(tmp_path: Path) -> None:
    """Files that are consistent with the log are kept, whatever topics.json has."""
    life = Life(tmp_path / "store").send("Unlisted", "some", 5).send("Other", "other", 4).close()
    forget_topic(life.root, {"Other"})
    check_kept(life)


def test_messages_dispatched_after_their_topic_was_deleted_are_all_that_is_kept(tmp_path: Path) -> None:
    """Java creates the queue again for them, with fillers in the place of the deleted units."""
    life = Life(tmp_path / "store").send("Gone", "deleted", 5).send("Gone", "late", 4).send("Other", "other", 4).close()
    forget_topic(life.root, {"Other"})
    path = life.root / "consumequeue" / "Gone" / "0" / f"{0:020d}"
    path.write_bytes(PRE_BLANK_RAW * 5 + path.read_bytes()[5 * ENTRY_BYTES :])
    before = derived(life.root)
    with MessageStore.open(life.root, CONFIG, lambda: next(life.clock)) as store:
        assert bodies_in(store) == {**life.bodies, ("Gone", 0): [f"late-{at}" for at in range(4)]}
        assert store.damage == []
    assert derived(life.root) == before


def test_fillers_in_a_queue_whose_topic_exists_are_replaced_by_units(tmp_path: Path) -> None:
    """A Java broker that lost a queue begins it with fillers for what is before its checkpoint."""
    life = Life(tmp_path / "store").send("T", "some", 9).send("Other", "other", 4).close()
    path = life.root / "consumequeue" / "T" / "0" / f"{0:020d}"
    before = derived(life.root)
    path.write_bytes(PRE_BLANK_RAW * 5 + path.read_bytes()[5 * ENTRY_BYTES :])
    check_recovered(life)
    assert derived(life.root) == before


def test_offsets_assigned_twice_are_kept_as_the_queue_files_have_them(tmp_path: Path) -> None:
    """A Java broker that lost the end of a queue continues where the queue ends."""
    root = tmp_path / "store"
    life = Life(root).send("T", "first", 12)
    life.store.dispatch_once()
    queue = life.store._queues.find("T", 0)
    assert queue is not None
    life.store._appender.next_queue_offsets["T", 0] = queue.max_offset = 7
    life.send("T", "second", 9).close()
    life.bodies["T", 0] = [f"first-{at}" for at in range(7)] + [f"second-{at}" for at in range(9)]
    check_kept(life)
    path = root / "consumequeue" / "T" / "0" / f"{200:020d}"
    before = derived(root)
    (root / STATE_FILE).unlink()
    path.write_bytes(path.read_bytes()[:40].ljust(200, b"\0"))  # its last units are lost a second time
    with MessageStore.open(root, CONFIG, lambda: next(life.clock)) as store:
        assert bodies_in(store) == life.bodies
    assert derived(root) == before


@pytest.mark.parametrize("is_stale", [False, True])
def test_state_that_lost_a_queue_file_follows_the_same_rules(tmp_path: Path, is_stale: bool) -> None:
    life = Life(tmp_path / "store").send("T", "old", 9).send("Gone", "gone", 3).delete("T").delete("Gone")
    life.send("T", "new", 14).send("Kept", "kept", 12)
    life.store.close()
    (life.root / "config").mkdir()
    forget_topic(life.root, life.topics)
    before = derived(life.root)
    (life.root / "consumequeue" / "Kept" / "0" / f"{200:020d}").unlink()
    if is_stale:  # a Java broker wrote another checkpoint
        checkpoint = bytearray((life.root / "checkpoint").read_bytes())
        checkpoint[7] ^= 1
        (life.root / "checkpoint").write_bytes(checkpoint)
    check_recovered(life)
    assert derived(life.root) == before


@pytest.mark.parametrize("is_killed", [False, True], ids=["closed", "killed"])
def test_rebuilt_index_of_a_store_with_a_state_brings_no_deleted_message_back(tmp_path: Path, is_killed: bool) -> None:
    life = Life(tmp_path / "store").send("T", "old", 9).send("Gone", "gone", 3).delete("T").delete("Gone")
    life.send("T", "new", 4).send("Kept", "kept", 12)
    life.store.close()
    before = derived(life.root)
    shutil.rmtree(life.root / "index")
    if is_killed:
        (life.root / "abort").touch()
    check_recovered(life)
    after = derived(life.root)
    assert queue_files(after) == queue_files(before)
    assert [after[path] for path in sorted(after) if "index" in path] == [
        before[path] for path in sorted(before) if "index" in path
    ]


def test_queue_that_an_interrupted_recovery_created_proves_nothing_about_others(tmp_path: Path) -> None:
    """Its file would show that its topic was recreated after the messages of a queue that lost its files as well."""
    life = Life(tmp_path / "store")
    for queue_id in range(3):
        life.send("T", "old", 3, queue_id)
    life.delete("T")
    for queue_id in (1, 0, 2, 1):
        life.send("T", f"new{queue_id}", 2, queue_id)
    life.close()
    before, end = derived(life.root), max(int(path.name) for path in (life.root / "commitlog").iterdir()) + 4096
    shutil.rmtree(life.root / "consumequeue" / "T" / "0")
    (life.root / "abort").touch()
    note = RecoveryNote(end, 0, (("T", 0), ("T", 2)))
    (life.root / RECOVERY_FILE).write_bytes(encode_recovery_note(note))
    check_recovered(life)
    assert derived(life.root) == before


def test_torn_first_unit_of_a_recreated_topic_is_rebuilt(tmp_path: Path) -> None:
    life = Life(tmp_path / "store").send("T", "old", 5).delete("T").send("T", "new", 3).close()
    before = derived(life.root)
    path = life.root / "consumequeue" / "T" / "0" / f"{0:020d}"
    path.write_bytes(path.read_bytes()[:8].ljust(200, b"\0"))
    check_recovered(life)
    assert derived(life.root) == before


@pytest.mark.parametrize("has_state", [False, True])
@pytest.mark.parametrize("number", [0, 1, None], ids=["first", "second", "all"])
def test_index_files_of_another_size_are_rebuilt(tmp_path: Path, number: int | None, has_state: bool) -> None:
    """An operator changed maxHashSlotNum or maxIndexNum; Java's broker creates the next files with the new values."""
    config = StoreConfig(replace(GEOMETRY, index_layout=IndexLayout(50, 12)), DeriveRules())
    life = Life(tmp_path / "store", config).send("T", "new", 40)
    life.store.close()
    if not has_state:
        forget_state(life.root, life.topics)
    before, paths = derived(life.root), sorted((life.root / "index").iterdir())
    assert len(paths) > 3
    for path in paths if number is None else paths[number : number + 1]:
        path.write_bytes(path.read_bytes() + bytes(8))
    with MessageStore.open(life.root, config, lambda: next(life.clock)) as store:
        count = len(paths) if number is None else 1
        assert [
            notice
            for notice in store.notices
            if notice.sentence.startswith(f"{count} index files are damaged or have another size")
        ]
        assert all(len(store.query(KeyQuery("T", f"new-{at}")).records) == 1 for at in range(40))
    after = derived(life.root)
    assert [after[path] for path in sorted(after)] == [before[path] for path in sorted(before)]
    assert not [path for path in after if path.endswith(".aside")]


@pytest.mark.parametrize("is_checkpoint_new", [False, True])
def test_crashed_store_of_a_java_broker_keeps_the_last_life(tmp_path: Path, is_checkpoint_new: bool) -> None:
    """Deleted topics come back only if their last messages are newer than the checkpoint: they may be undispatched."""
    life = Life(tmp_path / "store").send("T", "old", 9).send("Gone", "gone", 3).delete("T").delete("Gone")
    next_ms = next(life.clock) + 10_000
    life.clock = count(next_ms, 5)
    life.send("T", "new", 14).close()
    if not is_checkpoint_new:
        (life.root / "checkpoint").unlink()
        life.bodies["Gone", 0] = [f"gone-{at}" for at in range(3)]
    (life.root / "abort").touch()
    check_recovered(life)


def test_store_whose_first_segments_expired_keeps_the_last_life(tmp_path: Path) -> None:
    life = Life(tmp_path / "store").send("T", "old", 60).send("Other", "other", 30)
    life.delete("T").send("T", "new", 25).close()
    segments = sorted((life.root / "commitlog").iterdir())
    for path in segments[:3]:
        path.unlink()
    before = derived(life.root)
    with MessageStore.open(life.root, CONFIG, lambda: next(life.clock)) as store:
        found = bodies_in(store)
        assert found["T", 0] == life.bodies["T", 0]
        assert 0 < len(found["Other", 0]) < 30 and found["Other", 0][-1] == "other-29"
        assert store.append(make_message("T", b"next")).queue_offset == 25
    assert {path: content for path, content in derived(life.root).items() if "Other" in path} == {
        path: content for path, content in before.items() if "Other" in path
    }


def test_large_log_with_lives_goes_through_the_kernels(tmp_path: Path) -> None:
    geometry = StoreGeometry(1 << 20, 1000 * ENTRY_BYTES, index_layout=IndexLayout(1000, 60_000))
    life = Life(tmp_path / "store", StoreConfig(geometry))
    for number in range(3):
        for queue_id in range(2):
            life.send("T", f"life{number}q{queue_id}", 1500, queue_id, size=500)
        life.send("Kept", f"kept{number}", 500, size=500)
        if number < 2:
            life.delete("T")
    check_kept(life.close())
