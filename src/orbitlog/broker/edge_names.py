"""Names as they come from outside: what could do harm as a path, or is no name at all, is refused at the edge."""

from __future__ import annotations

from orbitlog.errors import FormatError, RequestRefused
from orbitlog.formats.names import check_group, check_topic
from orbitlog.wire.codes import ResponseCode


def checked_topic(topic: str) -> str:
    """Return the topic if its name is possible."""
    try:
        return check_topic(topic)
    except FormatError as error:
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, f"the topic is not possible: {error.problem}") from None


def checked_group(group: str) -> str:
    """Return the group if its name is possible."""
    try:
        return check_group(group)
    except FormatError as error:
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, f"the group is not possible: {error.problem}") from None
