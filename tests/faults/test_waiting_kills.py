"""`orbitlog up` killed with messages in flight: delayed, scheduled, half, sent back, popped.

After the last start each is where it belongs, none was there before its time, and producers are asked about what they
left open.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from pathlib import Path

import pytest

from orbitlog.formats.records.message import Message
from orbitlog.wire.bodies.body_json import write_body
from orbitlog.wire.codes import RequestCode, ResponseCode
from tests.faults.broker_process import SECONDS_MAX, start
from tests.faults.wire_peer import PREPARED, Peer, _records, peer_of

EACH = 6
KILLS = 3 * int(os.environ.get("ORBITLOG_FAULTS", "1"))
DELAY_MS = 2_000
INVISIBLE_MS = 3_000
SETTINGS = (
    "messageDelayLevel=2s 2s 2s 2s",
    "transactionCheckInterval=300",
    "transactionTimeOut=100",
    "flushConsumerOffsetInterval=200",
    "flushDelayOffsetInterval=200",
    "mappedFileSizeCommitLog=262144",
)


async def put_under_way(peer: Peer, turn: int, due_ms: dict[str, int]) -> None:
    """Have messages of every kind acknowledged; notes when each may be seen at the earliest."""
    await peer.send("Popped", "makes the topic")
    for number in range(EACH):
        name = f"{turn}-{number}"
        now_ms = int(time.time() * 1000)
        await peer.send("Level", f"l{name}", DELAY="1")
        await peer.send("Moment", f"m{name}", TIMER_DELIVER_MS=str(now_ms + DELAY_MS))
        await peer.send("Half", f"h{name}", sys_flag=PREPARED, TRAN_MSG="true", PGROUP="P")
        sent = await peer.send("Retried", f"r{name}")
        back = {"offset": int(sent.ext_fields["msgId"][-16:], 16), "group": "G", "delayLevel": 0}
        assert (await peer.ask(RequestCode.CONSUMER_SEND_MSG_BACK, **back)).code == ResponseCode.SUCCESS
        await peer.send("Popped", f"p{name}")
        due_ms |= dict.fromkeys((f"l{name}", f"m{name}", f"r{name}"), now_ms + DELAY_MS)
        due_ms |= dict.fromkeys((f"h{name}", f"p{name}"), 0)


async def pop(peer: Peer, *, acknowledge: bool) -> list[str]:
    answer = await peer.ask(
        RequestCode.POP_MESSAGE,
        consumerGroup="Popper",
        topic="Popped",
        queueId=-1,
        maxMsgNums=32,
        invisibleTime=INVISIBLE_MS,
        pollTime=200,
        initMode=0,
    )
    found = _records(answer.body)
    for message in found if acknowledge else ():
        own = message.properties.get("POP_CK")
        topic = "%RETRY%Popper_Popped" if own else "Popped"
        times = f"{answer.ext_fields['popTime']} {answer.ext_fields['invisibleTime']} 0 0 broker-a 0"
        receipt = own or f"{message.queue_offset} {times} {message.queue_offset}"
        done = {"consumerGroup": "Popper", "topic": topic, "queueId": 0, "offset": message.queue_offset}
        await peer.ask(RequestCode.ACK_MESSAGE, extraInfo=receipt, **done)
    return [message.body.decode() for message in found]


async def in_the_end(peer: Peer, names: set[str]) -> list[Message]:
    """Wait until every message is where it belongs."""
    alive = write_body({"clientID": "one", "producerDataSet": [{"groupName": "P"}]})
    popped: set[str] = set()
    missing = names
    try:
        async with asyncio.timeout(SECONDS_MAX + 2 * KILLS):
            while True:
                await peer.ask(RequestCode.HEART_BEAT, alive)  # a broker forgets who is silent for two minutes
                popped |= set(await pop(peer, acknowledge=True))
                found = [each for topic in ("Level", "Moment", "Half", "%RETRY%G") for each in await peer.all_of(topic)]
                missing = names - popped - {each.body.decode() for each in found}
                if not missing:
                    return found
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"{len(missing)} of {len(names)} did not come: {sorted(missing)[:20]}") from None


@pytest.mark.slow
def test_nothing_that_waits_is_lost_or_early(tmp_path: Path) -> None:
    seed = random.SystemRandom().getrandbits(32)
    chance = random.Random(seed)
    due_ms: dict[str, int] = {}

    async def turn(address: str, number: int) -> None:
        async with peer_of(address) as peer:
            await put_under_way(peer, number, due_ms)
            await pop(peer, acknowledge=False)
            await asyncio.sleep(chance.random() * 2 * DELAY_MS / 1000)

    async def last(address: str) -> list[Message]:
        async with peer_of(address) as peer:
            return await in_the_end(peer, set(due_ms))

    for number in range(KILLS):
        process, address = start(tmp_path, *SETTINGS)
        try:
            asyncio.run(turn(address, number))
        finally:
            process.kill()
            process.communicate(timeout=SECONDS_MAX)
    process, address = start(tmp_path, *SETTINGS)
    try:
        found = asyncio.run(last(address))
    finally:
        process.terminate()
        process.communicate(timeout=SECONDS_MAX)
    early = [each.body for each in found if each.store_timestamp_ms < due_ms[each.body.decode()]]
    assert not early, f"seed {seed}"
