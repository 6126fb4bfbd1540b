"""Filters of messages: by tag, key, property, text in the body and time."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

from msgspec import Meta

from orbitlog.client.consumer.received import Received
from orbitlog.console.views.answers import ConsoleError, NoQuery
from orbitlog.errors import FormatError

SKIP_MAX = 5000
"""Messages of one millisecond that pages can show."""
_Text = Annotated[str, Meta(max_length=256)]
_SPAN = re.compile(r"-(\d{1,6})(s|m|h|d)")
_UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class FilterQuery(NoQuery, kw_only=True):
    """Criteria; an empty one matches all."""

    tags: _Text = ""
    key: _Text = ""
    property: Annotated[str, Meta(max_length=256, description="name=value, or a name alone")] = ""
    text: Annotated[str, Meta(max_length=256, description="Text in the body")] = ""


class MessageQuery(FilterQuery, kw_only=True):
    """Criteria and the place to read: the newest messages, or those from a time on."""

    since: Annotated[str, Meta(max_length=40, description="-15m, -2h, -1d, a timestamp in ms, or ISO 8601 in UTC")] = ""
    until: Annotated[str, Meta(max_length=40, description="As `since`")] = ""
    broker: Annotated[str, Meta(max_length=256, description="Only queues of this broker")] = ""
    queue: Annotated[int, Meta(ge=-1, le=65535, description="Only this queue; -1: all")] = -1
    offset: Annotated[int, Meta(ge=-1, description="First queue offset, with `queue`; -1: not given")] = -1
    limit: Annotated[int, Meta(ge=1, le=200, description="Messages at most")] = 32
    skip: Annotated[int, Meta(ge=0, le=SKIP_MAX, description="Messages left out first: earlier pages have them")] = 0


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """A compiled filter."""

    query: FilterQuery

    def wants(self, message: Received) -> bool:
        """Return whether a message matches; a body that cannot be inflated matches no text."""
        query = self.query
        if query.tags and message.tags not in [tag.strip() for tag in query.tags.split("||")]:
            return False
        if query.key and query.key not in message.keys:
            return False
        if query.property:
            name, separator, value = query.property.partition("=")
            found = message.properties.get(name)
            if found is None or (separator and found != value):
                return False
        if query.text:
            try:
                return query.text.encode() in message.body
            except FormatError:
                return False
        return True

    @property
    def is_empty(self) -> bool:
        query = self.query
        return not (query.tags or query.key or query.property or query.text)


def parse_time(text: str, now_ms: int) -> int | None:
    """Return a timestamp in milliseconds; None for an empty text; raise `ConsoleError` for an invalid one."""
    if not text:
        return None
    span = _SPAN.fullmatch(text)
    if span is not None:
        return now_ms - int(span[1]) * _UNITS_MS[span[2]]
    if text.isdecimal() and len(text) <= 15:
        return int(text)
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise ConsoleError(400, f"{text!r} is not a time: -15m, -2h, milliseconds, or 2026-11-18T09:00:00") from None
    return int((instant if instant.tzinfo else instant.replace(tzinfo=UTC)).timestamp() * 1000)
