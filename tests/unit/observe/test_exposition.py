"""Text formats of metrics, read by a strict parser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from orbitlog.observe import metric_table as table
from orbitlog.observe.exposition import OPEN_METRICS, PROMETHEUS, STEP_ROWS, Exposition, TextFormat, format_for
from orbitlog.observe.metric import PAUSE, Collected, Family, Histogram, Row, label_text, single
from tests.support.exposition_parser import parse_exposition

SHARED = 'cluster="c"'


def page(*families: Family, limit: int = 1000, text_format: TextFormat = PROMETHEUS) -> str:
    def read(_: int) -> Iterator[Family]:
        yield from families

    return "".join(Exposition((read,), SHARED, limit).steps(text_format))


def some_families() -> tuple[Family, ...]:
    sizes = Histogram(table.MESSAGE_SIZE.buckets)
    for size in (1, 1024, 1025, 10**9):
        sizes.observe(size)
    return (
        single(table.TARGET_INFO, 1),
        Family(table.MESSAGES_IN, (Row(table.MESSAGES_IN.text("T", "normal", False), 3),)),
        Family(table.MESSAGE_SIZE, (Row(table.MESSAGE_SIZE.text("T", "normal", False), sizes),)),
        single(table.STORAGE_SIZE, 12),
        single(table.DISK_USED_RATIO, 0.25),
    )


def test_text_format_has_names_types_and_labels() -> None:
    families = parse_exposition(page(*some_families()))
    assert families["rocketmq_messages_in_total"].kind == "counter"
    assert families["rocketmq_messages_in_total"].value(topic="T", is_system="false", cluster="c") == 3
    assert families["rocketmq_storage_size_bytes"].label_names == {"cluster", "storage_type", "storage_medium"}
    assert families["target_info"].kind == "gauge" and families["target_info"].label_names == set()
    sizes = families["rocketmq_message_size"]
    assert sizes.bounds == ["1024.0", "4096.0", "524288.0", "1048576.0", "2097152.0", "4194304.0", "+Inf"]
    assert sizes.value(le="1024.0") == 2 and sizes.value(le="4096.0") == 3 and sizes.value(le="+Inf") == 4


def test_open_metrics_names_counters_and_infos_without_suffix() -> None:
    families = parse_exposition(page(*some_families(), text_format=OPEN_METRICS), is_open_metrics=True)
    assert families["rocketmq_messages_in"].kind == "counter"
    assert families["target"].kind == "info"


@pytest.mark.parametrize(
    ("accept", "text_format"),
    [
        ("", PROMETHEUS),
        ("text/plain;version=0.0.4", PROMETHEUS),
        ("application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1", OPEN_METRICS),
    ],
)
def test_format_follows_the_accept_header(accept: str, text_format: TextFormat) -> None:
    assert format_for(accept) is text_format


def test_label_values_are_escaped() -> None:
    assert label_text(("a", "b"), ('x"y\\z\n', True)) == r'a="x\"y\\z\n",b="true"'


def test_family_without_rows_is_left_out() -> None:
    assert page(Family(table.MESSAGES_IN, ())) == ""


def test_family_over_the_limit_states_it() -> None:
    rows = [Row(table.MESSAGES_IN.text(f"T{number}", "normal", False), 2) for number in range(5)]
    families = parse_exposition(page(Family(table.MESSAGES_IN, rows), limit=3))
    stored = families["rocketmq_messages_in_total"]
    assert len(stored.samples) == 4 and stored.value(otel_metric_overflow="true") == 4
    assert families["orbitlog_series_dropped_total"].value(metric="rocketmq_messages_in_total") == 2


def test_gauge_over_the_limit_ends_and_states_it() -> None:
    rows = [Row(table.GROUP_LAG.text(f"g{number}", "T", True), 1) for number in range(5)]
    families = parse_exposition(page(Family(table.GROUP_LAG, rows, dropped=7), limit=3))
    assert len(families["orbitlog_group_lag_messages"].samples) == 3
    assert families["orbitlog_series_dropped_total"].value(metric="orbitlog_group_lag_messages") == 9


def test_pieces_have_a_bounded_number_of_rows_and_readers_may_pause() -> None:
    rows = [Row(table.GROUP_LAG.text(f"g{number}", "T", True), 1) for number in range(3 * STEP_ROWS)]

    def read(_: int) -> Collected:
        yield PAUSE
        yield Family(table.GROUP_LAG, rows)

    pieces = list(Exposition((read,), "", 10_000).steps(PROMETHEUS))
    assert pieces[0] == ""
    assert max(piece.count("\n") for piece in pieces) == STEP_ROWS


def test_table_names_are_unique_and_counters_end_in_total() -> None:
    assert len({metric.name for metric in table.ALL}) == len(table.ALL)
    for metric in table.ALL:
        assert metric.name.startswith(("rocketmq_", "orbitlog_", "process_", "target_"))
        assert (metric.kind == "counter") == metric.name.endswith("_total"), metric.name
        assert metric.help.endswith(".")
