"""The frame start that `json_frame` writes is the one that `encode_command` and the decoder know."""

from __future__ import annotations

import pytest

from orbitlog.wire.command import Command, encode_command
from orbitlog.wire.frame_start import FRAME_START_BYTES, json_frame, unpack_frame_start
from orbitlog.wire.frames import FrameDecoder


@pytest.mark.parametrize("body", [b"", b"body"])
def test_json_frame_of_a_header_equals_encoded_command(body: bytes) -> None:
    command = Command(310, 7, ext_fields={"a": "P"}, body=body)
    frame = encode_command(command)
    total, header_bytes = unpack_frame_start(frame)
    assert total == len(frame) - 4
    header = frame[FRAME_START_BYTES : FRAME_START_BYTES + header_bytes]
    assert json_frame(header, body) == frame
    assert FrameDecoder().receive_data(frame) == [command]
