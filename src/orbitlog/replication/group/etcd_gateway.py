"""etcd gateway: requests to etcd's JSON interface (`/v3/...`) over HTTP/1.1, with the standard library.

etcd omits members that are false or zero, writes 64-bit numbers as strings, and keys and values in base64. An error
after the request was sent means that its outcome is unknown.
"""

from __future__ import annotations

import asyncio
import itertools
import ssl
from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import orjson

from orbitlog.errors import ConnectFailed, ConnectionLost, RemotingError, RequestTimeout, WireError

_ANSWER_BYTES_MAX = 1024 * 1024
_HEAD_BYTES_MAX = 64 * 1024
_CHUNKS_PER_TURN = 100
_UNAUTHENTICATED = 401


class EtcdAccess(NamedTuple):
    """Credentials and TLS of a connection to etcd."""

    user: str = ""
    password: str = ""
    tls: ssl.SSLContext | None = None


class EtcdGateway:
    """Requests to one etcd cluster. Endpoints (`http://host:port`) are tried in turn until one accepts a connection."""

    def __init__(self, endpoints: Sequence[str], access: EtcdAccess | None = None, timeout_s: float = 2.0) -> None:
        self._endpoints = [_endpoint(url) for url in endpoints]
        self._access = access or EtcdAccess()
        self._timeout_s = timeout_s
        self._first = 0
        self._token = ""

    async def call(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a request; raise `RemotingError` or `WireError`, after which its outcome is unknown."""
        if self._access.user and not self._token:
            await self._authenticate()
        status, answer = await self._post(path, body)
        if status == _UNAUTHENTICATED and self._access.user:
            # The token has expired; a refused request had no effect.
            await self._authenticate()
            status, answer = await self._post(path, body)
        if status != 200:
            raise RemotingError(f"etcd {path}: status {status}: {str(answer.get('error', answer))[:200]}")
        return answer

    async def _authenticate(self) -> None:
        self._token = ""
        credentials = {"name": self._access.user, "password": self._access.password}
        status, answer = await self._post("/v3/auth/authenticate", credentials)
        token = answer.get("token")
        if status != 200 or not isinstance(token, str):
            raise RemotingError(f"etcd refused user {self._access.user!r} (status {status}): check name and password")
        self._token = token

    async def _post(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        try:
            async with asyncio.timeout(self._timeout_s):
                reader, writer = await self._connect()
                try:
                    return await self._exchange(reader, writer, path, orjson.dumps(body))
                finally:
                    writer.close()
        except TimeoutError:
            self._first += 1  # the next request starts with another endpoint
            raise RequestTimeout(f"etcd {path}: no answer within {self._timeout_s:g} s") from None

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        problem = ""
        for attempt in range(len(self._endpoints)):
            host, port, is_tls = self._endpoints[(self._first + attempt) % len(self._endpoints)]
            tls = (self._access.tls or ssl.create_default_context()) if is_tls else None
            try:
                opened = await asyncio.wait_for(
                    asyncio.open_connection(host, port, ssl=tls, limit=_HEAD_BYTES_MAX),
                    self._timeout_s / len(self._endpoints),
                )
            except (OSError, TimeoutError) as error:
                problem = f"{host}:{port}: {error!r}"
            else:
                self._first += attempt
                return opened
        raise ConnectFailed(f"no etcd endpoint accepts a connection; the last one was {problem}")

    async def _exchange(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str, body: bytes
    ) -> tuple[int, dict[str, Any]]:
        authorization = f"Authorization: {self._token}\r\n" if self._token else ""
        writer.write(
            f"POST {path} HTTP/1.1\r\nHost: etcd\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            f"{authorization}Connection: close\r\n\r\n".encode("ascii")
            + body
        )
        try:
            await writer.drain()
            head = await reader.readuntil(b"\r\n\r\n")
            answer = await _read_body(reader, head)
        except (OSError, asyncio.IncompleteReadError) as error:
            raise ConnectionLost(f"etcd {path}: connection lost before the answer: {error}") from None
        except asyncio.LimitOverrunError:
            raise WireError(f"etcd {path}: the head of the answer is over {_HEAD_BYTES_MAX} bytes") from None
        return _status_of(head), _json_object(path, answer)


async def _read_body(reader: asyncio.StreamReader, head: bytes) -> bytes:
    lowered = head.lower()
    if b"transfer-encoding: chunked" not in lowered:
        data = bytearray(await reader.read(_ANSWER_BYTES_MAX + 1))
        while len(data) <= _ANSWER_BYTES_MAX and (more := await reader.read(_ANSWER_BYTES_MAX + 1 - len(data))):
            data += more
        return _bounded(data)
    data = bytearray()
    for count in itertools.count(1):
        if count % _CHUNKS_PER_TURN == 0:
            await asyncio.sleep(0)  # chunks that have arrived are read without a pause, and so without a timeout
        text = (await reader.readuntil(b"\r\n")).split(b";")[0].strip()
        try:
            chunk_bytes = int(text, 16)
        except ValueError:
            raise WireError(f"etcd: {text[:20]!r} is not the size of a chunk") from None
        if not 0 <= chunk_bytes <= _ANSWER_BYTES_MAX:
            raise WireError(f"etcd: a chunk of {chunk_bytes} bytes, at most {_ANSWER_BYTES_MAX} are accepted")
        data += await reader.readexactly(chunk_bytes)
        await reader.readexactly(2)
        if not chunk_bytes or len(data) > _ANSWER_BYTES_MAX:
            break
    return _bounded(data)


def _bounded(data: bytearray) -> bytes:
    if len(data) > _ANSWER_BYTES_MAX:
        raise WireError(f"etcd: an answer of over {_ANSWER_BYTES_MAX} bytes")
    return bytes(data)


def _status_of(head: bytes) -> int:
    fields = head.split(b" ", 2)
    if len(fields) < 3 or not fields[0].startswith(b"HTTP/1.") or not fields[1].isdigit() or len(fields[1]) != 3:
        raise WireError(f"etcd: {head[:40]!r} is not an HTTP answer; does the endpoint need https?")
    return int(fields[1])


def _json_object(path: str, data: bytes) -> dict[str, Any]:
    try:
        answer = orjson.loads(data)
    except orjson.JSONDecodeError:
        raise WireError(f"etcd {path}: the answer is not JSON: {data[:200]!r}") from None
    if not isinstance(answer, dict):
        raise WireError(f"etcd {path}: the answer is not a JSON object: {data[:80]!r}")
    return answer


def _endpoint(url: str) -> tuple[str, int, bool]:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or not parts.port or parts.path not in ("", "/"):
        raise ValueError(f"invalid etcd endpoint {url!r}: expected http://host:port or https://host:port")
    return parts.hostname, parts.port, parts.scheme == "https"
