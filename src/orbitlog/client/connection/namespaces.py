"""Namespaces: `shop%Orders` on the wire, `Orders` for the caller. Mirrors Java `NamespaceUtil`."""

from __future__ import annotations

from collections.abc import Callable

from orbitlog.client.connection.checked_input import text
from orbitlog.errors import ClientError, FormatError
from orbitlog.formats import names

SEPARATOR = "%"
_SPECIAL = (names.RETRY_PREFIX, names.DLQ_PREFIX)


def topic_name(topic: str) -> str:
    """Return the topic if its name is valid; raise `ClientError` otherwise."""
    return _checked(names.check_topic, text("topic", topic))


def group_name(group: str) -> str:
    """Return the group if its name is valid; raise `ClientError` otherwise."""
    return _checked(names.check_group, text("group", group))


def _checked(check: Callable[[str], str], name: str) -> str:
    try:
        return check(name)
    except FormatError as error:
        raise ClientError(f"{error.field}: {error.problem}") from None


def wrapped(namespace: str, name: str) -> str:
    """Return a topic or group with the namespace prefix; system names and prefixed names are returned unchanged."""
    if not namespace or not name or names.is_system_topic(name) or name in names.SYSTEM_GROUPS:
        return name
    for prefix in _SPECIAL:
        if name.startswith(prefix):
            return prefix + wrapped(namespace, name.removeprefix(prefix))
    full_prefix = namespace + SEPARATOR
    return name if name.startswith(full_prefix) else full_prefix + name


def unwrapped(namespace: str, name: str) -> str:
    """Return the name without the namespace prefix."""
    if not namespace:
        return name
    for prefix in _SPECIAL:
        if name.startswith(prefix):
            return prefix + unwrapped(namespace, name.removeprefix(prefix))
    return name.removeprefix(namespace + SEPARATOR)
