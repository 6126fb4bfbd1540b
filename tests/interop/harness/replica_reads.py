"""Reads of a master and of its slave, at the level of the wire: both must return the same records, byte for byte."""

from __future__ import annotations

import asyncio
from pathlib import Path

from orbitlog.remoting.client import RemotingClient
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command

SECONDS_MAX = 30
# A group that every broker knows.
_GROUP = "TOOLS_CONSUMER"
_HAS_SUBSCRIPTION = 4


async def _ask(client: RemotingClient, address: str, code: int, **fields: object) -> Command:
    request = Command(code, ext_fields={name: str(value) for name, value in fields.items()})
    return await client.invoke(address, request, SECONDS_MAX)


async def _queue(client: RemotingClient, address: str, topic: str, queue_id: int) -> bytes:
    """Return the records of a whole queue, by as many pulls as it takes."""
    records, offset = b"", 0
    while True:
        answer = await _ask(
            *(client, address, RequestCode.PULL_MESSAGE),
            **{"consumerGroup": _GROUP, "topic": topic, "queueId": queue_id, "queueOffset": offset},
            **{"maxMsgNums": 32, "sysFlag": _HAS_SUBSCRIPTION, "commitOffset": 0, "suspendTimeoutMillis": 0},
            **{"subscription": "*", "subVersion": 0, "expressionType": "TAG"},
        )
        if answer.code != ResponseCode.SUCCESS:
            assert answer.code in (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_OFFSET_MOVED), answer
            return records
        records += bytes(answer.body)
        offset = int(answer.ext_fields["nextBeginOffset"])


async def _by_key(client: RemotingClient, address: str, topic: str, key: str) -> bytes:
    answer = await _ask(
        *(client, address, RequestCode.QUERY_MESSAGE),
        **{"topic": topic, "key": key, "maxNum": 64, "beginTimestamp": 0, "endTimestamp": (1 << 62)},
    )
    return bytes(answer.body) if answer.code == ResponseCode.SUCCESS else b""


def same_reads(master: str, slave: str, store: Path, topic: str, keys: list[str]) -> tuple[int, int]:
    """Compare all queues of a topic and queries for keys at both; return the bytes read from queues and by keys."""

    async def compare() -> tuple[int, int]:
        client = RemotingClient()
        pulled = queried = 0
        try:
            for directory in sorted((store / "consumequeue" / topic).iterdir()):
                queue_id = int(directory.name)
                records = await _queue(client, master, topic, queue_id)
                assert await _queue(client, slave, topic, queue_id) == records, f"queue {queue_id} differs"
                pulled += len(records)
            for key in keys:
                found = await _by_key(client, master, topic, key)
                assert await _by_key(client, slave, topic, key) == found, f"key {key} differs"
                queried += len(found)
        finally:
            await client.close()
        return pulled, queried

    return asyncio.run(compare())
