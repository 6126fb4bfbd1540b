"""What a program hands to the client, checked before anything is sent: a mistake is told in a sentence."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from orbitlog.errors import ClientError
from orbitlog.formats.delay_levels import STANDARD_LEVELS
from orbitlog.formats.records import properties

_TAG_SEPARATOR = "||"


def text(what: str, value: object) -> str:
    """Return what is text."""
    if not isinstance(value, str):
        raise ClientError(f"{what} is text, not {type(value).__name__}: {value!r:.80}")
    return value


def body_bytes(body: object) -> bytes:
    """Return a body as it goes over the wire. Never guesses: `bytes(5)` would be five zeros."""
    if isinstance(body, bytes):
        return body
    if isinstance(body, str):
        try:
            return body.encode()
        except UnicodeEncodeError as error:
            raise ClientError(f"a body that UTF-8 cannot write: {error.reason} at {error.start}") from None
    if isinstance(body, bytearray | memoryview):
        return bytes(body)
    raise ClientError(f"a body is bytes or text, not {type(body).__name__}; write objects as JSON: json.dumps(…)")


def bodies_list(bodies: Iterable[bytes | str]) -> Sequence[bytes | str]:
    """Return the bodies of a batch; one body is not mistaken for many."""
    if isinstance(bodies, str | bytes | bytearray | memoryview):
        raise ClientError("a batch is a list of bodies; `send` sends one")
    return bodies if isinstance(bodies, list | tuple) else list(bodies)


def one_tag(tags: object) -> str:
    """Return the tag of a message; it has one, or none."""
    tag = text("a tag", tags)
    if _TAG_SEPARATOR in tag:
        raise ClientError(f"{tag!r}: a message has one tag; 'A || B' is for consumers")
    return tag


def joined_keys(keys: str | Iterable[str] | None) -> str:
    """Return keys as they are stored: with spaces between them, so that none may hold one."""
    if keys is None or isinstance(keys, str):
        return keys or ""
    if not isinstance(keys, Iterable):
        raise ClientError(f"keys are a list of texts, not {type(keys).__name__}: [str({keys!r:.40})]")
    each = [text("a key", key) for key in keys]
    for key in each:
        if not key or properties.KEY_SEPARATOR in key:
            raise ClientError(f"key {key!r:.80} is empty or holds a space, which is what separates keys")
    return properties.KEY_SEPARATOR.join(each)


def user_properties(given: Mapping[str, str] | None) -> dict[str, str]:
    """Return a copy of a message's properties, all of them text."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise ClientError(f"properties are a mapping of names to texts, not {type(given).__name__}")
    for name, value in given.items():
        text(f"property {text('the name of a property', name)}", value)
    return dict(given)


def delay_level(value: object) -> int:
    """Return a level of delay that all brokers have unless they are told otherwise."""
    if not isinstance(value, int) or not 1 <= value <= STANDARD_LEVELS.max_level:
        raise ClientError(f"delay levels go from 1 to {STANDARD_LEVELS.max_level}")
    return value


def moment(what: str, value: object) -> datetime:
    """Return a moment that everybody understands the same."""
    if not isinstance(value, datetime):
        raise ClientError(f"{what} is a datetime, not {type(value).__name__}")
    if value.tzinfo is None:
        raise ClientError(f"{what} needs a time zone: datetime.now(UTC) + …")
    return value


def seconds(what: str, value: object) -> float:
    """Return a time in seconds that is a number and has an end."""
    number = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
        raise ClientError(f"{what} is a number of seconds, not {value!r:.80}")
    return number


def time_limit(value: float) -> float:
    """Return a time limit in seconds: every wait has one."""
    limit = seconds("timeout", value)
    if limit <= 0:
        raise ClientError(f"a timeout of {limit:g} s leaves no time; give seconds greater than 0")
    return limit
