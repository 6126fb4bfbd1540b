"""asyncio without TLS: for commands only, and ssl can be imported afterwards."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import sys
from orbitlog.cli.light_asyncio import load_asyncio
load_asyncio()
assert "asyncio" in sys.modules and "ssl" not in sys.modules
import asyncio
async def answer():
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        assert await reader.read() == b""
        writer.close()
asyncio.run(answer())
import ssl
ssl.create_default_context()
"""


def test_connections_work_and_ssl_is_still_there() -> None:
    ran = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_where_asyncio_is_there_already_nothing_changes() -> None:
    script = "import asyncio, ssl\nfrom orbitlog.cli.light_asyncio import load_asyncio\nload_asyncio()\n"
    script += "assert asyncio.sslproto.ssl is ssl"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stderr) == (0, "")
