"""Answers of views: structs with Java-style JSON names, and lists that state what is missing.

`None` stands for an unknown figure and is never replaced by 0; `unknown` gives the reason by field name.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from orbitlog.console.sources.cluster_sample import ClusterSample
from orbitlog.errors import OrbitlogError


class Answer(msgspec.Struct, rename="camel", kw_only=True):
    """Base of every answer."""


class Missing(Answer, kw_only=True):
    """A part that is missing from an answer: its server, and the reason."""

    server: str
    reason: str


class Listing(Answer, kw_only=True):
    """One page of a list; `complete` is false if a server did not answer."""

    total: int
    next: str | None = None
    as_of: int
    complete: bool = True
    problems: list[Missing] = msgspec.field(default_factory=list)


class NoQuery(msgspec.Struct, rename="camel", kw_only=True):
    """No parameters."""


class ListQuery(NoQuery, kw_only=True):
    """Parameters of a list: words to find, a column to sort by (`-lag`: descending), and the page."""

    q: Annotated[str, Meta(max_length=256, description="Words, or column:value, e.g. kind:dlq lag:>1000")] = ""
    sort: Annotated[str, Meta(max_length=40, description="Column to sort by; with - descending")] = ""
    limit: Annotated[int, Meta(ge=1, le=500, description="Rows of one page")] = 50
    after: Annotated[str, Meta(max_length=20, description="`next` of the page before")] = ""
    system: Annotated[bool, Meta(description="Also system names")] = False


class ConsoleError(OrbitlogError):
    """A request that cannot be answered: HTTP status and a sentence with the remedy."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


def missing_parts(sample: ClusterSample) -> list[Missing]:
    """Return the servers of a sample that did not answer completely."""
    problems = [
        Missing(server=f"name server {server.address}", reason=server.brokers.problem)
        for server in sample.name_servers
        if server.brokers.problem is not None
    ]
    for broker in sample.brokers:
        reasons = dict.fromkeys(reason for _, reason in broker.problems)
        if reasons:
            problems.append(Missing(server=f"broker {broker.name} ({broker.address})", reason="; ".join(reasons)))
    return problems
