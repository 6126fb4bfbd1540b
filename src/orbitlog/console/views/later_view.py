"""Scheduled messages: a month with the number due each day, the hours of one day, and the messages of a range.

Brokers keep them in system topics, which are read up to a limit; beyond it the counts are lower bounds, and say so.
"""

from __future__ import annotations

import calendar
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from typing import Annotated

import msgspec
from msgspec import Meta

from orbitlog.client.admin.inspection import Inspection, ScheduledMessage
from orbitlog.console.sources.cluster_source import ClusterSource
from orbitlog.console.sources.server_problems import problem_sentence
from orbitlog.console.views.answers import Answer, ConsoleError, Missing, NoQuery
from orbitlog.console.views.message_rows import body_start
from orbitlog.errors import OrbitlogError

READ_MAX = 50_000
_NEXT_MINUTES = 60
_DAY_MS = 86_400_000
_HOUR_MS = 3_600_000


class LaterQuery(NoQuery, kw_only=True):
    """The month and day to show, and the topic."""

    topic: Annotated[str, Meta(max_length=255)] = ""
    month: Annotated[str, Meta(pattern=r"^(\d{4}-\d{2})?$", description="2026-11; empty for this month")] = ""
    day: Annotated[str, Meta(pattern=r"^(\d{4}-\d{2}-\d{2})?$", description="2026-11-18; empty for the next ones")] = ""
    limit: Annotated[int, Meta(ge=1, le=500)] = 100


class CalendarDay(Answer, kw_only=True):
    """One day of the grid; `shade` from 0 to 5 grows with the logarithm of the count."""

    day: str
    number: int
    in_month: bool
    count: int
    shade: int
    is_today: bool


class HourCount(Answer, kw_only=True):
    """Messages due in one hour (UTC) of the chosen day."""

    hour: int
    count: int
    shade: int


class MinuteCount(Answer, kw_only=True):
    """Messages due in one of the next minutes."""

    minute: int
    count: int
    shade: int


class LaterRow(Answer, kw_only=True):
    """One scheduled message; only those for a timestamp can be recalled, not those with a delay level."""

    due: int
    topic: str
    msg_id: str
    offset_msg_id: str
    broker: str
    keys: str
    tags: str | None
    body_length: int | None
    preview: str
    can_recall: bool


class LaterAnswer(Answer, kw_only=True):
    """Scheduled messages; `complete` is false if more exist than are read."""

    topic: str
    month: str
    previous_month: str
    next_month: str
    day: str
    weeks: list[list[CalendarDay]]
    hours: list[HourCount]
    next_hour: list[MinuteCount]
    total: int
    complete: bool
    items: list[LaterRow]
    left_out: int
    as_of: int
    problems: list[Missing] = msgspec.field(default_factory=list)


async def list_later(source: ClusterSource, query: LaterQuery) -> LaterAnswer:
    now_ms = source.now_ms
    waiting, is_complete, problems = await _read(source, query.topic)
    month = _month(query.month, now_ms)
    by_day = Counter(_day_of(message.due_ms) for message in waiting)
    day = _day(query.day)
    chosen = sorted(
        (message for message in waiting if day is None or _day_of(message.due_ms) == day),
        key=lambda message: (message.due_ms, message.message.message_id),
    )
    by_hour = Counter((message.due_ms % _DAY_MS) // _HOUR_MS for message in chosen) if day is not None else Counter()
    most = max(by_hour.values(), default=0)
    minutes = Counter((message.due_ms - now_ms) // 60_000 for message in waiting)
    busiest = max((minutes[minute] for minute in range(_NEXT_MINUTES)), default=0)
    return LaterAnswer(
        topic=query.topic,
        month=f"{month:%Y-%m}",
        previous_month=f"{month - timedelta(days=1):%Y-%m}",
        next_month=f"{month + timedelta(days=31):%Y-%m}",
        day=query.day,
        weeks=_weeks(month, by_day, _day_of(now_ms)),
        hours=[
            HourCount(hour=hour, count=by_hour[hour], shade=_shade(by_hour[hour], most))
            for hour in (range(24) if day is not None else ())
        ],
        next_hour=[
            MinuteCount(minute=minute, count=minutes[minute], shade=_shade(minutes[minute], busiest))
            for minute in range(_NEXT_MINUTES)
        ],
        total=len(waiting),
        complete=is_complete,
        items=[_row(message) for message in chosen[: query.limit]],
        left_out=max(0, len(chosen) - query.limit),
        as_of=now_ms,
        problems=problems,
    )


async def _read(source: ClusterSource, topic: str) -> tuple[list[ScheduledMessage], bool, list[Missing]]:
    waiting: list[ScheduledMessage] = []
    try:
        async for message in Inspection(source.admin).scheduled(source.now_ms, topic or None):
            if len(waiting) == READ_MAX:
                return waiting, False, []
            waiting.append(message)
    except OrbitlogError as error:
        return waiting, False, [Missing(server=f"cluster {source.name}", reason=problem_sentence(error))]
    return waiting, True, []


async def find_scheduled(source: ClusterSource, message_id: str) -> ScheduledMessage:
    """Return a scheduled message by the producer's id or the broker's; raise `ConsoleError` if none waits."""
    async for message in Inspection(source.admin).scheduled(source.now_ms, None):
        if message_id in (message.message.message_id, message.message.offset_message_id):
            return message
    raise ConsoleError(404, "no scheduled message has this id; it may have been delivered")


def _month(text: str, now_ms: int) -> date:
    try:
        return date.fromisoformat(f"{text}-01") if text else _day_of(now_ms).replace(day=1)
    except ValueError:
        raise ConsoleError(400, f"{text!r} is not a month such as 2026-11") from None


def _day(text: str) -> date | None:
    try:
        return date.fromisoformat(text) if text else None
    except ValueError:
        raise ConsoleError(400, f"{text!r} is not a day such as 2026-11-18") from None


def _day_of(timestamp_ms: int) -> date:
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).date()
    except (ValueError, OverflowError, OSError):
        return date.max


def instant_words(timestamp_ms: int) -> str:
    """Return a timestamp as text in UTC."""
    try:
        return f"{datetime.fromtimestamp(timestamp_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        return f"{timestamp_ms} ms"


def _weeks(month: date, by_day: Counter[date], today: date) -> list[list[CalendarDay]]:
    grid = calendar.Calendar().monthdatescalendar(month.year, month.month)
    most = max((by_day[day] for week in grid for day in week), default=0)
    return [
        [
            CalendarDay(
                day=day.isoformat(),
                number=day.day,
                in_month=day.month == month.month,
                count=by_day[day],
                shade=_shade(by_day[day], most),
                is_today=day == today,
            )
            for day in week
        ]
        for week in grid
    ]


def _shade(count: int, most: int) -> int:
    """Return 0 for none, and 1 to 5 by the logarithm of the count."""
    if count == 0 or most == 0:
        return 0
    return 1 + (4 * (count.bit_length() - 1)) // max(1, most.bit_length() - 1) if most > 1 else 5


def _row(scheduled: ScheduledMessage) -> LaterRow:
    message = scheduled.message
    body_length, start = body_start(message)
    return LaterRow(
        due=scheduled.due_ms,
        topic=scheduled.topic,
        msg_id=message.message_id,
        offset_msg_id=message.offset_message_id,
        broker=scheduled.queue.broker_name,
        keys=" ".join(message.keys),
        tags=message.tags,
        body_length=body_length,
        preview=start,
        can_recall=scheduled.recall_handle is not None,
    )
