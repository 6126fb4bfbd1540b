"""Names of client versions."""

from __future__ import annotations

import pytest

from orbitlog.wire.client_versions import version_name


@pytest.mark.parametrize(
    ("ordinal", "name"),
    [(513, "v5_5_0"), (479, "v5_3_3"), (409, "v4_9_8"), (413, "v5_0_0"), (512, "v5_5_0_snapshot"), (7, "7")],
)
def test_version_name_as_java_writes_it(ordinal: int, name: str) -> None:
    assert version_name(ordinal) == name
