"""asyncio without TLS: importing ssl takes a tenth of a command's start-up, and no connection uses it."""

from __future__ import annotations

import sys


def load_asyncio() -> None:
    """Import asyncio as on a Python built without ssl, unless either module is already loaded.

    asyncio handles a failing `import ssl`. The block on ssl is removed afterwards, so that other modules can import it;
    asyncio itself has no TLS for the life of the process.
    """
    if "asyncio" in sys.modules or "ssl" in sys.modules:
        return
    sys.modules["ssl"] = None  # type: ignore[assignment]
    try:
        import asyncio as _  # noqa: F401
    finally:
        del sys.modules["ssl"]
