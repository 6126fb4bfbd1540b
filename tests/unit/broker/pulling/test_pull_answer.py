"""Responses to pulls equal the bytes of the plain encoder."""

from __future__ import annotations

import pytest

from orbitlog.broker.pulling.pull_answer import PullHints, pull_frame
from orbitlog.store.reads.queue_reader import GetResult, GetStatus
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command, Serialization, encode_command, response_to
from orbitlog.wire.consume_headers import PullMessageResponse


@pytest.mark.parametrize("serialization", Serialization)
@pytest.mark.parametrize("status", GetStatus)
@pytest.mark.parametrize(("opaque", "body"), [(0, b""), (2**31 - 1, b"record"), (-(2**31), bytes(range(256)))])
def test_pull_response_equals_that_of_the_plain_encoder(
    serialization: Serialization, status: GetStatus, opaque: int, body: bytes
) -> None:
    request = Command(RequestCode.PULL_MESSAGE, opaque=opaque, serialization=serialization)
    result = GetResult(status, 2**62, 5, 2**62 + 1)
    header = PullMessageResponse(
        suggested_broker_id=5,
        next_queue_offset=2**62,
        min_queue_offset=5,
        max_queue_offset=2**62 + 1,
        topic_sys_flag=3,
        group_sys_flag=0,
    )
    plain = response_to(request, ResponseCode.PULL_NOT_FOUND, status.value, header.to_ext_fields(), body)
    assert pull_frame(request, ResponseCode.PULL_NOT_FOUND, result, body, PullHints(3, 0, 5)) == encode_command(plain)
