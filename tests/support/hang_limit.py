"""A test that hangs fails, with its traceback, and the run goes on."""

from __future__ import annotations

import signal
from collections.abc import Generator
from typing import NoReturn

import pytest

_AGAIN_S = 30.0
"""The failure is raised again after this time, in case clean-up hangs as well."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Interrupt a test after twice `faulthandler_timeout`, when the stacks of all threads have been printed."""
    limit_s = 2 * float(item.config.getini("faulthandler_timeout") or 0)

    def interrupt(signum: int, frame: object) -> NoReturn:
        pytest.fail(f"the test hung for {limit_s:g} s")

    previous = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, limit_s, _AGAIN_S)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
