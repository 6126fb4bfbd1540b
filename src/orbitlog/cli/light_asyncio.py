"""asyncio as commands need it: without TLS, which costs a tenth of a start and which no connection of ours has."""

from __future__ import annotations

import sys


def load_asyncio() -> None:
    """Import asyncio as on a Python that was built without ssl, unless either is there already; ssl itself stays."""
    if "asyncio" in sys.modules or "ssl" in sys.modules:
        return
    sys.modules["ssl"] = None  # type: ignore[assignment]
    try:
        import asyncio as _  # noqa: F401
    finally:
        del sys.modules["ssl"]
