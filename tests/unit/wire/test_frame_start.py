"""The frame start that `json_frame` writes is the one that `encode_command` and the decoder know."""

from __future__ import annotations

from orbitlog.wire.command import Command, encode_command
from orbitlog.wire.frame_start import FRAME_START_BYTES, json_frame, unpack_frame_start
from orbitlog.wire.frames import FrameDecoder


def test_json_frame_of_a_header_equals_encoded_command() -> None:
    command = Command(310, 7, ext_fields={"a": "P"})
    frame = encode_command(command)
    total, header_bytes = unpack_frame_start(frame)
    assert (total, header_bytes) == (len(frame) - 4, len(frame) - FRAME_START_BYTES)
    assert json_frame(frame[FRAME_START_BYTES:]) == frame
    assert FrameDecoder().receive_data(frame) == [command]
