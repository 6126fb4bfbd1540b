"""Stored check: asks brokers by message id which rows they have, through their index."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence

from orbitlog.client.consumer.received import decode_pulled
from orbitlog.errors import RemotingError
from orbitlog.formats.records import properties
from orbitlog.pipeline.network.cluster_session import ClusterSession
from orbitlog.pipeline.sink.encoded_rows import SinkRow
from orbitlog.pipeline.sources.source_errors import BrokerUnavailable
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.consume_headers import QueryMessageRequest

_QUERIES_AT_ONCE = 32
_QUERY_SECONDS = 10.0
_FOREVER_MS = 2**63 - 1
_PAUSE_S = 0.5
_GRACE_S = 3.0  # after a lost connection, how long a request may still be on its way into the log and the index
_SETTLE_S = 3.0  # the same for the last requests of an attempt that was killed


class StoredCheck:
    """Looks messages up at all brokers that may have them."""

    def __init__(self, session: ClusterSession, brokers: Iterable[str] = ()) -> None:
        self._session = session
        self._brokers = sorted(brokers)
        self._limit = asyncio.Semaphore(_QUERIES_AT_ONCE)
        self._addresses: list[str] | None = None
        self._settled_at = time.monotonic() + _SETTLE_S

    async def missing(self, rows: Iterable[SinkRow]) -> list[SinkRow]:
        """Return the rows that no broker has.

        Requests of a killed attempt may still be in buffers of the network and of the broker, so rows that are not
        found are looked up again some seconds after this check was created.
        """
        missing = await self._not_stored(list(rows))
        if missing and (pause := self._settled_at - time.monotonic()) > 0:
            await asyncio.sleep(pause)
            missing = await self._not_stored(missing)
        return missing

    async def _not_stored(self, rows: Sequence[SinkRow]) -> list[SinkRow]:
        found = await asyncio.gather(*(self.is_stored(row.topic, row.unique_id) for row in rows))
        return [row for row, is_found in zip(rows, found, strict=True) if not is_found]

    async def is_stored(self, topic: str, unique_id: str) -> bool:
        """Return whether a broker has a message; wait for brokers that do not answer."""
        return await self._session.retried(lambda: self._ask_all(topic, unique_id))

    async def _ask_all(self, topic: str, unique_id: str) -> bool:
        addresses = await self._masters()
        try:
            return any(await asyncio.gather(*(self._has(address, topic, unique_id) for address in addresses)))
        except RemotingError:
            self._addresses = None  # a restarted broker may have another address
            raise

    async def was_stored(self, address: str, topic: str, unique_id: str) -> bool:
        """Return whether a request that got no answer was stored; wait for it, and for the broker, if necessary."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._session.options.broker_timeout_s
        grace_until: float | None = None
        while True:
            try:
                if await self._has(address, topic, unique_id):
                    return True
                grace_until = loop.time() + _GRACE_S if grace_until is None else grace_until
                if loop.time() >= grace_until:
                    return False
            except RemotingError as error:
                grace_until = None
                if loop.time() >= deadline:
                    raise BrokerUnavailable(
                        f"{address} does not answer, so it is unknown whether it has message {unique_id} of {topic}:"
                        f" {error}; the task fails and is repeated"
                    ) from None
            await asyncio.sleep(_PAUSE_S)

    async def _masters(self) -> list[str]:
        """Return the masters that must be asked; raise `BrokerUnavailable` if one is not registered for long."""
        if self._addresses is not None:
            return self._addresses
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._session.options.broker_timeout_s
        while True:
            registered = await self._session.admin.brokers()
            absent = [name for name in self._brokers if name not in registered]
            if not absent:
                # Also the brokers that registered later: marks name a broker before the first row is sent to it.
                self._addresses = sorted(registered.values())
                return self._addresses
            if loop.time() >= deadline:
                raise BrokerUnavailable(
                    f"broker {absent[0]} has no registered master, and an interrupted write may have sent rows to it;"
                    " start it, or delete the marks of the write to accept duplicates"
                )
            await asyncio.sleep(_PAUSE_S)

    async def _has(self, address: str, topic: str, unique_id: str) -> bool:
        header = QueryMessageRequest(
            topic=topic,
            key=unique_id,
            count_max=1,
            begin_timestamp_ms=0,
            end_timestamp_ms=_FOREVER_MS,
            unique_key=True,
        )
        accept = (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)
        async with self._limit:
            answer = await self._session.link.invoke(
                address, RequestCode.QUERY_MESSAGE, header, seconds=_QUERY_SECONDS, accept=accept
            )
        messages = decode_pulled(answer.body) if answer.body else ()
        # Keys with the same hash may be returned.
        return any(message.properties.get(properties.UNIQ_KEY) == unique_id for message in messages)
