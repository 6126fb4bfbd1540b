"""Damage zoo: kinds of damage as they happen to stores, each a function that damages one store.

`ZOO` maps the name to the function and to the kinds of finding of which a check must report at least one.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from orbitlog.formats import names
from orbitlog.formats.records.message import MAGIC_V1, Message
from orbitlog.formats.records.message_scan import MAGIC_BLANK
from orbitlog.settings.store_settings import StoreSettings
from orbitlog.storefiles.log_walk import LogWalk
from orbitlog.storefiles.store_files import OffsetFile, find_store_files
from orbitlog.storefiles.store_inference import infer_geometry

Damage = Callable[[Path], None]
ZOO: dict[str, tuple[Damage, frozenset[str]]] = {}

LOG = ("record", "segment", "queue order")
QUEUES = ("queue unit", "queue file")


def damages(*kinds: str) -> Callable[[Damage], Damage]:
    def enter(function: Damage) -> Damage:
        ZOO[function.__name__] = (function, frozenset(kinds))
        return function

    return enter


def segments(root: Path) -> tuple[OffsetFile, ...]:
    return find_store_files(root).segments


def records(root: Path) -> list[Message]:
    store = find_store_files(root)
    size = infer_geometry(store, StoreSettings()).segment_bytes
    return [message for message, _ in LogWalk(store.segments, size).records()]


def segment_bytes(root: Path) -> int:
    return infer_geometry(find_store_files(root), StoreSettings()).segment_bytes


def patch(root: Path, physical_offset: int, data: bytes) -> None:
    size = segment_bytes(root)
    base = physical_offset // size * size
    patch_file(root / "commitlog" / f"{base:020d}", physical_offset - base, data)


def read_log(root: Path, physical_offset: int, size_bytes: int) -> bytes:
    size = segment_bytes(root)
    base = physical_offset // size * size
    data = (root / "commitlog" / f"{base:020d}").read_bytes()
    return data[physical_offset - base : physical_offset - base + size_bytes]


def patch_file(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def middle(root: Path) -> Message:
    """A message with a body, in its own queue, in the middle of the log."""
    found = [one for one in records(root) if len(one.body) > 20 and not one.sys_flag & 0xC]
    return found[len(found) // 2]


def body_position(message: Message) -> int:
    return message.physical_offset + 88


def a_queue(root: Path, *, files: int = 1) -> list[OffsetFile]:
    return next(list(found) for found in find_store_files(root).queues.values() if len(found) >= files)


def index_file(root: Path) -> Path:
    return find_store_files(root).index_files[0].path


def config(root: Path, name: str) -> Path:
    return root / "config" / name


# The log


@damages(*LOG)
def flipped_bit_in_a_body(root: Path) -> None:
    message = middle(root)
    patch(root, body_position(message) + 3, bytes([message.body[3] ^ 0x10]))


@damages(*LOG)
def flipped_bit_in_a_size(root: Path) -> None:
    message = middle(root)
    patch(root, message.physical_offset, struct.pack(">i", message.size_bytes ^ 0x40))


@damages(*LOG)
def flipped_bit_in_a_magic(root: Path) -> None:
    patch(root, middle(root).physical_offset + 4, struct.pack(">I", MAGIC_V1 ^ 0x1))


@damages(*LOG)
def record_with_a_wrong_physical_offset(root: Path) -> None:
    message = middle(root)
    patch(root, message.physical_offset + 28, struct.pack(">q", message.physical_offset + 1))


@damages(*LOG)
def flipped_bit_in_a_body_length(root: Path) -> None:
    message = middle(root)
    patch(root, message.physical_offset + 84, struct.pack(">i", len(message.body) ^ 0x8))


@damages(*LOG)
def flipped_bit_in_a_topic_length(root: Path) -> None:
    message = middle(root)
    patch(root, body_position(message) + len(message.body), bytes([len(message.topic) ^ 0x1]))


@damages(*LOG)
def page_of_zeros_after_a_power_cut(root: Path) -> None:
    patch(root, middle(root).physical_offset, bytes(512))


@damages(*LOG)
def bad_sector_read_back_as_noise(root: Path) -> None:
    patch(root, middle(root).physical_offset + 10, bytes(range(1, 256)) * 6)


@damages(*LOG)
def several_records_overwritten(root: Path) -> None:
    found = records(root)
    first, last = found[len(found) // 3], found[len(found) // 3 + 5]
    patch(root, first.physical_offset, b"\xee" * (last.physical_offset - first.physical_offset))


@damages(*LOG)
def first_record_damaged(root: Path) -> None:
    patch(root, records(root)[0].physical_offset, b"\xff" * 40)


@damages(*LOG)
def torn_record_at_the_tail(root: Path) -> None:
    last = records(root)[-1]
    patch(root, last.physical_offset + 60, bytes(last.size_bytes - 60))


@damages(*LOG)
def garbage_after_the_tail(root: Path) -> None:
    last = records(root)[-1]
    patch(root, last.physical_offset + last.size_bytes, b"\x01garbage of another file" * 9)


@damages(*LOG)
def torn_record_at_a_roll(root: Path) -> None:
    second = segments(root)[1].base
    last = [one for one in records(root) if one.physical_offset < second][-1]
    patch(root, last.physical_offset + 30, bytes(second - last.physical_offset - 30))


@damages(*LOG)
def segment_end_lost(root: Path) -> None:
    second = segments(root)[1].base
    last = [one for one in records(root) if one.physical_offset < second][-1]
    patch(root, last.physical_offset + last.size_bytes, bytes(second - last.physical_offset - last.size_bytes))


@damages(*LOG)
def segment_end_with_a_wrong_length(root: Path) -> None:
    second = segments(root)[1].base
    last = [one for one in records(root) if one.physical_offset < second][-1]
    patch(root, last.physical_offset + last.size_bytes, struct.pack(">iI", 9, MAGIC_BLANK))


@damages(*LOG)
def missing_middle_segment(root: Path) -> None:
    segments(root)[2].path.unlink()


@damages(*LOG)
def two_missing_segments(root: Path) -> None:
    for segment in segments(root)[1:3]:
        segment.path.unlink()


@damages(*LOG)
def segment_of_zeros(root: Path) -> None:
    segment = segments(root)[2]
    patch_file(segment.path, 0, bytes(segment.size_bytes))


@damages(*LOG)
def truncated_middle_segment(root: Path) -> None:
    segment = segments(root)[2]
    os.truncate(segment.path, segment.size_bytes // 3)


@damages(*LOG)
def empty_middle_segment(root: Path) -> None:
    os.truncate(segments(root)[3].path, 0)


@damages(*LOG)
def truncated_last_segment(root: Path) -> None:
    segment = segments(root)[-1]
    os.truncate(segment.path, segment.size_bytes // 2)


@damages(*LOG)
def segment_too_long(root: Path) -> None:
    with segments(root)[1].path.open("ab") as file:
        file.write(b"appended by a careless script")


@damages(*LOG)
def swapped_segments(root: Path) -> None:
    one, other = segments(root)[1].path, segments(root)[3].path
    aside = one.with_name("aside")
    one.rename(aside)
    other.rename(one)
    aside.rename(other)


@damages(*LOG)
def duplicated_segment(root: Path) -> None:
    found = segments(root)
    shutil.copy2(found[1].path, found[3].path)


@damages(*LOG)
def segment_copied_under_a_wrong_name(root: Path) -> None:
    found = segments(root)
    shutil.copy2(found[1].path, found[1].path.with_name(f"{found[1].base + 100:020d}"))


@damages(*LOG)
def segment_copied_after_the_end(root: Path) -> None:
    found = segments(root)
    shutil.copy2(found[0].path, found[0].path.with_name(f"{found[-1].base + segment_bytes(root):020d}"))


@damages(*LOG)
def flipped_bit_in_a_topic(root: Path) -> None:
    message = middle(root)
    place = body_position(message) + len(message.body) + 1
    patch(root, place, bytes([message.topic.encode()[0] ^ 0x2]))


@damages(*LOG)
def flipped_bit_in_a_queue_offset(root: Path) -> None:
    message = middle(root)
    patch(root, message.physical_offset + 20, struct.pack(">q", message.queue_offset | 1 << 40))


@damages(*LOG)
def queue_offset_out_of_range(root: Path) -> None:
    message = middle(root)
    patch(root, message.physical_offset + 20, struct.pack(">q", message.queue_offset | 1 << 60))


@damages(*LOG)
def message_with_the_rollback_flag(root: Path) -> None:
    message = middle(root)
    patch(root, message.physical_offset + 36, struct.pack(">i", message.sys_flag | 0xC))


@damages("foreign segment")
def file_name_that_is_not_text(root: Path) -> None:
    (root / "commitlog" / os.fsdecode(b"\xff\xfe")).write_bytes(b"x")


@damages(*LOG, *QUEUES)
def wrong_offset_of_the_first_message_of_a_queue(root: Path) -> None:
    first = next(one for one in records(root)[20:] if one.queue_offset == 0 and not one.sys_flag & 0x4)
    patch(root, first.physical_offset + 20, struct.pack(">q", 1 << 60))


@damages(*LOG)
def negative_queue_offset(root: Path) -> None:
    patch(root, middle(root).physical_offset + 20, struct.pack(">q", -5))


@damages(*LOG)
def wrong_queue_offset_without_queues(root: Path) -> None:
    message = middle(root)
    patch(root, message.physical_offset + 20, struct.pack(">q", message.queue_offset + 1000))
    shutil.rmtree(root / "consumequeue")


@damages(*LOG)
def flipped_bit_in_a_queue_id(root: Path) -> None:
    message = middle(root)
    patch(root, message.physical_offset + 12, struct.pack(">i", message.queue_id ^ 0x8))


@damages(*LOG, *QUEUES)
def wrong_first_offset_without_queues(root: Path) -> None:
    wrong_offset_of_the_first_message_of_a_queue(root)
    shutil.rmtree(root / "consumequeue")


@damages("checkpoint")
def noise_in_the_checkpoint(root: Path) -> None:
    patch_file(root / "checkpoint", 0, b"\x3c" * 64)


@damages(*LOG)
def last_segment_under_an_impossible_name(root: Path) -> None:
    last = segments(root)[-1]
    (last.path.with_name(f"{10**9:020d}")).write_bytes(bytes(last.size_bytes))


@damages(*LOG)
def noise_in_the_log_and_a_queue_of_another(root: Path) -> None:
    message = middle(root)
    patch(root, message.physical_offset, b"\x55" * message.size_bytes)
    queue_files_of_two_queues_swapped(root)


# Foreign files


@damages("foreign segment")
def editor_backup_among_segments(root: Path) -> None:
    (root / "commitlog" / "00000000000000000000~").write_bytes(b"x")


@damages("foreign segment")
def core_dump_among_segments(root: Path) -> None:
    (root / "commitlog" / "core.4711").write_bytes(bytes(5000))


@damages("foreign segment")
def temporary_file_among_queue_files(root: Path) -> None:
    (a_queue(root)[0].path.parent / "tmp.swp").write_bytes(b"x")


# Queues


@damages(*QUEUES)
def missing_queue_file(root: Path) -> None:
    a_queue(root, files=2)[0].path.unlink()


@damages(*QUEUES)
def deleted_queue_directory(root: Path) -> None:
    shutil.rmtree(a_queue(root)[0].path.parent)


@damages(*QUEUES)
def deleted_consumequeue(root: Path) -> None:
    shutil.rmtree(root / "consumequeue")


@damages(*QUEUES)
def zero_length_last_queue_file(root: Path) -> None:
    os.truncate(a_queue(root, files=2)[-1].path, 0)


@damages(*QUEUES)
def truncated_queue(root: Path) -> None:
    os.truncate(a_queue(root)[0].path, 30)


@damages(*QUEUES)
def queue_file_too_long(root: Path) -> None:
    with a_queue(root)[0].path.open("ab") as file:
        file.write(bytes(20))


@damages(*QUEUES)
def flipped_bit_in_a_unit(root: Path) -> None:
    patch_file(a_queue(root)[0].path, 7, b"\x7f")


@damages(*QUEUES)
def wrong_size_in_a_unit(root: Path) -> None:
    patch_file(a_queue(root)[0].path, 8, struct.pack(">i", 7))


@damages(*QUEUES)
def wrong_tags_code_in_a_unit(root: Path) -> None:
    patch_file(a_queue(root)[0].path, 12, struct.pack(">q", 4711))


@damages(*QUEUES)
def units_of_zeros_in_the_middle(root: Path) -> None:
    patch_file(a_queue(root, files=2)[0].path, 40, bytes(60))


@damages(*QUEUES)
def units_that_point_past_the_log(root: Path) -> None:
    file = a_queue(root, files=2)[-1]
    used = len(file.path.read_bytes().rstrip(b"\0")) + 19
    patch_file(file.path, used // 20 * 20, struct.pack(">qiq", 1 << 40, 200, 0))


@damages(*QUEUES)
def queue_files_of_two_queues_swapped(root: Path) -> None:
    one, other = [files[0].path for files in find_store_files(root).queues.values() if files][:2]
    aside = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(aside)


# Index and checkpoint


@damages("index")
def deleted_index(root: Path) -> None:
    shutil.rmtree(root / "index")


@damages("index")
def missing_first_index_file(root: Path) -> None:
    index_file(root).unlink()


@damages("index")
def truncated_index_file(root: Path) -> None:
    os.truncate(index_file(root), 100)


@damages("index")
def flipped_bit_in_an_index_slot(root: Path) -> None:
    path = index_file(root)
    data = path.read_bytes()
    place = next(place for place in range(43, 40 + 4 * 100, 4) if data[place])
    patch_file(path, place, bytes([data[place] ^ 0x4]))


@damages("index")
def flipped_bit_in_an_index_header(root: Path) -> None:
    patch_file(index_file(root), 39, b"\x02")


@damages("checkpoint")
def checkpoint_from_the_future(root: Path) -> None:
    patch_file(root / "checkpoint", 0, struct.pack(">qqq", *[4_102_444_800_000] * 3))


@damages("checkpoint")
def deleted_checkpoint(root: Path) -> None:
    (root / "checkpoint").unlink()


@damages("checkpoint")
def truncated_checkpoint(root: Path) -> None:
    os.truncate(root / "checkpoint", 10)


# Config


@damages("config backup in use")
def half_written_topics_with_a_backup(root: Path) -> None:
    path = config(root, "topics.json")
    shutil.copy2(path, config(root, "topics.json.bak"))
    os.truncate(path, path.stat().st_size // 2)


@damages("config")
def half_written_topics_without_a_backup(root: Path) -> None:
    path = config(root, "topics.json")
    config(root, "topics.json.bak").unlink(missing_ok=True)
    os.truncate(path, path.stat().st_size // 2)


@damages("config")
def garbage_in_topics_and_its_backup(root: Path) -> None:
    for name in ("topics.json", "topics.json.bak"):
        config(root, name).write_bytes(b"\0" * 300)


@damages("config")
def deleted_config(root: Path) -> None:
    shutil.rmtree(root / "config")


@damages("config backup in use")
def empty_topics_after_a_full_disk(root: Path) -> None:
    path = config(root, "topics.json")
    shutil.copy2(path, config(root, "topics.json.bak"))
    path.write_bytes(b"")


@damages("topic")
def topic_without_config(root: Path) -> None:
    from orbitlog.formats.tables.topic_config import TOPICS

    path = config(root, "topics.json")
    text = path.read_text()
    topics = TOPICS.decode(text).topics
    queues = {topic for topic, _ in find_store_files(root).queues}
    gone = next(topic for topic in topics if topic in queues and "_" not in topic and "%" not in topic)
    path.write_text(text.replace(f'"{gone}"', '"Another"'))


# Several at once


@damages(*LOG)
def missing_segment_and_all_queues(root: Path) -> None:
    segments(root)[1].path.unlink()
    shutil.rmtree(root / "consumequeue")


@damages(*LOG)
def noise_in_log_queue_and_index(root: Path) -> None:
    bad_sector_read_back_as_noise(root)
    flipped_bit_in_a_unit(root)
    flipped_bit_in_an_index_slot(root)


@damages(*LOG)
def disk_full_while_rolling(root: Path) -> None:
    os.truncate(segments(root)[-1].path, 0)
    os.truncate(a_queue(root, files=2)[-1].path, 0)
    half_written_topics_with_a_backup(root)


# Other damage: failed copies, files of other brokers, numbers out of range


def another_queue(root: Path) -> tuple[OffsetFile, OffsetFile]:
    """The first files of queues of two different topics."""
    found: dict[str, OffsetFile] = {}
    for (topic, _), files in find_store_files(root).queues.items():
        if files:
            found.setdefault(topic, files[0])
    one, other = list(found.values())[:2]
    return one, other


@damages(*LOG)
def segment_of_another_broker(root: Path) -> None:
    """Sound records with other physical offsets: a file of another broker under this name."""
    segment = segments(root)[2]
    size = segment.size_bytes
    data = bytearray(segment.path.read_bytes())
    for message in records(root):
        position = message.physical_offset - segment.base
        if 0 <= position < size:
            struct.pack_into(">q", data, position + 28, message.physical_offset + 7 * size)
    segment.path.write_bytes(data)


@damages(*LOG)
def sparse_copy_with_holes(root: Path) -> None:
    """A copy tool that gave up on bad blocks left zeros of their size."""
    for segment in segments(root)[1:4:2]:
        for page in range(2, 5):
            patch_file(segment.path, page * 4096, bytes(1024))


@damages(*LOG)
def log_written_twice_from_a_page_on(root: Path) -> None:
    """The same bytes again a page further on: records with a right checksum at a wrong place."""
    segment = segments(root)[1]
    data = segment.path.read_bytes()
    patch_file(segment.path, 8192, data[4096:8192])


@damages(*LOG)
def last_segment_cut_and_the_one_before_it_zeroed(root: Path) -> None:
    found = segments(root)
    os.truncate(found[-1].path, 300)
    patch_file(found[-2].path, 0, bytes(found[-2].size_bytes // 2))


@damages(*LOG)
def first_segment_deleted_and_its_queues_kept(root: Path) -> None:
    """Nothing is wrong with a log that begins later, but for one more hole."""
    found = segments(root)
    found[0].path.unlink()
    patch_file(found[2].path, 2000, b"\xaa" * 700)


@damages(*LOG)
def record_that_covers_its_neighbours(root: Path) -> None:
    """A size that reaches to the start of a later record, so that the chain continues as if nothing were wrong."""
    found = records(root)
    one, later = found[len(found) // 2], found[len(found) // 2 + 3]
    if later.physical_offset // segment_bytes(root) != one.physical_offset // segment_bytes(root):
        one, later = found[10], found[13]
    patch(root, one.physical_offset, struct.pack(">i", later.physical_offset - one.physical_offset))


@damages(*LOG)
def every_tenth_body_flipped(root: Path) -> None:
    for message in [one for one in records(root) if one.body][::10]:
        patch(root, body_position(message), bytes([message.body[0] ^ 0xFF]))


@damages(*LOG)
def record_sizes_zero_and_too_large(root: Path) -> None:
    found = records(root)
    patch(root, found[len(found) // 4].physical_offset, struct.pack(">i", 0x7FFFFFFF))
    patch(root, found[len(found) // 2].physical_offset, struct.pack(">i", -1))
    patch(root, found[3 * len(found) // 4].physical_offset, struct.pack(">i", 4))


@damages(*LOG, "foreign segment")
def directory_in_the_place_of_a_segment(root: Path) -> None:
    segment = segments(root)[2]
    segment.path.unlink()
    segment.path.mkdir()


@damages(*LOG, "foreign segment")
def link_to_nowhere_in_the_place_of_a_segment(root: Path) -> None:
    segment = segments(root)[2]
    segment.path.unlink()
    segment.path.symlink_to("gone-with-the-disk")


@damages(*QUEUES)
def queue_files_of_two_topics_swapped(root: Path) -> None:
    one, other = another_queue(root)
    aside = one.path.read_bytes()
    one.path.write_bytes(other.path.read_bytes())
    other.path.write_bytes(aside)


@damages(*QUEUES)
def queue_of_a_copied_topic(root: Path) -> None:
    """Queues copied from another topic: their units point to that topic's messages."""
    topic = another_queue(root)[0].path.parent.parent
    shutil.copytree(topic, topic.with_name("CopyOfATopic"))


