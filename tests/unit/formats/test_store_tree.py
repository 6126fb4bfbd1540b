from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import PurePath

import pytest

from orbitlog.errors import BadField, LimitExceeded
from orbitlog.formats import store_tree


@pytest.mark.parametrize(
    ("base", "name"),
    [
        (0, "00000000000000000000"),
        (1073741824, "00000000001073741824"),
        (2**63 - 1, "09223372036854775807"),
    ],
)
def test_offset_names_both_directions(base: int, name: str) -> None:
    assert store_tree.offset_file_name(base) == name
    assert store_tree.parse_offset_file_name(name) == base


@pytest.mark.parametrize("base", [-1, 2**63])
def test_no_file_starts_there(base: int) -> None:
    with pytest.raises(BadField) as caught:
        store_tree.offset_file_name(base)
    assert caught.value.field == "file name"


@pytest.mark.parametrize(
    "name",
    [
        "",
        "0",
        "0000000000000000000",
        "000000000000000000000",
        "0000000000000000000x",
        "-0000000000000000001",
        "0000000000000000000\n",
        "00000000000000000000.tmp",
        "\u0660" * 20,
        "09223372036854775808",
        "99999999999999999999",
    ],
)
def test_names_of_another_kind(name: str) -> None:
    assert store_tree.parse_offset_file_name(name) is None


@pytest.mark.parametrize(
    ("made_at", "name"),
    [
        (datetime(2026, 11, 15, 8, 42, 20, 587_000), "20261115084220587"),
        (datetime(2026, 1, 2, 3, 4, 5, 6_999), "20260102030405006"),
        (datetime(2024, 2, 29), "20240229000000000"),
    ],
)
def test_index_names_both_directions(made_at: datetime, name: str) -> None:
    assert store_tree.index_file_name(made_at) == name
    assert store_tree.parse_index_file_name(name) == made_at.replace(microsecond=made_at.microsecond // 1000 * 1000)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "2026111508422058",
        "202611150842205870",
        "2026111508422058x",
        "20261315084220587",
        "20260229000000000",
        "20261115240000000",
        "00000000000000000",
        "\u0660" * 17,
        "20261115084220587\n",
    ],
)
def test_index_names_of_another_kind(name: str) -> None:
    assert store_tree.parse_index_file_name(name) is None


def test_a_queue_has_a_directory() -> None:
    assert store_tree.queue_directory("Topic", 3) == PurePath("consumequeue/Topic/3")
    assert store_tree.queue_directory("%RETRY%g", -3) == PurePath("consumequeue/%RETRY%g/-3")
    directory = store_tree.queue_directory("Topic", 0, kind=store_tree.BATCH_CONSUMEQUEUE)
    assert directory == PurePath("batchconsumequeue/Topic/0")


@pytest.mark.parametrize("topic", ["", ".", "..", "../x", "/etc", "a/b", "a\\b", "a\0b", "a b", "\u2025"])
def test_no_topic_leads_out_of_the_store(topic: str) -> None:
    with pytest.raises(BadField):
        store_tree.queue_directory(topic, 0)


def test_no_topic_is_too_long_for_a_directory() -> None:
    with pytest.raises(LimitExceeded):
        store_tree.queue_directory("%RETRY%" + "t" * 249, 0)


@pytest.mark.parametrize(
    ("name", "queue_id"),
    [
        ("0", 0),
        ("7", 7),
        ("-3", -3),
        ("2147483647", 2147483647),
        ("-2147483648", -2147483648),
        ("2147483648", None),
        ("-2147483649", None),
        ("9999999999", None),
        ("", None),
        ("-0", None),
        ("00", None),
        ("07", None),
        ("+7", None),
        ("7 ", None),
        ("7\n", None),
        ("x", None),
        ("\u0667", None),
        ("-", None),
    ],
)
def test_queue_ids(name: str, queue_id: int | None) -> None:
    assert store_tree.parse_queue_id(name) == queue_id


def test_index_file_time_is_that_of_the_first_message_and_ascends() -> None:
    at = datetime(2026, 3, 1, 12)
    at_ms = int(at.timestamp() * 1000)
    assert store_tree.index_file_time(at_ms, datetime.min) == at
    assert store_tree.index_file_time(at_ms, at) == at + timedelta(milliseconds=1)
    assert store_tree.index_file_time(at_ms, at + timedelta(days=1)) == at + timedelta(days=1, milliseconds=1)


def test_the_abort_file() -> None:
    assert store_tree.encode_abort(None) == b""
    assert store_tree.encode_abort(4711) == b"4711"


def test_names_are_those_on_disk() -> None:
    assert (store_tree.COMMITLOG, store_tree.CONSUMEQUEUE, store_tree.INDEX) == ("commitlog", "consumequeue", "index")
    assert (store_tree.CHECKPOINT, store_tree.ABORT, store_tree.LOCK) == ("checkpoint", "abort", "lock")
    assert store_tree.SEGMENT_BYTES_DEFAULT == 1073741824
