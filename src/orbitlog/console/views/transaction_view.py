"""Pending transactions: half messages that were neither committed nor rolled back."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from orbitlog.client.admin.inspection import Inspection, PendingTransaction
from orbitlog.console.sources.cluster_source import ClusterSource
from orbitlog.console.sources.server_problems import problem_sentence
from orbitlog.console.views.answers import Answer, Missing, NoQuery
from orbitlog.errors import OrbitlogError
from orbitlog.formats.records import properties as props

READ_MAX = 20_000


class TransactionQuery(NoQuery, kw_only=True):
    """The number of rows."""

    limit: Annotated[int, Meta(ge=1, le=500)] = 100


class TransactionRow(Answer, kw_only=True):
    """One half message. `producers` counts connected producers of its group; None if no broker answers that."""

    msg_id: str
    offset_msg_id: str
    topic: str
    group: str
    broker: str
    age_ms: int
    checks: int
    born: int
    born_host: str
    producers: int | None
    unknown: str | None = None


class TransactionListing(Answer, kw_only=True):
    """Pending transactions, oldest first."""

    items: list[TransactionRow]
    total: int
    complete: bool
    as_of: int
    problems: list[Missing] = msgspec.field(default_factory=list)


async def list_transactions(source: ClusterSource, query: TransactionQuery) -> TransactionListing:
    found: list[PendingTransaction] = []
    is_complete = True
    problems: list[Missing] = []
    try:
        async for pending in Inspection(source.admin).pending_transactions(source.now_ms):
            if len(found) == READ_MAX:
                is_complete = False
                break
            found.append(pending)
    except OrbitlogError as error:
        is_complete = False
        problems.append(Missing(server=f"cluster {source.name}", reason=problem_sentence(error)))
    found.sort(key=lambda pending: -pending.age_ms)
    producers: dict[tuple[str, str], tuple[int | None, str | None]] = {}
    rows = []
    for pending in found[: query.limit]:
        properties = pending.half.properties
        place = properties.get(props.PRODUCER_GROUP, ""), properties.get(props.REAL_TOPIC, "")
        if place not in producers:
            producers[place] = await _producers(source, *place)
        rows.append(_row(pending, *place, *producers[place]))
    return TransactionListing(
        items=rows, total=len(found), complete=is_complete, as_of=source.now_ms, problems=problems
    )


async def _producers(source: ClusterSource, group: str, topic: str) -> tuple[int | None, str | None]:
    try:
        return len((await source.groups.producers(group, topic)).connections), None
    except OrbitlogError as error:
        return None, str(error)


def _row(
    pending: PendingTransaction, group: str, topic: str, producers: int | None, unknown: str | None
) -> TransactionRow:
    half = pending.half
    return TransactionRow(
        msg_id=half.message_id,
        offset_msg_id=half.offset_message_id,
        topic=topic,
        group=group,
        broker=pending.queue.broker_name,
        age_ms=pending.age_ms,
        checks=pending.check_count,
        born=half.stored.born_timestamp_ms,
        born_host=str(half.stored.born_host),
        producers=producers,
        unknown=unknown,
    )