@damages(*QUEUES)
def queue_file_under_a_name_in_the_middle_of_another(root: Path) -> None:
    first = a_queue(root)[0]
    shutil.copy2(first.path, first.path.with_name(f"{20:020d}"))


@damages(*QUEUES)
def queue_full_of_noise(root: Path) -> None:
    for file in a_queue(root, files=2):
        file.path.write_bytes(bytes(range(1, 21)) * (file.size_bytes // 20))


@damages(*QUEUES, "foreign segment")
def directory_in_the_place_of_a_queue_file(root: Path) -> None:
    file = a_queue(root)[0]
    file.path.unlink()
    file.path.mkdir()


@damages("index")
def index_header_that_counts_too_many(root: Path) -> None:
    patch_file(index_file(root), 36, struct.pack(">i", 0x7FFFFFF0))


@damages("index")
def index_header_that_counts_too_few(root: Path) -> None:
    patch_file(index_file(root), 36, struct.pack(">i", 2))


@damages("index")
def index_with_circular_links(root: Path) -> None:
    layout = infer_geometry(find_store_files(root), StoreSettings()).index_layout
    for number in range(1, 40):
        patch_file(index_file(root), layout.entry_position(number) + 16, struct.pack(">i", number))


@damages("index")
def index_file_of_another_store(root: Path) -> None:
    path = index_file(root)
    data = bytearray(path.read_bytes())
    struct.pack_into(">qq", data, 16, 1 << 50, (1 << 50) + 1000)
    path.write_bytes(data)


@damages("offset")
def consumer_offsets_out_of_range(root: Path) -> None:
    message = middle(root)
    queues = f"{{0:-17,{message.queue_id}:{1 << 62}}}"
    config(root, "consumerOffset.json").write_text(f'{{"offsetTable":{{"{message.topic}@billing":{queues}}}}}')


@damages("config")
def json_of_another_kind_of_file(root: Path) -> None:
    for name in ("topics.json", "topics.json.bak"):
        config(root, name).write_text('["a", "list"]')


@damages("config", "config backup in use", "topic")
def directory_in_the_place_of_topics(root: Path) -> None:
    config(root, "topics.json").unlink()
    config(root, "topics.json").mkdir()


@damages("checkpoint")
def directory_in_the_place_of_the_checkpoint(root: Path) -> None:
    (root / "checkpoint").unlink()
    (root / "checkpoint").mkdir()


@damages(*QUEUES, "foreign segment")
def pipe_in_the_place_of_a_queue_file(root: Path) -> None:
    """A process that opens it waits forever."""
    path = a_queue(root)[0].path
    path.unlink()
    os.mkfifo(path)


@damages(*QUEUES)
def file_in_the_place_of_all_queues(root: Path) -> None:
    shutil.rmtree(root / "consumequeue")
    (root / "consumequeue").write_bytes(b"redirected here by a careless script")


@damages("config", "foreign segment")
def file_in_the_place_of_config(root: Path) -> None:
    shutil.rmtree(root / "config")
    (root / "config").write_bytes(b"x")


@damages("foreign segment")
def directory_in_the_place_of_abort(root: Path) -> None:
    (root / "abort").unlink(missing_ok=True)
    (root / "abort").mkdir()


@damages(*LOG)
def sparse_last_segment_a_thousand_times_too_long(root: Path) -> None:
    os.truncate(segments(root)[-1].path, 1 << 26)


@damages("offset")
def delay_offset_out_of_range(root: Path) -> None:
    config(root, "delayOffset.json").write_text('{"offsetTable":{1:-5,2:7}}')


@damages(*QUEUES)
def only_the_log_is_left(root: Path) -> None:
    for path in root.iterdir():
        if path.is_dir() and path.name != "commitlog":
            shutil.rmtree(path)
        elif path.is_file():
            path.unlink()


@damages(*LOG)
def holes_in_the_log_and_swapped_queues(root: Path) -> None:
    """Queues that are not whole any more, and files that would give their messages to others."""
    every_tenth_body_flipped(root)
    queue_files_of_two_queues_swapped(root)
    directory_in_the_place_of_a_queue_file(root)


@damages(*LOG)
def everything_at_once(root: Path) -> None:
    bad_sector_read_back_as_noise(root)
    missing_queue_file(root)
    truncated_index_file(root)
    noise_in_the_checkpoint(root)
    half_written_topics_without_a_backup(root)
    core_dump_among_segments(root)


# What hides more than it harms, and numbers that come from nowhere


@damages(*LOG)
def segment_end_in_the_middle_of_a_segment(root: Path) -> None:
    """Eight bytes that make readers skip all that follows in the segment."""
    size, second = segment_bytes(root), segments(root)[1].base
    message = [one for one in records(root) if one.physical_offset >= second][2]
    room = size - message.physical_offset % size
    patch(root, message.physical_offset, struct.pack(">iI", room, MAGIC_BLANK))


@damages(*LOG)
def segment_end_before_the_tail(root: Path) -> None:
    size = segment_bytes(root)
    place = records(root)[-3].physical_offset
    patch(root, place, struct.pack(">iI", size - place % size, MAGIC_BLANK))


@damages(*LOG)
def topic_that_is_not_text(root: Path) -> None:
    message = middle(root)
    patch(root, body_position(message) + len(message.body) + 1, b"\xff" * len(message.topic))


@damages(*LOG)
def segment_under_the_largest_name(root: Path) -> None:
    first = segments(root)[0].path
    shutil.copy2(first, first.with_name(f"{2**63 - 1:020d}"))


@damages(*LOG)
def all_segments_but_the_first_cut_by_a_page(root: Path) -> None:
    """Most files agree on a wrong size; their names do not."""
    for segment in segments(root)[1:]:
        os.truncate(segment.path, segment.size_bytes - 4096)


@damages(*LOG)
def swapped_segments_whose_first_records_are_damaged(root: Path) -> None:
    swapped_segments(root)
    for segment in segments(root)[1:4:2]:
        patch_file(segment.path, 0, b"\xee" * 50)


@damages("checkpoint")
def checkpoint_full_of_ones(root: Path) -> None:
    (root / "checkpoint").write_bytes(b"\xff" * 4096)


@damages("config")
def garbage_in_offsets_and_their_backups(root: Path) -> None:
    for name in ("consumerOffset.json", "delayOffset.json", "subscriptionGroup.json"):
        for suffix in ("", ".bak"):
            config(root, name + suffix).write_bytes(b"\0" * 40)


@damages("config")
def table_of_another_file(root: Path) -> None:
    shutil.copy2(config(root, "topics.json"), config(root, "consumerOffset.json"))
    config(root, "consumerOffset.json.bak").unlink(missing_ok=True)


@damages(*LOG)
def all_segments_restored_one_name_too_late(root: Path) -> None:
    size = segment_bytes(root)
    for segment in reversed(segments(root)):
        segment.path.rename(segment.path.with_name(f"{segment.base + size:020d}"))


@damages(*QUEUES)
def file_in_the_place_of_a_topic(root: Path) -> None:
    topic = a_queue(root)[0].path.parent.parent
    shutil.rmtree(topic)
    topic.write_bytes(b"redirected here by a careless script")


@damages(*QUEUES)
def queue_of_zeros_though_later_messages_were_dispatched(root: Path) -> None:
    for file in a_queue(root, files=2):
        file.path.write_bytes(bytes(file.size_bytes))


# Damage that was once reported as sound, or reported and not repaired


@damages("checkpoint")
def checkpoint_of_zeros(root: Path) -> None:
    patch_file(root / "checkpoint", 0, bytes(4096))


@damages("queue count")
def topic_with_fewer_queues_than_it_has_messages_in(root: Path) -> None:
    """A table of an earlier day, restored over today's: clients get the queues that it contains."""
    from dataclasses import replace

    from orbitlog.formats.compat import COMPAT_5_5
    from orbitlog.formats.tables.topic_config import TOPICS

    path = config(root, "topics.json")
    table = TOPICS.decode(path.read_text())
    used = [one for one in records(root) if one.queue_id > 1 and one.topic in table.topics and one.topic[0].isalpha()]
    topic = next(one.topic for one in used if not one.topic.startswith(("SCHEDULE", "RMQ_", "rmq_")))
    small = replace(table.topics[topic], read_queue_count=1, write_queue_count=1)
    path.write_text(TOPICS.encode(replace(table, topics=dict(table.topics) | {topic: small}), COMPAT_5_5))
    config(root, "topics.json.bak").unlink(missing_ok=True)


@damages("lock")
def directory_in_the_place_of_the_lock(root: Path) -> None:
    (root / "lock").unlink(missing_ok=True)
    (root / "lock").mkdir()
    (root / "lock" / "readme").write_bytes(b"made by a script that wanted a lock of its own")


@damages("lock")
def pipe_in_the_place_of_the_lock(root: Path) -> None:
    (root / "lock").unlink(missing_ok=True)
    os.mkfifo(root / "lock")


@damages("journal")
def file_in_the_place_of_the_doctors_directory(root: Path) -> None:
    (root / ".orbitlog-doctor").write_bytes(b"x")


@damages("journal")
def journal_full_of_garbage(root: Path) -> None:
    place = root / ".orbitlog-doctor" / "000001"
    (place / "kept").mkdir(parents=True)
    (place / "journal.json").write_bytes(b"\0" * 200)


@damages("journal")
def journal_without_progress(root: Path) -> None:
    place = root / ".orbitlog-doctor" / "000001"
    (place / "kept").mkdir(parents=True)
    (place / "journal.json").write_text('{"run": "000001", "title": "a repair", "steps": []}')
    (place / "progress").write_bytes(b"\0\0")


@damages("journal", *LOG)
def garbage_in_log_journal_and_lock(root: Path) -> None:
    bad_sector_read_back_as_noise(root)
    journal_full_of_garbage(root)
    directory_in_the_place_of_the_lock(root)


@damages(*LOG)
def unknown_queue_id_without_queues(root: Path) -> None:
    """Only the gap in its own queue shows where the message belongs."""
    patch(root, middle(root).physical_offset + 12, struct.pack(">i", 0x7FFFFFFF))
    shutil.rmtree(root / "consumequeue")


@damages(*LOG)
def two_records_swapped(root: Path) -> None:
    """Two records of one size, each written where the other belongs."""
    one = middle(root)
    other = next(each for each in records(root) if each.size_bytes == one.size_bytes and each != one)
    data = {each.physical_offset: read_log(root, each.physical_offset, each.size_bytes) for each in (one, other)}
    patch(root, one.physical_offset, data[other.physical_offset])
    patch(root, other.physical_offset, data[one.physical_offset])


@damages(*LOG)
def neighbours_swapped(root: Path) -> None:
    """Two consecutive records of different sizes, in the wrong order."""
    one, other = next(
        (one, other)
        for one, other in pairwise(records(root)[40:])
        if other.physical_offset == one.physical_offset + one.size_bytes and other.size_bytes != one.size_bytes
        if not (one.sys_flag | other.sys_flag) & 0xC
    )
    data = read_log(root, one.physical_offset, one.size_bytes + other.size_bytes)
    patch(root, one.physical_offset, data[one.size_bytes :] + data[: one.size_bytes])


def first_of_segment(root: Path, number: int) -> Message:
    start = segments(root)[number].base
    return next(one for one in records(root) if one.physical_offset >= start)


@damages(*LOG)
def flipped_bit_in_the_offset_of_a_segments_first_record(root: Path) -> None:
    """It makes the segment look like one of another log; the records after it show its true base offset."""
    message = first_of_segment(root, 2)
    patch(root, message.physical_offset + 28, struct.pack(">q", message.physical_offset | 1 << 59))


def transaction_offsets_past_the_end(root: Path) -> None:
    """Pending messages must not be skipped. Not in the zoo: not every store has transactions."""
    cursors = {f"{topic}@{names.TRANSACTION_GROUP}": {"0": 9999} for topic in (names.HALF_TOPIC, names.OP_HALF_TOPIC)}
    config(root, "consumerOffset.json").write_text(json.dumps({"offsetTable": cursors}))


@damages("offset")
def delay_offsets_past_the_end(root: Path) -> None:
    levels = {one.queue_id + 1 for one in records(root) if one.topic == names.SCHEDULE_TOPIC}
    config(root, "delayOffset.json").write_text(json.dumps({"offsetTable": dict.fromkeys(levels, 9999)}))


@damages("index")
def index_header_that_begins_before_the_log(root: Path) -> None:
    patch_file(index_file(root), 16, struct.pack(">q", -1))


@damages(*LOG)
def segment_written_some_bytes_too_late(root: Path) -> None:
    """Every record of it is complete, and each has a wrong physical offset."""
    path = segments(root)[1].path
    data = path.read_bytes()
    path.write_bytes(bytes(1000) + data[:-1000])


@damages(*LOG)
def sector_left_out_by_a_copy(root: Path) -> None:
    """Later records are stored too early, up to the end of the segment."""
    path = segments(root)[1].path
    data = path.read_bytes()
    path.write_bytes(data[:9216] + data[9728:] + bytes(512))


@damages("foreign segment")
def directory_in_the_place_of_the_state_file(root: Path) -> None:
    (root / "orbitlog.state").unlink(missing_ok=True)
    (root / "orbitlog.state").mkdir()


@damages("topic")
def topic_under_the_name_of_another(root: Path) -> None:
    """The key is right, and the entry names another topic: name servers get that one."""
    path = config(root, "topics.json")
    text = path.read_text()
    queues = {topic for (topic, _), files in find_store_files(root).queues.items() if files}
    names_own = next(
        f'"topicName":"{topic}"' for topic in sorted(queues) if f'"topicName":"{topic}"' in text and "_" not in topic
    )
    path.write_text(text.replace(names_own, '"topicName":"Elsewhere"'))
