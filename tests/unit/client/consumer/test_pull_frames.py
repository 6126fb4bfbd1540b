"""Pulls by template have the frames of their headers."""

from __future__ import annotations

from dataclasses import replace

from orbitlog.client.consumer.pull_frames import PullFrames
from orbitlog.wire.codes import RequestCode
from orbitlog.wire.command import Command, encode_command
from orbitlog.wire.consume_headers import PullMessageRequest, PullMessageResponse

PULL = PullMessageRequest(
    group="g",
    topic="Orders",
    queue_id=3,
    queue_offset=7,
    message_count_max=32,
    sys_flag=4,
    commit_queue_offset=0,
    suspend_timeout_ms=0,
    subscription="a > '5%d' AND TAGS in ('x')",
    subscription_version=1_700_000_000_000,
    expression_type="SQL92",
)


def test_pulls_by_template_equal_their_headers() -> None:
    frames = PullFrames()
    for opaque in (1, 2**31 - 1):
        for pull in (
            PULL,
            replace(PULL, queue_offset=2**62, message_count_max=1024, commit_queue_offset=9),
            replace(PULL, queue_id=4, sys_flag=7, suspend_timeout_ms=15_000),
            replace(PULL, topic="Other", subscription="*", expression_type="TAG"),
        ):
            command = Command(RequestCode.PULL_MESSAGE, opaque, ext_fields=pull.to_ext_fields())
            assert frames.frame(pull, opaque) == encode_command(command)


def test_response_with_and_without_optional_fields() -> None:
    response = PullMessageResponse(0, 5, 1, 9)
    assert PullMessageResponse.from_ext_fields(response.to_ext_fields()) == response
    full = PullMessageResponse(1, 5, 1, 9, 2, 3, 4, 6)
    assert PullMessageResponse.from_ext_fields(full.to_ext_fields()) == full
