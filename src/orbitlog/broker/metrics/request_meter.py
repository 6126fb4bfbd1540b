"""Request meter: measures requests from their arrival to their response, for a broker with metrics.

It wraps the handler and the fast path of the listeners. Requests that are answered later report through `Observers`:
those that wait for a flush, long polls, and awaited ones.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from itertools import islice

from orbitlog.broker.metrics.group_names import is_system_topic
from orbitlog.broker.sending.send_templates import RUN_MAX
from orbitlog.errors import RequestRefused
from orbitlog.observe import metric_table as table
from orbitlog.observe.metric import Family, Histogram, Row
from orbitlog.remoting.connection import HELD, NO_ANSWER, Answer, Connection, FastPath, Handler
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command
from orbitlog.wire.frames import Frame

SUCCESS, ONEWAY, FAILED = "success", "oneway", "process_request_failed"
_UNKNOWN = "unknown"
_REQUEST_NAMES = {int(code): code.name.lower() for code in RequestCode}
_RESPONSE_NAMES = {int(code): code.name.lower() for code in ResponseCode}
_SENDS = frozenset((RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE))
# The fast path accepts three codes, at the same place of a header, and their second digits differ.
_FAST_CODES = {ord("1"): 310, ord("2"): 320, ord("7"): 37}
_SINGLE = b"1"
_DIGIT_AT = slice(9, 10)  # not an index: another header may be shorter
_FIRST_BUCKET_S = table.SEND_SECONDS.buckets[0]  # less than a millisecond, the first bucket of Apache's family
_RESPONSE_CODE = re.compile(rb'\{"code":(\d{1,6})')
_HEADER_AT = 8
# Processors of Apache's broker and the requests that each serves; all other requests are `admin`.
PROCESSORS = {
    "send": (*_SENDS, RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.RECALL_MESSAGE),
    "async_put": (),
    "pull": (RequestCode.PULL_MESSAGE,),
    "ack": (RequestCode.ACK_MESSAGE, RequestCode.BATCH_ACK_MESSAGE, RequestCode.CHANGE_MESSAGE_INVISIBLETIME),
    "query_message": (RequestCode.QUERY_MESSAGE, RequestCode.VIEW_MESSAGE_BY_ID),
    "client_manager": (RequestCode.UNREGISTER_CLIENT, RequestCode.CHECK_CLIENT_CONFIG),
    "heartbeat": (RequestCode.HEART_BEAT,),
    "lite_pull": (RequestCode.LITE_PULL_MESSAGE,),
    "transaction": (RequestCode.END_TRANSACTION,),
    "consumer_manager": (
        *(RequestCode.GET_CONSUMER_LIST_BY_GROUP, RequestCode.UPDATE_CONSUMER_OFFSET),
        RequestCode.QUERY_CONSUMER_OFFSET,
    ),
    "admin": (),
    "reply": (RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2),
}
_PROCESSOR_OF = {int(code): name for name, codes in PROCESSORS.items() for code in codes}
_REASONS = {
    ResponseCode.SERVICE_NOT_AVAILABLE: "store",
    ResponseCode.SYSTEM_BUSY: "flow",
    ResponseCode.FLOW_CONTROL: "flow",
    ResponseCode.NO_PERMISSION: "permission",
    ResponseCode.MESSAGE_ILLEGAL: "message",
    ResponseCode.TOPIC_NOT_EXIST: "topic",
    ResponseCode.INVALID_PARAMETER: "limit",
    ResponseCode.GO_AWAY: "stopping",
}
# The message is stored, though not as safely as the producer asked for.
_STORED = frozenset(
    (
        *(ResponseCode.SUCCESS, ResponseCode.FLUSH_DISK_TIMEOUT),
        *(ResponseCode.FLUSH_SLAVE_TIMEOUT, ResponseCode.SLAVE_NOT_AVAILABLE),
    )
)
_CREATE_TOPIC = frozenset((RequestCode.UPDATE_AND_CREATE_TOPIC, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST))
_CREATE_GROUP = frozenset(
    (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST)
)

RpcKey = tuple[int, int, bool, str]


def response_code(answer: Command | bytes) -> int:
    """Return the code of a response, also of one that is encoded already."""
    if isinstance(answer, Command):
        return answer.code
    match = _RESPONSE_CODE.match(answer, _HEADER_AT)
    return int(match[1]) if match else int(ResponseCode.SUCCESS)


class RequestMeter:
    """Latency of requests by code and result, and the requests that are being worked on."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self.latency: dict[RpcKey, Histogram] = {}
        self.send_seconds = Histogram(table.SEND_SECONDS.buckets)
        self.refused: dict[str, int] = {}
        self.working: dict[str, int] = dict.fromkeys(PROCESSORS, 0)
        self.created_topics: dict[tuple[str, bool], Histogram] = {}
        self.created_groups: dict[str, Histogram] = {}

    def note(
        self,
        code: int,
        answer_code: int,
        seconds: float,
        *,
        is_held: bool = False,
        count: int = 1,
        result: str = SUCCESS,
    ) -> None:
        """Count requests that were answered together."""
        if code not in _REQUEST_NAMES:
            code = -1  # clients choose codes freely: all unknown ones are one series
        key = code, answer_code if answer_code in _RESPONSE_NAMES else -1, is_held, result
        self._histogram(key).observe(int(seconds * 1000), count)
        if code in _SENDS:
            self.send_seconds.observe(seconds, count)
            if answer_code not in _STORED:
                reason = _REASONS.get(ResponseCode(key[1]), "other") if key[1] >= 0 else "other"
                self.refused[reason] = self.refused.get(reason, 0) + count

    def _histogram(self, key: RpcKey) -> Histogram:
        histogram = self.latency.get(key)
        if histogram is None:
            histogram = self.latency[key] = Histogram(table.RPC_LATENCY.buckets)
        return histogram

    def answered_later(self, code: int, answer: Command | bytes, seconds: float, is_held: bool, count: int) -> None:
        """Count requests that waited: for a flush, or for a message."""
        self.note(code, response_code(answer), seconds, is_held=is_held, count=count)

    # Wrappers

    def metered_handler(self, handler: Handler) -> Handler:
        """Return a handler that measures every request."""

        def handle(connection: Connection, request: Command) -> Answer | Awaitable[Answer]:
            started, code = self._clock(), request.code
            failure: tuple[int, str] | None = ResponseCode.SYSTEM_ERROR, FAILED
            try:
                answer = handler(connection, request)
                failure = None
            except RequestRefused as error:
                failure = error.code, SUCCESS
                raise
            finally:
                if failure is not None:
                    self._finish(request, started, *failure)
            if isinstance(answer, Command | bytes):
                result = ONEWAY if request.is_oneway else SUCCESS
                self._finish(request, started, response_code(answer), result)
            elif answer is NO_ANSWER or (answer is None and request.is_oneway):
                self.note(code, ResponseCode.SUCCESS, self._clock() - started, result=ONEWAY)
            elif answer is not HELD and answer is not None:
                return self._awaited(request, answer, started)
            return answer

        return handle

    async def _awaited(self, request: Command, pending: Awaitable[Answer], started: float) -> Answer:
        processor = _PROCESSOR_OF.get(request.code, "admin")
        self.working[processor] += 1
        failure: tuple[int, str] | None = ResponseCode.SYSTEM_ERROR, FAILED
        try:
            answer = await pending
            failure = None
        except RequestRefused as error:
            failure = error.code, SUCCESS
            raise
        finally:
            self.working[processor] -= 1
            if failure is not None:
                self._finish(request, started, *failure)
        if isinstance(answer, Command | bytes):
            self._finish(request, started, response_code(answer), SUCCESS)
        return answer

    def _finish(self, request: Command, started: float, answer_code: int, result: str) -> None:
        seconds, code = self._clock() - started, request.code
        self.note(code, answer_code, seconds, result=result)
        status = "success" if answer_code == ResponseCode.SUCCESS else "failure"
        if code in _CREATE_TOPIC:
            is_system = is_system_topic(request.ext_fields.get("topic", ""))
            created = self.created_topics.setdefault((status, is_system), Histogram(table.TOPIC_CREATE_TIME.buckets))
            created.observe(int(seconds * 1000))
        elif code in _CREATE_GROUP:
            created = self.created_groups.setdefault(status, Histogram(table.GROUP_CREATE_TIME.buckets))
            created.observe(int(seconds * 1000))

    def metered_fast_path(self, fast_path: FastPath) -> FastPath:
        """Return a fast path that measures each run of sends: one clock and one bucket for all of them."""
        clock, note_mixed = self._clock, self._note_mixed
        single = self._histogram((int(RequestCode.SEND_MESSAGE_V2), 0, False, SUCCESS))
        seconds_of_sends = self.send_seconds

        def take(connection: Connection, backlog: deque[Frame], outgoing: list[bytes]) -> None:
            started, count = clock(), len(backlog)
            if count == 1:  # a client that waits for each response: no further call
                digits = backlog[0][1][_DIGIT_AT]
                fast_path(connection, backlog, outgoing)
                if backlog:
                    return
                is_single, taken = digits == _SINGLE, 1
            else:
                digits = b"".join([frame[1][_DIGIT_AT] for frame in islice(backlog, RUN_MAX)])
                fast_path(connection, backlog, outgoing)
                taken = count - len(backlog)
                if not taken:
                    return
                is_single = digits.count(_SINGLE) == len(digits)
            seconds = clock() - started
            if is_single and seconds < _FIRST_BUCKET_S:
                # Sends alone: the same as `note`, without a call. A longer run has other requests only before them.
                single.counts[0] += taken
                seconds_of_sends.counts[0] += taken
                seconds_of_sends.total += seconds * taken
            else:
                note_mixed(digits[:taken], taken, seconds)

        return take

    def _note_mixed(self, digits: bytes, taken: int, seconds: float) -> None:
        rest = taken - len(digits)
        for digit in set(digits):
            # A run may be longer than the frames looked at: the rest is like the last of them.
            number = digits.count(digit) + (rest if digit == digits[-1] else 0)
            self.note(_FAST_CODES.get(digit, -1), ResponseCode.SUCCESS, seconds, count=number)

    # Reading

    def read(self, _: int) -> Iterator[Family]:
        """Yield the families of requests."""
        rows = [
            Row(table.RPC_LATENCY.text("remoting", _name(code), _answer_name(answer), is_held, result), histogram)
            for (code, answer, is_held, result), histogram in self.latency.items()
            if any(histogram.counts)
        ]
        yield Family(table.RPC_LATENCY, rows)
        yield Family(table.SEND_SECONDS, (Row("", self.send_seconds),))
        watermarks = [Row(table.PROCESSOR_WATERMARK.text(name), count) for name, count in self.working.items()]
        yield Family(table.PROCESSOR_WATERMARK, watermarks)
        refused = [Row(table.SENDS_REFUSED.text(reason), count) for reason, count in self.refused.items()]
        yield Family(table.SENDS_REFUSED, refused)
        topics = [Row(table.TOPIC_CREATE_TIME.text(*key), created) for key, created in self.created_topics.items()]
        yield Family(table.TOPIC_CREATE_TIME, topics)
        groups = [Row(table.GROUP_CREATE_TIME.text(key), created) for key, created in self.created_groups.items()]
        yield Family(table.GROUP_CREATE_TIME, groups)


def _name(code: int) -> str:
    return _REQUEST_NAMES.get(code, _UNKNOWN)


def _answer_name(code: int) -> str:
    return _RESPONSE_NAMES.get(code, _UNKNOWN)
