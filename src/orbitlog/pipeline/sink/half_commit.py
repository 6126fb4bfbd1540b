"""Half message commit: ends the transactions of an epoch on the driver, and verifies that every row became visible.

A broker delivers a half message once for every commit it gets, so a commit whose answer was lost, and every commit of
an epoch that is repeated, is preceded by a look-up of the visible message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from orbitlog.errors import BrokerRefused, NoRoute, RemotingError
from orbitlog.formats.message_queue import MessageQueue
from orbitlog.formats.records.flags import TransactionType
from orbitlog.pipeline.network.cluster_session import ClusterSession
from orbitlog.pipeline.sink.sink_marks import HalfMessage
from orbitlog.pipeline.sink.stored_check import StoredCheck
from orbitlog.pipeline.sources.source_errors import BrokerUnavailable
from orbitlog.wire.codes import RequestCode
from orbitlog.wire.send_headers import EndTransactionRequest

_AT_ONCE = 32
_SECONDS = 10.0
_PAUSE_S = 0.5


class HalfCommit:
    """Commits or rolls back half messages."""

    def __init__(self, session: ClusterSession, producer_group: str) -> None:
        self._session = session
        self._group = producer_group
        self._check = StoredCheck(session)
        self._limit = asyncio.Semaphore(_AT_ONCE)

    async def commit(self, halves: Sequence[HalfMessage], *, is_repeated: bool) -> None:
        """Make all messages visible, each once; raise `BrokerUnavailable` if a broker stays silent."""
        await asyncio.gather(*(self._commit_one(half, is_repeated=is_repeated) for half in halves))

    async def roll_back(self, halves: Sequence[HalfMessage]) -> None:
        """Roll back messages; a broker that does not answer discards them itself after its transaction checks."""
        await asyncio.gather(*(self._end(half, TransactionType.ROLLBACK) for half in halves), return_exceptions=True)

    async def _commit_one(self, half: HalfMessage, *, is_repeated: bool) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._session.options.broker_timeout_s
        may_be_stored = is_repeated
        while True:
            try:
                if may_be_stored and await self._was_stored(half):
                    return
                await self._end(half, TransactionType.COMMIT)
                return
            except (RemotingError, NoRoute) as error:
                problem = str(error)
                may_be_stored = True
            except BrokerRefused as error:
                raise BrokerUnavailable(
                    f"{half.broker_name} could not commit message {half.unique_id} of {half.topic}: {error};"
                    " its half message may have been discarded after too many transaction checks"
                ) from None
            if loop.time() >= deadline:
                raise BrokerUnavailable(f"could not commit the rows at {half.broker_name}: {problem}")
            await asyncio.sleep(_PAUSE_S)
            await self._session.routes.freshest(half.topic)

    async def _was_stored(self, half: HalfMessage) -> bool:
        async with self._limit:
            return await self._check.was_stored(await self._address(half), half.topic, half.unique_id)

    async def _end(self, half: HalfMessage, outcome: TransactionType) -> None:
        header = EndTransactionRequest(
            producer_group=self._group,
            half_queue_offset=half.queue_offset,
            half_physical_offset=half.physical_offset,
            commit_or_rollback=outcome,
            message_id=half.unique_id,
            transaction_id=half.unique_id,
            topic=half.topic,
        )
        async with self._limit:
            address = await self._address(half)
            await self._session.link.invoke(address, RequestCode.END_TRANSACTION, header, seconds=_SECONDS)

    async def _address(self, half: HalfMessage) -> str:
        await self._session.routes.of(half.topic)
        return self._session.routes.address_of(MessageQueue(half.topic, half.broker_name, 0))
