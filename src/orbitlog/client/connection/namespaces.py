"""Names inside a namespace: `shop%Orders` on the wire, `Orders` for the program. Mirrors Java `NamespaceUtil`."""

from __future__ import annotations

from orbitlog.client.connection.checked_input import text
from orbitlog.errors import ClientError, FormatError
from orbitlog.formats import names

SEPARATOR = "%"
_SPECIAL = (names.RETRY_PREFIX, names.DLQ_PREFIX)


def topic_name(topic: str) -> str:
    """Return the topic if a broker accepts its name."""
    try:
        return names.check_topic(text("topic", topic))
    except FormatError as error:
        raise ClientError(f"{error.field}: {error.problem}") from None


def group_name(group: str) -> str:
    """Return the group if a broker accepts its name."""
    try:
        return names.check_group(text("group", group))
    except FormatError as error:
        raise ClientError(f"{error.field}: {error.problem}") from None


def wrapped(namespace: str, name: str) -> str:
    """Put a topic or group into a namespace; names of the system, and those that are inside, stay as they are."""
    if not namespace or not name or names.is_system_topic(name) or name in names.SYSTEM_GROUPS:
        return name
    for prefix in _SPECIAL:
        if name.startswith(prefix):
            return prefix + wrapped(namespace, name.removeprefix(prefix))
    inside = namespace + SEPARATOR
    return name if name.startswith(inside) else inside + name


def unwrapped(namespace: str, name: str) -> str:
    """Return the name as it is known inside the namespace."""
    if not namespace:
        return name
    for prefix in _SPECIAL:
        if name.startswith(prefix):
            return prefix + unwrapped(namespace, name.removeprefix(prefix))
    return name.removeprefix(namespace + SEPARATOR)
