"""Names inside a namespace, as Java's `NamespaceUtil` has them."""

from __future__ import annotations

import pytest

from orbitlog.client.connection.namespaces import unwrapped, wrapped


@pytest.mark.parametrize(
    ("namespace", "plain", "inside"),
    [
        ("shop", "Orders", "shop%Orders"),
        ("shop", "%RETRY%billing", "%RETRY%shop%billing"),
        ("shop", "%DLQ%billing", "%DLQ%shop%billing"),
        ("shop", "TBW102", "TBW102"),
        ("shop", "RMQ_SYS_TRACE_TOPIC", "RMQ_SYS_TRACE_TOPIC"),
        ("", "Orders", "Orders"),
        ("", "shop%Orders", "shop%Orders"),
    ],
)
def test_there_and_back(namespace: str, plain: str, inside: str) -> None:
    assert wrapped(namespace, plain) == inside
    assert wrapped(namespace, inside) == inside
    assert unwrapped(namespace, inside) == plain
