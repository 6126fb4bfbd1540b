"""Dead letters: groups that have some, and the letters of one group with filters."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from orbitlog.client.admin.dead_letters import DeadLetters, LetterFilter
from orbitlog.client.consumer.received import Received
from orbitlog.console.sources.cluster_source import ClusterSource
from orbitlog.console.views.answers import Answer, Listing, Missing, NoQuery, missing_parts
from orbitlog.console.views.group_view import dead_letter_count
from orbitlog.console.views.message_filter import parse_time
from orbitlog.console.views.message_rows import preview
from orbitlog.formats import names
from orbitlog.formats.records import properties as props

LOOKED_AT_MAX = 20_000
_Text = Annotated[str, Meta(max_length=256)]


class LetterQuery(NoQuery, kw_only=True):
    """Criteria of letters; an empty one matches all."""

    tags: _Text = ""
    key: _Text = ""
    message_id: _Text = ""
    text: Annotated[str, Meta(max_length=256, description="Text in the body")] = ""
    since: Annotated[str, Meta(max_length=40, description="-2h, milliseconds, or ISO 8601 in UTC")] = ""
    until: Annotated[str, Meta(max_length=40, description="As `since`")] = ""
    limit: Annotated[int, Meta(ge=1, le=500)] = 100


class LetterGroupRow(Answer, kw_only=True):
    """A group and the number of its dead letters."""

    group: str
    letters: int | None
    last_write: int | None
    unknown: str | None = None


class LetterGroupListing(Listing, kw_only=True):
    """Groups with dead letters, most letters first."""

    items: list[LetterGroupRow]


class LetterRow(Answer, kw_only=True):
    """One dead letter."""

    msg_id: str
    offset_msg_id: str
    broker: str
    queue_id: int
    queue_offset: int
    store_timestamp: int
    origin_topic: str | None
    attempts: int
    tags: str | None
    keys: str
    preview: str


class LetterListing(Answer, kw_only=True):
    """Letters of one group, oldest first at each broker."""

    group: str
    items: list[LetterRow]
    looked_at: int
    complete: bool
    as_of: int
    problems: list[Missing] = msgspec.field(default_factory=list)


async def list_letter_groups(source: ClusterSource) -> LetterGroupListing:
    sample = await source.sample()
    topics = {topic for topic in sample.topic_names if topic.startswith(names.DLQ_PREFIX)}
    await source.with_ends(topics)
    rows = []
    for topic in sorted(topics):
        group = topic.removeprefix(names.DLQ_PREFIX)
        letters, reason = dead_letter_count(sample, group)
        if letters == 0:
            continue
        writes = [
            entry.last_update_timestamp_ms
            for broker in sample.masters
            if (part := sample.ends.get((broker.name, topic))) is not None and part.value is not None
            for entry in part.value.offsets.values()
        ]
        last_write = max(writes, default=0) or None
        rows.append(LetterGroupRow(group=group, letters=letters, last_write=last_write, unknown=reason))
    rows.sort(key=lambda row: (-(row.letters or 0), row.group))
    problems = missing_parts(sample)
    return LetterGroupListing(
        total=len(rows), as_of=sample.as_of_ms, complete=not problems, problems=problems, items=rows
    )


def letter_filter(query: LetterQuery, now_ms: int) -> LetterFilter:
    """Return the filter of a query; raise `ConsoleError` for an invalid time."""
    return LetterFilter(
        tags=query.tags or None,
        key=query.key or None,
        message_id=query.message_id or None,
        text=query.text or None,
        since_ms=parse_time(query.since, now_ms),
        until_ms=parse_time(query.until, now_ms),
    )


async def list_letters(source: ClusterSource, group: str, query: LetterQuery) -> LetterListing:
    wanted = letter_filter(query, source.now_ms)
    rows: list[LetterRow] = []
    looked_at, is_complete = 0, True
    async for letter in DeadLetters(source.admin).letters(group, LetterFilter()):
        looked_at += 1
        if wanted.wants(letter):
            rows.append(letter_row(letter))
        if len(rows) == query.limit or looked_at == LOOKED_AT_MAX:
            is_complete = False
            break
    return LetterListing(group=group, items=rows, looked_at=looked_at, complete=is_complete, as_of=source.now_ms)


def letter_row(letter: Received) -> LetterRow:
    stored = letter.stored
    return LetterRow(
        msg_id=letter.message_id,
        offset_msg_id=letter.offset_message_id,
        broker=letter.broker_name,
        queue_id=stored.queue_id,
        queue_offset=stored.queue_offset,
        store_timestamp=stored.store_timestamp_ms,
        origin_topic=letter.properties.get(props.RETRY_TOPIC) or letter.properties.get("DLQ_ORIGIN_TOPIC"),
        attempts=stored.reconsume_times,
        tags=letter.tags,
        keys=" ".join(letter.keys),
        preview=preview(letter.body),
    )
