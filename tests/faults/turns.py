"""Two threads of which one runs at a time; a seed decides where they switch: the same run for the same seed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from random import Random
from types import TracebackType

_PATIENCE_S = 60


class Turns:
    """Runs work beside the calling thread; both call `may_change` where the other may continue."""

    def __init__(self, chance: Random, likelihood: float) -> None:
        self._chance = chance
        self._likelihood = likelihood
        self._changed = threading.Condition()
        self._other: threading.Thread | None = None
        self._is_others_turn = self._other_is_done = False
        self._error: BaseException | None = None

    def run(self, work: Callable[[], None], beside: Callable[[], None]) -> None:
        """Do `work` in this thread and `beside` in another, until both are done; an error of either is raised."""
        self._other = threading.Thread(target=self._run_beside, args=(beside,))
        self._other.start()
        try:
            work()
        finally:
            while not self._other_is_done:
                self.change()
            self._other.join()
            self._other = None
        if self._error is not None:
            raise self._error

    def _run_beside(self, beside: Callable[[], None]) -> None:
        self._wait_until(lambda: self._is_others_turn)
        try:
            beside()
        except BaseException as error:  # noqa: BLE001 (raised by `run`)
            self._error = error
        finally:
            with self._changed:
                self._is_others_turn = False
                self._other_is_done = True
                self._changed.notify_all()

    def may_change(self) -> None:
        if self._other is not None and self._chance.random() < self._likelihood:
            self.change()

    def change(self) -> None:
        """Let the other thread continue, and return when it is this one's turn."""
        is_other = threading.current_thread() is self._other
        if self._other_is_done:
            return
        with self._changed:
            self._is_others_turn = not is_other
            self._changed.notify_all()
        self._wait_until(lambda: self._is_others_turn == is_other)

    def _wait_until(self, is_so: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(is_so, _PATIENCE_S), "both threads wait for each other"


class TurnLock:
    """A lock for threads that take turns: a thread that has to wait lets the other continue."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._is_held = False

    def __enter__(self) -> None:
        while self._is_held:
            self._turns.change()
        self._is_held = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_held = False
