"""Real target: the topic and queue that a delayed, timer or half message is delivered to.

The broker records both in the properties REAL_TOPIC and REAL_QID when it redirects a message to one of its own topics.
A record may also come from a damaged store or another broker, so neither value is trusted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from orbitlog.errors import BadField
from orbitlog.formats import names
from orbitlog.formats.records import properties as props

QUEUE_ID_MAX = 65_535
_SHOWN_CHARACTERS = 40


class RealTarget(NamedTuple):
    """The topic and queue of a message that is stored elsewhere until it is due or committed."""

    topic: str
    queue_id: int


def bounded_number(text: str, highest: int) -> int | None:
    """Return the decimal number in a property if it is in 0 to `highest`, else None; the text may have any length."""
    is_short = len(text) <= len(str(highest))
    if not (is_short and text.isascii() and text.isdigit()):
        return None
    number = int(text)
    return number if number <= highest else None


def real_target(properties: Mapping[str, str]) -> RealTarget:
    """Return where a message is to be delivered; raise a `BadField` if its properties name no valid topic and queue."""
    topic = names.check_stored_topic(properties.get(props.REAL_TOPIC, ""))
    if topic in names.WORKING_TOPICS:
        raise BadField(f"{topic} is one of the broker's own topics", field=f"property {props.REAL_TOPIC}")
    text = properties.get(props.REAL_QUEUE_ID, "")
    queue_id = bounded_number(text, QUEUE_ID_MAX)
    if queue_id is None:
        problem = f"{text[:_SHOWN_CHARACTERS]!r} is not a queue id of 0 to {QUEUE_ID_MAX}"
        raise BadField(problem, field=f"property {props.REAL_QUEUE_ID}")
    return RealTarget(topic, queue_id)
