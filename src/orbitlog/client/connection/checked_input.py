"""Validation of arguments before a request is sent; each check raises `ClientError` with the value and the rule."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from orbitlog.errors import ClientError
from orbitlog.formats.delay_levels import STANDARD_LEVELS
from orbitlog.formats.records import properties

_TAG_SEPARATOR = "||"


def text(what: str, value: object) -> str:
    """Return the value if it is a str."""
    if not isinstance(value, str):
        raise ClientError(f"{what} must be a str, not {type(value).__name__}: {value!r:.80}")
    return value


def body_bytes(body: object) -> bytes:
    """Return a body as bytes. Integers are rejected: `bytes(5)` would be five zeros."""
    if isinstance(body, bytes):
        return body
    if isinstance(body, str):
        try:
            return body.encode()
        except UnicodeEncodeError as error:
            raise ClientError(f"body is not encodable as UTF-8: {error.reason} at {error.start}") from None
    if isinstance(body, bytearray | memoryview):
        return bytes(body)
    raise ClientError(f"a body must be bytes or str, not {type(body).__name__}; encode objects as JSON: json.dumps(…)")


def bodies_list(bodies: Iterable[bytes | str]) -> Sequence[bytes | str]:
    """Return the bodies of a batch; a single str or bytes is rejected, although it is iterable."""
    if isinstance(bodies, str | bytes | bytearray | memoryview):
        raise ClientError("send_batch needs a list of bodies; use `send` for one")
    return bodies if isinstance(bodies, list | tuple) else list(bodies)


def one_tag(tags: object) -> str:
    """Return the tag of a message, which has at most one."""
    tag = text("a tag", tags)
    if _TAG_SEPARATOR in tag:
        raise ClientError(f"{tag!r}: a message has one tag; 'A || B' is for consumers")
    return tag


def joined_keys(keys: str | Iterable[str] | None) -> str:
    """Return keys as they are stored: separated by spaces, so a key must not contain one."""
    if keys is None or isinstance(keys, str):
        return keys or ""
    if not isinstance(keys, Iterable):
        raise ClientError(f"keys must be a list of str, not {type(keys).__name__}: [str({keys!r:.40})]")
    checked = [text("a key", key) for key in keys]
    for key in checked:
        if not key or properties.KEY_SEPARATOR in key:
            raise ClientError(f"key {key!r:.80} is empty or contains a space, the separator of keys")
    return properties.KEY_SEPARATOR.join(checked)


def user_properties(given: Mapping[str, str] | None) -> dict[str, str]:
    """Return a copy of user properties after checking that names and values are str."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise ClientError(f"properties must be a mapping of str to str, not {type(given).__name__}")
    for name, value in given.items():
        text(f"property {text('a property name', name)}", value)
    return dict(given)


def delay_level(value: object) -> int:
    """Return a delay level of the default configuration of brokers."""
    if not isinstance(value, int) or not 1 <= value <= STANDARD_LEVELS.max_level:
        raise ClientError(f"invalid delay level {value!r:.40}: levels are 1 to {STANDARD_LEVELS.max_level}")
    return value


def aware_datetime(what: str, value: object) -> datetime:
    """Return a datetime with a time zone."""
    if not isinstance(value, datetime):
        raise ClientError(f"{what} must be a datetime, not {type(value).__name__}")
    if value.tzinfo is None:
        raise ClientError(f"{what} needs a time zone: datetime.now(UTC) + …")
    return value


def seconds(what: str, value: object) -> float:
    """Return a finite number of seconds."""
    number = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
        raise ClientError(f"{what} must be a number of seconds, not {value!r:.80}")
    return number


def time_limit(value: float) -> float:
    """Return a time limit in seconds, greater than 0."""
    limit = seconds("timeout", value)
    if limit <= 0:
        raise ClientError(f"invalid timeout {limit:g} s: must be greater than 0")
    return limit
