"""Restricted SQL with the parser of Spark: reading queries pass, whatever could reach beyond the view is refused."""

from __future__ import annotations

from typing import Any

import pytest

from orbitlog.pipeline.sources.broker_stores import name_stores
from orbitlog.pipeline.sources.message_query import query_sql
from orbitlog.pipeline.sources.restricted_sql import RefusedSql, require_reading_sql
from orbitlog.testing.golden import GoldenStore

READING = (
    "select 1",
    "select topic, count(*) from messages group by 1 order by 2 desc limit 5",
    "with t as (select topic from messages) select * from t where topic in (select max(topic) from messages)",
    "select * from messages m join messages n on m.msgId = n.msgId",
    "select topic, row_number() over (partition by topic order by storeTimestamp) from messages",
    "select explode(split(keys, ' ')) from messages",
    "select distinct topic from messages union all select 'x' except select 'y'",
    "select date_trunc('hour', storeTimestamp) h, count(*) c from messages group by all having c > 1",
)
MANY = ", ".join(f"{number} as c{number}" for number in range(60))
REFUSED = (
    "select reflect('java.lang.Runtime', 'getRuntime')",
    "select java_method('java.lang.System', 'getProperty', 'user.home')",
    "select `reflect`('a', 'b')",
    "select system.builtin.reflect('a', 'b')",
    f"select {MANY}, reflect('a', 'b')",
    f"select array({', '.join(map(str, range(60)))}, reflect('a', 'b'))",
    "select * from messages where try_reflect('a', 'b') is null",
    "select * from text.`/etc/passwd`",
    "select 1 where 'x' in (select value from text.`/etc/passwd`)",
    "select (select max(value) from text.`/etc/passwd`)",
    "with t as (select * from text.`/etc/passwd`) select * from t",
    "select * from identifier('csv.`/x`')",
    "select * from other",
    "select transform(topic) using 'cat' as (a) from messages",
    "create table x as select 1",
    "insert overwrite directory '/tmp/x' using csv select 1",
    "drop view messages",
    "add jar '/tmp/x.jar'",
    "set a = b",
    "cache table messages",
    "show tables",
    "execute immediate 'drop view messages'",
)


def test_reading_queries_are_accepted(spark: Any) -> None:
    for sql in READING:
        require_reading_sql(spark, sql, "messages")


@pytest.mark.parametrize("sql", REFUSED)
def test_other_statements_are_refused(spark: Any, sql: str) -> None:
    with pytest.raises(RefusedSql):
        require_reading_sql(spark, sql, "messages")


def test_restricted_query_returns_rows_of_the_store(spark: Any, golden_497: GoldenStore) -> None:
    stores = name_stores([f"store={golden_497.store}"])
    sql = "select topic, count(*) as messages from messages group by topic"
    rows = query_sql(spark, stores, sql, is_restricted=True).collect()
    assert sum(row["messages"] for row in rows) > 0
    with pytest.raises(RefusedSql, match="not allowed"):
        query_sql(spark, stores, "drop view messages", is_restricted=True)
