"""A proxy in front of a server that replaces a word in its responses by control sequences, as a hostile server might.

Servers refuse such names themselves, so that a test could not create them. Requests are changed back. With `refuses`,
every request but those for routes is answered with an error whose remark has the sequences.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Mapping

import orjson

from orbitlog.wire.codes import RequestCode
from tests.support.link_proxy import Address, ProxyThread

_FRAME = struct.Struct(">II")
_ROUTES = frozenset((RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.GET_BROKER_CLUSTER_INFO))


def _in_json(text: str) -> bytes:
    return orjson.dumps(text)[1:-1]


class RenamingProxy:
    """Forwards frames to `target`; `replaced` are words of responses and what clients get instead."""

    def __init__(self, thread: ProxyThread, target: Address, replaced: Mapping[str, str]) -> None:
        self.replaced = dict(replaced)
        self.refuses = False
        self._target = target
        self._tasks: set[asyncio.Task[None]] = set()
        self._server = thread.run(asyncio.start_server(self._accept, "127.0.0.1", 0))
        thread.proxies.append(self)  # type: ignore[arg-type]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def close(self) -> None:
        self._server.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        target_reader, target_writer = await asyncio.open_connection(*self._target)
        refused: set[int] = set()
        try:
            await asyncio.gather(
                self._pump(reader, target_writer, refused, is_request=True),
                self._pump(target_reader, writer, refused, is_request=False),
            )
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            for each in (writer, target_writer):
                each.transport.abort()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, refused: set[int], *, is_request: bool
    ) -> None:
        while True:
            size, mark = _FRAME.unpack(await reader.readexactly(8))
            content = await reader.readexactly(size - 4)
            header, body = content[: mark & 0xFFFFFF], content[mark & 0xFFFFFF :]
            fields = orjson.loads(header)
            if is_request:
                if self.refuses and not fields["flag"] & 1 and fields["code"] not in _ROUTES:
                    refused.add(fields["opaque"])
                header, body = (self._changed(part, back=True) for part in (header, body))
            elif fields["flag"] & 1 and fields["opaque"] in refused:
                fields.update(code=1, remark=f"refused {next(iter(self.replaced.values()))}", extFields={})
                header, body = orjson.dumps(fields), b""
            else:
                header, body = (self._changed(part, back=False) for part in (header, body))
            writer.write(_FRAME.pack(4 + len(header) + len(body), mark >> 24 << 24 | len(header)) + header + body)
            await writer.drain()

    def _changed(self, part: bytes, *, back: bool) -> bytes:
        """Replace words in JSON and in text; stored messages stay as they are, because of their lengths."""
        is_json = part[:1] in (b"{", b"[")
        if not is_json and not part.isascii():
            return part
        for word, sequences in self.replaced.items():
            pair = (word.encode(), _in_json(sequences) if is_json else sequences.encode())
            part = part.replace(*(reversed(pair) if back else pair))
        return part
