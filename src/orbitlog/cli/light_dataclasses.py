"""Dataclasses as servers need them: a method is compiled when it is first called, not when its class is made.

A broker imports two hundred dataclasses and serves with a third of their methods; compiling all of them was a quarter
of its start. Only while a server imports its own modules, and only where Python compiles the methods one by one: from
3.13 on it compiles those of a class together, and nothing changes here (docs/adr/0009).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

Method = Callable[..., Any]
_COMPILER = "_create_fn"


@contextmanager
def compile_dataclass_methods_lazily() -> Iterator[None]:
    """Let dataclasses that are made in the block have their methods compiled at their first call."""
    compile_now: Callable[..., Method] | None = getattr(dataclasses, _COMPILER, None)
    if compile_now is None:
        yield
        return
    setattr(dataclasses, _COMPILER, _compile_later(compile_now))
    try:
        yield
    finally:
        setattr(dataclasses, _COMPILER, compile_now)


def _compile_later(compile_now: Callable[..., Method]) -> Callable[..., Method]:
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

    return compile_later
