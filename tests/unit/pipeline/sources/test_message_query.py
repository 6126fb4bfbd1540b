"""Which columns a query is given: those that its text can mean."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from orbitlog.pipeline.sources.message_columns import MESSAGE_COLUMNS
from orbitlog.pipeline.sources.message_query import columns_named


@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        ("select TOPIC, count(*) from messages group by topic", ["topic"]),
        ("select count( * ) from messages", ["queueOffset"]),
        ("select m.`queueId`, max(storetimestamp) from messages m group by 1", ["queueId", "storeTimestamp"]),
        ("select properties['x'], length(body) from messages", ["body", "properties"]),
        ("select bodyCRC from messages where tags = 'keys'", ["tags", "keys", "bodyCRC"]),
    ],
)
def test_columns_whose_names_stand_in_the_text(sql: str, columns: list[str]) -> None:
    assert columns_named(sql) == columns


@pytest.mark.parametrize("sql", ["select * from messages", "select m.*, 1 from messages m", "select 2*3 from messages"])
def test_a_star_means_every_ordinary_column(sql: str) -> None:
    ordinary = [name for name, column in MESSAGE_COLUMNS.items() if column.by_default]
    assert columns_named(sql) == ordinary
    assert columns_named(f"{sql} where bodyCRC = 1") == [*ordinary, "bodyCRC"]
