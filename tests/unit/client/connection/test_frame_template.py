"""A frame by a template equals the frame of the whole command."""

from __future__ import annotations

import pytest

from orbitlog.client.connection.frame_template import FrameTemplate
from orbitlog.wire.command import Command, encode_command


def command(opaque: int, offset: int, count: int, name: str, body: bytes = b"") -> Command:
    return Command(11, opaque, ext_fields={"name": name, "offset": str(offset), "count": str(count)}, body=body)


@pytest.mark.parametrize("name", ["Orders", "100%d%%", "имя\\u0001", "1111111111", "2000000000"])
@pytest.mark.parametrize(("opaque", "offset", "count"), [(1, 0, 32), (2**31 - 1, 2**63 - 1, -1)])
def test_frame_equals_that_of_the_command(name: str, opaque: int, offset: int, count: int) -> None:
    template = FrameTemplate(lambda number: command(number, number, number, name))
    assert template.frame((opaque, offset, count)) == encode_command(command(opaque, offset, count, name))
    parts = [b"first ", memoryview(b"second")]
    framed = template.frame((opaque, offset, count), 12, parts)
    assert framed == encode_command(command(opaque, offset, count, name, b"first second"))
