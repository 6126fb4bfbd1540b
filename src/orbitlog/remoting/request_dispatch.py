"""Request dispatch: calls the handler of each request code, refuses unknown codes at once, lets long requests wait.

A 5.x tool tries which codes a server supports; without a response each try would take its timeout of seconds. Mirrors
Java `NettyRemotingAbstract.processRequestCommand`.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping

from orbitlog.errors import RequestRefused
from orbitlog.remoting.connection import Answer, Connection, Handler
from orbitlog.settings.limits import LONG_REQUESTS, LONG_REQUESTS_PER_ADDRESS, Limits
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command, response_to

log = logging.getLogger(__name__)

LONG_CODES = frozenset(
    (
        RequestCode.QUERY_MESSAGE,
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
        RequestCode.REGISTER_BROKER,
        RequestCode.GET_TOPIC_STATS_INFO,
        RequestCode.GET_CONSUME_STATS,
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        RequestCode.QUERY_CONSUME_TIME_SPAN,
        RequestCode.GET_BROKER_CONSUME_STATS,
        RequestCode.QUERY_ASSIGNMENT,
    )
)
_Waiting = tuple[Connection, asyncio.Future[None]]
DELAYED_SECONDS = 1.0
"""A wait from which on a limit counts as reached: a tool that asks for many topics at once waits for milliseconds."""


class Dispatch:
    """A handler that calls other handlers by request code."""

    def __init__(self, handlers: Mapping[int, Handler]) -> None:
        self._handlers = {int(code): handler for code, handler in handlers.items()}

    def __call__(self, connection: Connection, request: Command) -> Answer | Awaitable[Answer]:
        handler = self._handlers.get(request.code)
        return not_supported(request) if handler is None else handler(connection, request)


def without_administration(handlers: Mapping[int, Handler], server: str, address: str) -> dict[int, Handler]:
    """Return handlers that refuse administrative requests: of a server that other machines reach without credentials.

    `server` and `address` are named in the answer, which Apache's tools print.
    """
    from orbitlog.wire.administrative import is_administrative  # servers on loopback need no table

    remark = (
        f"administrative requests are refused: this {server} listens on {address} without access control; switch it on"
        " (authenticationEnabled, aclEnable), or set allowAnonymous=true to serve them to every client"
    )

    counted = itertools.count(1)

    def refuse(connection: Connection, request: Command) -> Answer:
        # Thinned: a peer that repeats a refused request must not fill the log.
        count = next(counted)
        if count & (count - 1) == 0:
            log.warning("refused administrative request %d of %s (%d so far)", request.code, connection.peer, count)
        return response_to(request, ResponseCode.NO_PERMISSION, remark)

    return {code: refuse if is_administrative(code) else handler for code, handler in handlers.items()}


def warn_of_open_access(server: str, address: str, *, allows_anonymous: bool) -> None:
    """Log what clients on other machines can do without credentials."""
    if allows_anonymous:
        log.warning(
            "%s listens on %s without access control and allowAnonymous=true: every client can read, write, change"
            " and delete",
            *(server, address),
        )
    else:
        log.warning(
            "%s listens on %s without access control: every client can send and consume; administrative requests are"
            " refused until allowAnonymous=true is set",
            *(server, address),
        )


def not_supported(request: Command) -> Command:
    """Return the response to a code that is unknown or switched off."""
    remark = f" request type {request.code} not supported"
    return response_to(request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)


async def refuse_later(error: RequestRefused, delay_s: float) -> Answer:
    """Refuse a request after some seconds: the peer fails to authenticate too often."""
    await asyncio.sleep(delay_s)
    raise error


class LongRequests:
    """The requests of `LONG_CODES` that one server handles now, and those that wait undecoded; addresses take turns.

    A list in a request, or the JSON of a response, takes ten times the memory of its bytes and more. Its steps
    alternate with those of other requests (`loop_slices`): without a limit thousands of them would be half done.
    """

    def __init__(self, limits: Limits, now_s: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._now_s = now_s
        self._count = 0
        self._counts: Counter[str] = Counter()  # by client address
        self._waiting: dict[str, deque[_Waiting]] = {}  # by client address, in the order of turns
        self._watched: set[Connection] = set()
        self.count_max = 0

    def table(self, handlers: Mapping[int, Handler]) -> dict[int, Handler]:
        """Return handlers of which those of `LONG_CODES` wait for their turn."""
        return {code: self._in_turn(handler) if code in LONG_CODES else handler for code, handler in handlers.items()}

    def _in_turn(self, handler: Handler) -> Handler:
        async def handle(connection: Connection, request: Command) -> Answer:
            address = connection.remote_address[0]
            if self._waiting.get(address) or not self._has_room(address):
                await self._wait(connection, address)
            else:
                self._admit(address)
            try:
                answer = handler(connection, request)
                return await answer if isinstance(answer, Awaitable) else answer
            finally:
                self._release(address)

        return handle

    def _has_room(self, address: str) -> bool:
        limits = self._limits
        return self._count < limits[LONG_REQUESTS] and self._counts[address] < limits[LONG_REQUESTS_PER_ADDRESS]

    def _admit(self, address: str) -> None:
        self._count += 1
        self._counts[address] += 1
        self.count_max = max(self.count_max, self._count)

    async def _wait(self, connection: Connection, address: str) -> None:
        """Return when the request is admitted; raise an error if its connection has closed."""
        limit = LONG_REQUESTS if self._count >= self._limits[LONG_REQUESTS] else LONG_REQUESTS_PER_ADDRESS
        began_s = self._now_s()
        if connection not in self._watched:
            self._watched.add(connection)
            connection.on_close(self._connection_closed)
        admitted = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(address, deque()).append((connection, admitted))
        try:
            await admitted
        except asyncio.CancelledError:
            if admitted.done() and not admitted.cancelled() and admitted.exception() is None:
                self._release(address)
            raise
        finally:
            if self._now_s() - began_s >= DELAYED_SECONDS:
                self._limits.reach(limit)

    def _connection_closed(self, connection: Connection) -> None:
        """Drop its waiting requests: no response can be sent, and the memory budget has forgotten the connection."""
        self._watched.discard(connection)
        address = connection.remote_address[0]
        left: deque[_Waiting] = deque()
        for waiting in self._waiting.pop(address, ()):
            if waiting[0] is not connection:
                left.append(waiting)
            elif not waiting[1].done():
                waiting[1].set_exception(RequestRefused(ResponseCode.SYSTEM_ERROR, "the connection is closed"))
        if left:
            self._waiting[address] = left

    def _release(self, address: str) -> None:
        self._count -= 1
        self._counts[address] -= 1
        if not self._counts[address]:
            del self._counts[address]
        for other in list(self._waiting):
            if self._count >= self._limits[LONG_REQUESTS]:
                return
            self._admit_first(other)

    def _admit_first(self, address: str) -> None:
        """Admit a waiting request of an address if it may have one more; its turn ends then."""
        while (waiting := self._waiting.get(address)) and self._has_room(address):
            _, admitted = waiting.popleft()
            del self._waiting[address]
            if waiting:
                self._waiting[address] = waiting
            if not admitted.done():
                self._admit(address)
                admitted.set_result(None)
                return
