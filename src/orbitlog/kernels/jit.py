"""Kernel compilation: `@kernel` is numba's `njit` with a cache that is invalidated correctly.

Without the extra `fast` nothing is compiled: kernels then are the functions as they are written.

numba checks only a function's own source file to decide whether its cached machine code is current, so a caller would
keep an old callee of another file. Kernels call each other across files. Therefore the cache directory is named after
the sources of all kernels, and a change to one recompiles all (docs/adr/0003). The cache is in the user's cache
directory, or below NUMBA_CACHE_DIR if that is set.
"""

from __future__ import annotations

import functools
import hashlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from orbitlog.kernels import COMPILED

if COMPILED:
    import numba

F = TypeVar("F", bound=Callable[..., Any])


@functools.cache
def cache_directory() -> Path:
    """Return the cache directory for the current sources of the kernels."""
    digest = hashlib.sha256(numba.__version__.encode())
    room = Path(__file__).parent
    # `flags` has a function that kernels compile.
    for source in (*sorted(room.rglob("*.py")), *room.parent.glob("formats/records/flags.py")):
        digest.update(source.read_bytes())
    return _cache_root() / f"kernels-{digest.hexdigest()[:16]}"


def _cache_root() -> Path:
    if chosen := os.environ.get("NUMBA_CACHE_DIR"):
        return Path(chosen) / "orbitlog"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "orbitlog"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "orbitlog"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "orbitlog"


def kernel(function: F) -> F:
    """Compile on the first call, release the GIL in it, and cache the machine code for other processes."""
    return _cached(function, nogil=True)


def short_kernel(function: F) -> F:
    """Compile as `kernel` does, but keep the GIL, for calls of microseconds.

    To release it costs more than the call if another thread takes it. And no other thread closes a file meanwhile:
    closing a mapped file fails while a kernel reads from it.
    """
    return _cached(function, nogil=False)


def _cached(function: F, *, nogil: bool) -> F:
    if not COMPILED:
        return function
    outside = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(cache_directory())
    try:
        return cast(F, numba.njit(cache=True, nogil=nogil)(function))
    except RuntimeError:
        # No directory can be written: compile in each process rather than refuse to work.
        return cast(F, numba.njit(nogil=nogil)(function))
    finally:
        numba.config.CACHE_DIR = outside


def inlined(function: F) -> F:
    """Compile as a part of the kernels that call it.

    Without the force LLVM leaves larger ones as calls, and a call with a dozen arrays as arguments costs more than
    the work: 107 ns against 33 for one look into a `QueueTable`.
    """
    return cast(F, numba.njit(nogil=True, forceinline=True)(function)) if COMPILED else function


def with_twin(plain: Callable[..., Any]) -> Callable[[F], F]:
    """Compile as `inlined` does; if nothing is compiled, use the plain twin, which takes less time."""
    return inlined if COMPILED else lambda _: cast(Any, plain)
