"""Parts of views: selection of rows, lag from samples, hostile text, and vendored files."""

from __future__ import annotations

import hashlib
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest

import orbitlog.console
from orbitlog.console.sources.cluster_sample import BrokerSample, ClusterSample, Part
from orbitlog.console.sources.group_lag import group_lag
from orbitlog.console.views.answers import ConsoleError, ListQuery
from orbitlog.console.views.list_selection import select
from orbitlog.console.web.shown_text import shown_age, shown_duration, shown_size, visible
from orbitlog.formats.message_queue import MessageQueue
from orbitlog.formats.tables.offset_tables import TopicGroup
from orbitlog.wire.bodies.queue_bodies import TopicOffset, TopicStats

VENDOR = Path(orbitlog.console.__path__[0]) / "static" / "vendor"


class Row(NamedTuple):
    """A row of a test."""

    name: str
    lag_ms: int | None


ROWS = [Row("Beta", 3), Row("alpha", None), Row("gamma", 20)]


def names(**query: object) -> list[str]:
    return [row.name for row in select(ROWS, ListQuery(**query), ("name", "lagMs"), "name").rows]  # type: ignore[arg-type]


def test_rows_are_sorted_with_unknown_values_last() -> None:
    assert names() == ["alpha", "Beta", "gamma"]
    assert names(sort="-lagMs") == ["gamma", "Beta", "alpha"]
    assert names(sort="lagMs") == ["Beta", "gamma", "alpha"]


def test_rows_are_filtered_by_words_and_columns() -> None:
    assert names(q="A") == ["alpha", "Beta", "gamma"]
    assert names(q="ALP") == ["alpha"]
    assert names(q="lagMs:>3") == ["gamma"]
    assert names(q="lagMs:<4 beta") == ["Beta"]
    with pytest.raises(ConsoleError, match="unknown column"):
        names(q="size:3")


def test_pages_continue_where_the_last_one_ended() -> None:
    first = select(ROWS, ListQuery(limit=2), ("name",), "name")
    assert (len(first.rows), first.total, first.next) == (2, 3, "2")
    last = select(ROWS, ListQuery(limit=2, after=first.next or ""), ("name",), "name")
    assert ([row.name for row in last.rows], last.next) == (["gamma"], None)


def sample(ends: dict[int, int] | None, offsets: Part[dict[TopicGroup, dict[int, int]]]) -> ClusterSample:
    broker = BrokerSample("b", "c", 0, "1.2.3.4:5", Part({}, 1), Part({}, 1), Part({}, 1), offsets)
    parts = {}
    if ends is not None:
        stats = {MessageQueue("T", "b", queue_id): TopicOffset(0, end, 0) for queue_id, end in ends.items()}
        parts = {("b", "T"): Part(TopicStats(stats), 1)}
    return ClusterSample(1, (), (broker,), parts)


def test_lag_counts_queues_without_a_commit_from_the_start() -> None:
    offsets = Part({TopicGroup("T", "g"): {0: 4}}, 1)
    assert group_lag(sample({0: 10, 1: 5}, offsets), "g").lag == 11
    assert group_lag(sample({0: 3, 1: 0}, offsets), "g").lag == 0


def test_lag_is_unknown_if_a_part_is_missing() -> None:
    offsets = Part({TopicGroup("T", "g"): {0: 4}}, 1)
    unread = group_lag(sample(None, offsets), "g")
    assert unread.lag is None and unread.reason == "the ends of T were not read yet"
    assert group_lag(sample({0: 10}, Part(None, None, "down")), "g").lag is None
    assert group_lag(sample({0: 10}, offsets), "other").reason == "the group has committed no offset"


@pytest.mark.parametrize(
    ("text", "shown"),
    [("plain", "plain"), ("a\x00b\x1b[2J", "a␀b␛[2J"), ("abc\u202egnp.exe", "abc⟨U+202E⟩gnp.exe"), ("a\nb", "a\nb")],
)
def test_control_characters_and_direction_overrides_are_visible(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_figures_have_units() -> None:
    assert [shown_size(size) for size in (None, 5, 2048, 3 << 30)] == ["\N{EN DASH}", "5 B", "2.0 KiB", "3.0 GiB"]
    assert [shown_duration(ms) for ms in (5, 5000, 600_000, 7_200_000, 864_000_000)] == [
        *("5 ms", "5 s", "10 min", "2 h", "10 d")
    ]
    assert shown_age(None, 5) == "never read"


def test_vendored_files_are_unchanged_and_have_a_licence() -> None:
    listed = tomllib.loads((VENDOR / "vendor.toml").read_text())["files"]
    for entry in listed:
        assert hashlib.sha256((VENDOR / entry["name"]).read_bytes()).hexdigest() == entry["sha256"], entry["name"]
        assert (VENDOR / entry["licence_file"]).read_text().strip()
    expected = {entry["name"] for entry in listed} | {entry["licence_file"] for entry in listed} | {"vendor.toml"}
    assert {path.name for path in VENDOR.iterdir()} == expected
