"""Lazy handlers: request handlers that are imported and built when the first of their requests arrives.

A broker starts sooner and takes less memory without the code for requests that only operators send.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import cached_property

from orbitlog.remoting.connection import Answer, Connection, Handler
from orbitlog.wire.command import Command


class LazyHandlers:
    """Stands in for the handlers of `codes` until `build`, called once, returns them by code.

    The codes are listed apart from the handlers, whose modules must not be imported to learn them; the unit test holds
    each list against its handlers.
    """

    def __init__(self, codes: Iterable[int], build: Callable[[], Mapping[int, Handler]]) -> None:
        self.codes = tuple(codes)
        self._build = build

    @property
    def table(self) -> dict[int, Handler]:
        """This object under each of its codes."""
        return dict.fromkeys(self.codes, self)

    @cached_property
    def handlers(self) -> Mapping[int, Handler]:
        """The handlers by code, built at the first access."""
        return self._build()

    def __call__(self, connection: Connection, request: Command) -> Answer | Awaitable[Answer]:
        return self.handlers[request.code](connection, request)
