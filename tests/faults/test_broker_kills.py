"""`orbitlog up` killed amid sends, over and over: no acknowledged message is lost, and every queue keeps its order."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
from pathlib import Path

import pytest

from orbitlog.errors import RemotingError
from orbitlog.formats.records.message import Message, decode_message
from orbitlog.remoting.client import RemotingClient
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command
from orbitlog.wire.consume_headers import PullMessageRequest
from orbitlog.wire.send_headers import SendMessageV2Request
from tests.faults.broker_process import SECONDS_MAX, start

SENDERS = 4
QUEUES = 4
ROUNDS = 3 * int(os.environ.get("ORBITLOG_FAULTS", "1"))


async def send_until_killed(
    process: subprocess.Popen[str], address: str, ledger: dict[int, list[bytes]], kill_after: int
) -> None:
    """Send from several connections; note what was acknowledged, by queue and in its order."""
    acknowledged = 0

    async def sender(number: int) -> None:
        nonlocal acknowledged
        client = RemotingClient()
        try:
            for count in range(1_000_000):
                body = f"{process.pid} {number} {count}".encode()
                header = SendMessageV2Request(
                    producer_group="P",
                    topic="Ledger",
                    default_topic="TBW102",
                    default_topic_queue_count=QUEUES,
                    queue_id=number % QUEUES,
                    sys_flag=0,
                    born_timestamp_ms=1,
                    flag=0,
                    properties=f"UNIQ_KEY\x01{process.pid:016X}{number:08X}{count:08X}\x02",
                )
                command = Command(RequestCode.SEND_MESSAGE_V2, ext_fields=header.to_ext_fields(), body=body)
                answer = await client.invoke(address, command, SECONDS_MAX)
                assert answer.code == ResponseCode.SUCCESS, answer.remark
                ledger[number % QUEUES].append(body)
                acknowledged += 1
                if acknowledged == kill_after:
                    process.kill()
        except RemotingError:
            return
        finally:
            await client.close()

    await asyncio.gather(*map(sender, range(SENDERS)))


async def pull_all(address: str, queue_id: int) -> list[Message]:
    client = RemotingClient()
    found: list[Message] = []
    try:
        while True:
            header = PullMessageRequest(
                group="G",
                topic="Ledger",
                queue_id=queue_id,
                queue_offset=len(found),
                message_count_max=32,
                sys_flag=4,
                commit_queue_offset=0,
                suspend_timeout_ms=0,
                subscription="*",
                subscription_version=0,
            )
            command = Command(RequestCode.PULL_MESSAGE, ext_fields=header.to_ext_fields())
            answer = await client.invoke(address, command, SECONDS_MAX)
            if answer.code != ResponseCode.SUCCESS:
                assert answer.code == ResponseCode.PULL_NOT_FOUND, answer.remark
                return found
            position = 0
            while position < len(answer.body):
                found.append(decode_message(answer.body, position))
                position += found[-1].size_bytes
    finally:
        await client.close()


@pytest.mark.slow
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_no_acknowledged_message_is_lost(tmp_path: Path, flush: str) -> None:
    seed = random.SystemRandom().getrandbits(32)
    chance = random.Random(seed)
    ledger: dict[int, list[bytes]] = {queue_id: [] for queue_id in range(QUEUES)}
    settings = (f"flushDiskType={flush}", "mappedFileSizeCommitLog=65536", "mappedFileSizeConsumeQueue=2000")
    for _ in range(ROUNDS):
        process, address = start(tmp_path, *settings)
        asyncio.run(send_until_killed(process, address, ledger, chance.randrange(20, 300)))
        process.communicate(timeout=SECONDS_MAX)
    process, address = start(tmp_path, *settings)
    try:
        for queue_id, acknowledged in ledger.items():
            found = asyncio.run(pull_all(address, queue_id))
            assert [message.queue_offset for message in found] == list(range(len(found))), f"seed {seed}"
            bodies = [message.body for message in found]
            places = {body: place for place, body in enumerate(bodies)}
            missing = [body for body in acknowledged if body not in places]
            assert not missing, f"seed {seed}: {missing[:5]}"
            order = [places[body] for body in acknowledged]
            assert order == sorted(order), f"seed {seed}: queue {queue_id} changed its order"
    finally:
        process.terminate()
        process.communicate(timeout=SECONDS_MAX)
    assert not (tmp_path / "abort").exists()
