"""How kernels are compiled: `@kernel` is numba's `njit` with a cache that can be trusted.

numba decides by one function's own source file whether its cached machine code is current, so a caller in one
file goes on using an old callee from another. Kernels call each other across files; the cache directory is
therefore named after the sources of all of them, and any change to one makes all of them compile anew
(docs/adr/0003). The cache lies in the user's cache directory, or below NUMBA_CACHE_DIR where that is set.
"""

from __future__ import annotations

import functools
import hashlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])


@functools.cache
def cache_directory() -> Path:
    """Return where the machine code of these very kernels is kept."""
    digest = hashlib.sha256(numba.__version__.encode())
    room = Path(__file__).parent
    # `flags` has a function that kernels compile.
    for source in (*sorted(room.glob("*.py")), *room.parent.glob("formats/records/flags.py")):
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
    """Compile on first call, without the interpreter's lock, and keep the machine code for the next process."""
    outside = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(cache_directory())
    try:
        return cast(F, numba.njit(cache=True, nogil=True)(function))
    except RuntimeError:
        # No directory can be written: compile in each process rather than refuse to work.
        return cast(F, numba.njit(nogil=True)(function))
    finally:
        numba.config.CACHE_DIR = outside


def inlined(function: F) -> F:
    """Compile as a part of the kernels that call it.

    Without the force LLVM leaves larger ones as calls, and a call with a dozen arrays as arguments costs more than
    the work: 107 ns against 33 for one look into a `QueueTable`.
    """
    return cast(F, numba.njit(nogil=True, forceinline=True)(function))
