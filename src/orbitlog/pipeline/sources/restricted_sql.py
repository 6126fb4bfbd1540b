"""Restricted SQL: accepts queries that only read the view `messages`, and refuses everything else.

Spark's own parser makes the plan. Every node of it must be in a list of reading nodes, so a statement that is not
known here is refused: commands, scripts, other tables, files named as tables, and functions that call Java.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from orbitlog.errors import OrbitlogError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SQL_CHARACTERS_MAX = 20_000
_ALL_FIELDS = 2**31 - 1
_READING_NODES = frozenset(
    (
        *("Aggregate", "CTE", "Deduplicate", "Distinct", "Except", "Filter", "Generate", "GlobalLimit", "Intersect"),
        *("Join", "LateralJoin", "LateralSubquery", "Limit", "LocalLimit", "Offset", "OneRowRelation", "Pivot"),
        *("Project", "Sort", "SubqueryAlias", "Union", "UnresolvedHaving", "UnresolvedInlineTable", "Unpivot"),
        *("UnresolvedRelation", "UnresolvedSubqueryColumnAliases", "UnresolvedWith", "Window", "WithWindowDefinition"),
    )
)
_CUT_LIST = re.compile(r"\.\.\. \d+ more fields")
_NODE = re.compile(r"^[\s:+\-|*]*'?(\w+)")
_RELATION = re.compile(r"UnresolvedRelation \[([^\]]*)\]")
_CTE_NAMES = re.compile(r"\bCTE \[([^\]]*)\]")
_JAVA_CALL = re.compile(r"\b(try_reflect|reflect|java_method)\s*\(", re.IGNORECASE)


class RefusedSql(OrbitlogError):
    """SQL that does more than read the view `messages`."""


def require_reading_sql(spark: SparkSession, sql: str, view: str) -> None:
    """Raise `RefusedSql` unless the text is one query that reads nothing but the view."""
    if len(sql) > SQL_CHARACTERS_MAX:
        raise RefusedSql(f"the query has {len(sql)} characters; the maximum is {SQL_CHARACTERS_MAX}")
    # Long lists of a printed plan are cut by default, which could hide a node.
    spark.conf.set("spark.sql.debug.maxToStringFields", str(_ALL_FIELDS))
    plan = spark._jsparkSession.sessionState().sqlParser().parsePlan(sql)
    require_reading_plan(str(plan.treeString()), view)


def require_reading_plan(tree: str, view: str) -> None:
    """Raise `RefusedSql` unless every node of a printed plan reads, and reads only the view."""
    if _CUT_LIST.search(tree) is not None:
        raise RefusedSql("the query has a list that is too long to be checked")
    for line in tree.splitlines():
        node = _NODE.match(line)
        if node is not None and node[1] not in _READING_NODES:
            raise RefusedSql(f"the console runs only queries over the view {view}; {node[1]} is not allowed")
    named = {name.strip().lower() for names in _CTE_NAMES.findall(tree) for name in names.split(",")}
    for relation in _RELATION.findall(tree):
        if relation.strip().lower() not in {view, *named}:
            raise RefusedSql(f"unknown table {relation[:80]!r}; the only one is {view}")
    call = _JAVA_CALL.search(tree)
    if call is not None:
        raise RefusedSql(f"the function {call[1]} is not allowed")
