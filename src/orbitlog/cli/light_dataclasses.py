"""Lazy dataclasses: compiles a generated method at its first call instead of at class creation.

A broker imports two hundred dataclasses and calls a third of their methods; compiling all of them took a quarter of
its start-up. This applies only while a server imports its own modules, and only to Pythons that compile the methods
one by one: from 3.13 on they are compiled per class, and nothing changes (docs/adr/0009).
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
    """Compile methods of dataclasses that are created in the block at their first call.

    The replaced function is global: other threads that create dataclasses meanwhile get lazy methods too, which is
    harmless.
    """
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

        def placeholder(self: object, *values: object, **named: object) -> object:
            nonlocal method
            if method is None:
                method = compile_now(name, args, body, **scope)
                method.__qualname__ = placeholder.__qualname__
                for kind in type(self).__mro__:
                    if kind.__dict__.get(name) is placeholder:
                        setattr(kind, name, method)
            return method(self, *values, **named)

        placeholder.__name__ = name
        return placeholder

    return compile_later
