"""Request meter: latency by code, response and result."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, cast

import pytest

from orbitlog.broker.metrics.request_meter import FAILED, ONEWAY, SUCCESS, RequestMeter, response_code
from orbitlog.errors import RequestRefused
from orbitlog.remoting.connection import HELD, NO_ANSWER, Connection
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command, encode_command, response_to

NOBODY = cast(Connection, None)
SEND, PULL = RequestCode.SEND_MESSAGE_V2, RequestCode.PULL_MESSAGE


def handled(answer: Any, request: Command) -> RequestMeter:
    """Return a meter that saw one request, whose handler returned or raised `answer`."""
    meter = RequestMeter()

    def handler(_: Connection, __: Command) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    handle = meter.metered_handler(handler)
    if isinstance(answer, Exception):
        with pytest.raises(type(answer)):
            handle(NOBODY, request)
    else:
        handle(NOBODY, request)
    return meter


@pytest.mark.parametrize(
    ("answer", "key"),
    [
        (Command(ResponseCode.SUCCESS), (SEND, 0, False, SUCCESS)),
        (Command(99_999), (SEND, -1, False, SUCCESS)),
        (RequestRefused(ResponseCode.NO_PERMISSION, "no"), (SEND, 16, False, SUCCESS)),
        (ValueError("x"), (SEND, 1, False, FAILED)),
        (NO_ANSWER, (SEND, 0, False, ONEWAY)),
    ],
)
def test_request_answered_at_once_is_counted(answer: Any, key: tuple[object, ...]) -> None:
    assert list(handled(answer, Command(SEND)).latency) == [key]


@pytest.mark.parametrize("answer", [None, HELD])
def test_request_answered_later_is_not_counted_by_the_handler(answer: Any) -> None:
    meter = handled(answer, Command(PULL))
    assert meter.latency == {}
    meter.answered_later(PULL, Command(ResponseCode.PULL_NOT_FOUND), 15.0, True, 1)
    [(key, histogram)] = meter.latency.items()
    assert key == (PULL, 19, True, SUCCESS) and histogram.total == 15_000


def test_awaited_request_counts_as_working_until_it_is_answered() -> None:
    meter = RequestMeter()

    async def answer() -> Command:
        assert meter.working["admin"] == 1
        return Command(ResponseCode.SUCCESS)

    request = Command(RequestCode.UPDATE_AND_CREATE_TOPIC, ext_fields={"topic": "T"})
    asyncio.run(cast(Any, meter.metered_handler(lambda _, __: answer())(NOBODY, request)))
    assert meter.working["admin"] == 0
    assert list(meter.latency) == [(17, 0, False, SUCCESS)]
    assert list(meter.created_topics) == [("success", False)]


def test_unknown_codes_of_clients_are_one_series() -> None:
    meter = RequestMeter()
    for code in range(900_000, 900_100):
        meter.note(code, 3, 0.0)
    assert len(meter.latency) == 1


def test_refused_sends_counted_by_reason() -> None:
    meter = RequestMeter()
    meter.note(SEND, ResponseCode.SERVICE_NOT_AVAILABLE, 0.0, count=2)
    meter.note(SEND, ResponseCode.FLUSH_DISK_TIMEOUT, 0.0)
    meter.note(PULL, ResponseCode.NO_PERMISSION, 0.0)
    assert meter.refused == {"store": 2}


def test_run_of_the_fast_path_counted_by_code() -> None:
    meter = RequestMeter()
    backlog = deque([(0, b'{"code":%d,"x":1}' % code, b"") for code in (310, 37, 310, 320, 310)])

    def take_four(_: Connection, frames: Any, outgoing: list[bytes]) -> None:
        for _ in range(4):
            frames.popleft()

    meter.metered_fast_path(take_four)(NOBODY, cast(Any, backlog), [])
    counts = {key[0]: sum(histogram.counts) for key, histogram in meter.latency.items()}
    assert counts == {310: 2, 37: 1, 320: 1}
    assert sum(meter.send_seconds.counts) == 3


@pytest.mark.parametrize("seconds", [0.0, 0.7])
def test_single_send_of_the_fast_path_counted(seconds: float) -> None:
    now = iter((1.0, 1.0 + seconds))
    meter = RequestMeter(lambda: next(now))
    backlog = deque([(0, b'{"code":310,"x":1}', b"")])
    meter.metered_fast_path(lambda _, frames, __: frames.clear())(NOBODY, cast(Any, backlog), [])
    [(key, histogram)] = meter.latency.items()
    assert key == (SEND, 0, False, SUCCESS) and sum(histogram.counts) == sum(meter.send_seconds.counts) == 1
    assert histogram.total == pytest.approx(seconds * 1000) and meter.send_seconds.total == pytest.approx(seconds)


@pytest.mark.parametrize("code", [ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND])
def test_response_code_of_an_encoded_response(code: ResponseCode) -> None:
    answer = response_to(Command(PULL), code)
    assert response_code(encode_command(answer)) == response_code(answer) == code
