"""Dataclasses as commands need them: a method is compiled when it is first called, not when its class is made.

A broker imports two hundred dataclasses and serves with a third of their methods; compiling all of them was a quarter
of its start. Only for a process of our own, and where Python compiles the methods one by one: from 3.13 on it
compiles those of a class together, and nothing changes here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

Method = Callable[..., Any]


def compile_when_called() -> None:
    """Let the dataclasses that are made from now on have their methods compiled at their first call."""
    compile_now: Callable[..., Method] | None = getattr(dataclasses, "_create_fn", None)
    if compile_now is None or compile_now.__module__ == __name__:
        return

    def compile_later(name: str, args: Sequence[str], body: Sequence[str], **scope: Any) -> Method:
        method: Method | None = None

        def stand_in(self: object, *values: object, **named: object) -> object:
            nonlocal method
            if method is None:
                method = compile_now(name, args, body, **scope)
                method.__qualname__ = stand_in.__qualname__
                for kind in type(self).__mro__:
                    if kind.__dict__.get(name) is stand_in:
                        setattr(kind, name, method)
            return method(self, *values, **named)

        stand_in.__name__ = name
        return stand_in

    dataclasses._create_fn = compile_later  # type: ignore[attr-defined]
