"""Names as they come from outside: what could do harm as a path, or is no name at all, is refused at the edge."""

from __future__ import annotations

from orbitlog.errors import FormatError, RequestRefused
from orbitlog.formats.names import check_group, check_stored_topic, check_topic
from orbitlog.wire.codes import ResponseCode


def checked_topic(topic: str) -> str:
    """Return the topic if its name is possible."""
    try:
        return check_topic(topic)
    except FormatError as error:
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, f"the topic is not possible: {error.problem}") from None


def checked_stored_topic(topic: str) -> str:
    """Return the topic if a store may contain it; for requests that read, commit or delete."""
    try:
        return check_stored_topic(topic)
    except FormatError as error:
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, f"invalid topic name: {error.problem}") from None


def checked_group(group: str) -> str:
    """Return the group if its name is possible."""
    try:
        return check_group(group)
    except FormatError as error:
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, f"the group is not possible: {error.problem}") from None
