"""Handlers that are put together when the first of their requests comes.

A broker is ready sooner, and smaller, without the code for what only operators ask.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping

from orbitlog.remoting.connection import Answer, Connection, Handler
from orbitlog.wire.command import Command


class LazyHandlers:
    """Handlers of some codes; `make` returns them, and is called once."""

    def __init__(self, codes: Iterable[int], make: Callable[[], Mapping[int, Handler]]) -> None:
        self._codes = tuple(codes)
        self._make = make
        self._made: Mapping[int, Handler] | None = None

    @property
    def table(self) -> dict[int, Handler]:
        return dict.fromkeys(self._codes, self)

    def __call__(self, connection: Connection, request: Command) -> Answer | Awaitable[Answer]:
        if self._made is None:
            self._made = self._make()
            assert self._made.keys() == set(self._codes), "the codes of a lazy table are those of its handlers"
        return self._made[request.code](connection, request)
