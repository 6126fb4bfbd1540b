"""etcd gateway: requests to etcd's JSON interface (`/v3/...`) over HTTP/1.1, with the standard library.

etcd omits members that are false or zero, writes 64-bit numbers as strings, and keys and values in base64. An error
after the request was sent means that its outcome is unknown.
"""

from __future__ import annotations

import asyncio
import itertools
import ssl
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import orjson

from orbitlog.errors import ConnectFailed, ConnectionLost, RemotingError, RequestTimeout, WireError

_ANSWER_BYTES_MAX = 1024 * 1024
_HEAD_BYTES_MAX = 64 * 1024
_CHUNKS_PER_TURN = 100
_UNAUTHENTICATED = 401
_SERVER_ERROR = 500
# etcd hashes a password slowly on purpose: other requests are answered in a fraction of the time.
_HASHING_SLOWNESS = 5.0

_Answer = tuple[int, dict[str, Any]]


class EtcdAccess(NamedTuple):
    """Credentials and TLS of a connection to etcd."""

    user: str = ""
    password: str = ""
    tls: ssl.SSLContext | None = None


class EtcdGateway:
    """Requests to one etcd cluster, which stay fast while one of its servers is down, paused or unreachable.

    The endpoint (`http://host:port`) that answered last is asked first. A request that may be executed twice also goes
    to the next endpoint after `hedge_s`, and the first answer counts.
    """

    def __init__(
        self,
        endpoints: Sequence[str],
        access: EtcdAccess | None = None,
        timeout_s: float = 1.5,
        hedge_s: float = 0.3,
    ) -> None:
        self._endpoints = [_endpoint(url) for url in endpoints]
        self._access = access or EtcdAccess()
        self._timeout_s = timeout_s
        self._hedge_s = hedge_s
        self._first = 0
        self._token = ""

    async def call(self, path: str, body: dict[str, Any], *, is_repeatable: bool = False) -> dict[str, Any]:
        """Return the answer to a request; raise `RemotingError` or `WireError`, after which its outcome is unknown.

        A repeatable request may be executed several times, and late: its copies are not called back.
        """
        if self._access.user and not self._token:
            await self._authenticate()
        send = self._hedged if is_repeatable else self._once
        status, answer = await send(path, body)
        if status == _UNAUTHENTICATED and self._access.user:
            # The token has expired; a refused request had no effect.
            await self._authenticate()
            status, answer = await send(path, body)
        if status != 200:
            raise RemotingError(_refusal(path, status, answer))
        return answer

    async def _authenticate(self) -> None:
        self._token = ""
        credentials = {"name": self._access.user, "password": self._access.password}
        status, answer = await self._hedged("/v3/auth/authenticate", credentials, slowness=_HASHING_SLOWNESS)
        token = answer.get("token")
        if status != 200 or not isinstance(token, str):
            raise RemotingError(f"etcd refused user {self._access.user!r} (status {status}): check name and password")
        self._token = token

    def _order(self) -> list[int]:
        """Return the endpoints in the order in which they are asked."""
        count = len(self._endpoints)
        return [(self._first + attempt) % count for attempt in range(count)]

    def _avoid(self, index: int) -> None:
        """Start the next request with another endpoint than one that failed, unless that is so already."""
        if self._first == index:
            self._first = (index + 1) % len(self._endpoints)

    async def _once(self, path: str, body: dict[str, Any]) -> _Answer:
        """Send a request to the first endpoint that accepts a connection, and to no other one."""
        data, index = orjson.dumps(body), self._first
        try:
            async with asyncio.timeout(self._timeout_s):
                index, reader, writer = await self._connect_any()
                return await self._exchange(reader, writer, path, data)
        except TimeoutError:
            self._avoid(index)
            raise self._timed_out(path, self._timeout_s) from None
        except (RemotingError, WireError):
            self._avoid(index)
            raise

    async def _connect_any(self) -> tuple[int, asyncio.StreamReader, asyncio.StreamWriter]:
        problem = ""
        for index in self._order():
            try:
                async with asyncio.timeout(self._timeout_s / len(self._endpoints)):
                    return index, *await self._connect(index)
            except (OSError, TimeoutError) as error:
                problem = self._connect_problem(index, error)
                self._avoid(index)
        raise ConnectFailed(problem)

    async def _hedged(self, path: str, body: dict[str, Any], *, slowness: float = 1.0) -> _Answer:
        """Ask one endpoint after the other, without waiting for slow ones; return the first answer."""
        data, rest = orjson.dumps(body), deque(self._order())
        timeout_s = self._timeout_s * slowness
        running: set[asyncio.Task[_Answer]] = set()
        problem: RemotingError | WireError = ConnectFailed("no etcd endpoint is known")
        try:
            async with asyncio.timeout(timeout_s):
                while rest or running:
                    if rest:
                        running.add(asyncio.create_task(self._ask(rest.popleft(), path, data)))
                    pause_s = self._hedge_s * slowness if rest else None
                    done, running = await asyncio.wait(running, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED)
                    errors = {task: task.exception() for task in done}
                    for task, error in errors.items():
                        if error is None:
                            return task.result()
                        if not isinstance(error, (RemotingError, WireError)):
                            raise error
                        problem = error
        except TimeoutError:
            raise self._timed_out(path, timeout_s) from None
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
        raise problem

    async def _ask(self, index: int, path: str, data: bytes) -> _Answer:
        """Return the answer of one endpoint; raise `RemotingError` if another one may have a better answer."""
        has_answered = False
        try:
            reader, writer = await self._connect(index)
            status, answer = await self._exchange(reader, writer, path, data)
            if status >= _SERVER_ERROR:
                raise RemotingError(_refusal(path, status, answer))
            has_answered = True
        except OSError as error:
            raise ConnectFailed(self._connect_problem(index, error)) from None
        finally:
            if has_answered:
                self._first = index
            else:  # also if another endpoint was faster
                self._avoid(index)
        return status, answer

    async def _connect(self, index: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, port, is_tls = self._endpoints[index]
        tls = (self._access.tls or ssl.create_default_context()) if is_tls else None
        return await asyncio.open_connection(host, port, ssl=tls, limit=_HEAD_BYTES_MAX)

    def _connect_problem(self, index: int, error: Exception) -> str:
        host, port, _ = self._endpoints[index]
        return f"no etcd endpoint accepts a connection; the last one was {host}:{port}: {error!r}"

    def _timed_out(self, path: str, timeout_s: float) -> RequestTimeout:
        return RequestTimeout(f"etcd {path}: no answer within {timeout_s:g} s")

    async def _exchange(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str, body: bytes
    ) -> _Answer:
        """Send a request and return its answer; closes the connection."""
        authorization = f"Authorization: {self._token}\r\n" if self._token else ""
        try:
            writer.write(
                f"POST {path} HTTP/1.1\r\nHost: etcd\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\n{authorization}Connection: close\r\n\r\n".encode("ascii")
                + body
            )
            await writer.drain()
            head = await reader.readuntil(b"\r\n\r\n")
            answer = await _read_body(reader, head)
        except (OSError, asyncio.IncompleteReadError) as error:
            raise ConnectionLost(f"etcd {path}: connection lost before the answer: {error}") from None
        except asyncio.LimitOverrunError:
            raise WireError(f"etcd {path}: the head of the answer is over {_HEAD_BYTES_MAX} bytes") from None
        finally:
            writer.close()
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


def _refusal(path: str, status: int, answer: dict[str, Any]) -> str:
    return f"etcd {path}: status {status}: {str(answer.get('error', answer))[:200]}"


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
