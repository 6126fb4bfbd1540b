"""Bodies and properties for visitors who may not see them: left out of answers, and not searched."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from orbitlog.console.console_call import Call
from orbitlog.console.views.answers import Answer, ConsoleError
from orbitlog.console.views.journey_view import JourneyAnswer
from orbitlog.console.views.message_rows import MessageBody

HIDDEN = "hidden: viewers of this console see no bodies and properties"
Row = TypeVar("Row", bound=Answer)


class _WithMessages(Protocol):
    items: list[Any]


Listed = TypeVar("Listed", bound=_WithMessages)


async def list_within_rights(call: Call, read: Callable[[], Awaitable[Listed]]) -> Listed:
    """Return the messages that `read` lists, as the visitor may see them; raise `ConsoleError` as below."""
    if call.may_view_bodies:
        return await read()
    refuse_body_search(call.query)
    listing = await read()
    listing.items = without_previews(listing.items)
    return listing


def refuse_body_search(query: Any) -> None:
    """Raise `ConsoleError` with 403 for a filter by content, whose matches would reveal it."""
    if getattr(query, "text", "") or getattr(query, "property", ""):
        raise ConsoleError(403, "viewers of this console may not search in bodies and properties")


def without_previews(rows: Sequence[Row]) -> list[Row]:
    """Return message rows without the start of their bodies."""
    return [msgspec.structs.replace(row, preview=HIDDEN) for row in rows]


def without_body(answer: JourneyAnswer) -> JourneyAnswer:
    """Return one message without its body and properties."""
    [message] = without_previews([answer.detail.message])
    body = MessageBody(
        length=answer.detail.body.length, text=None, json=None, hex="", is_cut=False, problem=None, hidden=HIDDEN
    )
    detail = msgspec.structs.replace(answer.detail, message=message, body=body, properties={})
    return msgspec.structs.replace(answer, detail=detail)
