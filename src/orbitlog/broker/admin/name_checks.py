"""Name checks: refuses topic and group names of requests that are invalid, unsafe as a path, or unknown."""

from __future__ import annotations

from orbitlog.broker.tables.topics import Topics
from orbitlog.errors import FormatError, RequestRefused
from orbitlog.formats.names import check_group, check_stored_topic, check_topic
from orbitlog.formats.tables.topic_config import TopicConfig
from orbitlog.wire.codes import ResponseCode


def checked_topic(topic: str) -> str:
    """Return the topic if its name is valid; raise `RequestRefused` otherwise."""
    try:
        return check_topic(topic)
    except FormatError as error:
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, f"invalid topic name: {error.problem}") from None


def checked_stored_topic(topic: str) -> str:
    """Return the topic if a store may contain it; for requests that read, commit or delete."""
    try:
        return check_stored_topic(topic)
    except FormatError as error:
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, f"invalid topic name: {error.problem}") from None


def known_topic(topics: Topics, topic: str) -> TopicConfig:
    """Return the configuration of a topic; raise `RequestRefused` if it does not exist."""
    config = topics.find(topic)
    if config is None:
        raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic[:255]}] not exist")
    return config


def checked_group(group: str) -> str:
    """Return the group if its name is valid; raise `RequestRefused` otherwise."""
    try:
        return check_group(group)
    except FormatError as error:
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, f"invalid group name: {error.problem}") from None
