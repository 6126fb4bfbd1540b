"""`orbitlog dlq replay` killed repeatedly: in the end every dead letter was replayed, and none twice."""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

from orbitlog.wire.codes import RequestCode, ResponseCode
from tests.faults.broker_process import PROGRAM, SECONDS_MAX
from tests.faults.wire_peer import peer_of

LETTERS = 60
KILLS = 3 * int(os.environ.get("ORBITLOG_FAULTS", "1"))
AT_ONCE_DEAD = -1


def start(root: Path) -> tuple[subprocess.Popen[str], dict[str, str]]:
    ports = ("--name-server-port", "0", "--broker-port", "0", "--json")
    command = [*PROGRAM, "up", "--store", str(root), *ports]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    return process, json.loads(process.stdout.readline())


async def make_letters(address: str) -> None:
    async with peer_of(address) as peer:
        for number in range(LETTERS):
            sent = await peer.send("Tried", f"letter {number}")
            place = int(sent.ext_fields["msgId"][-16:], 16)
            back = await peer.ask(RequestCode.CONSUMER_SEND_MSG_BACK, offset=place, group="G", delayLevel=AT_ONCE_DEAD)
            assert back.code == ResponseCode.SUCCESS
        await peer.send("Reborn", "makes the topic")


async def reborn(address: str) -> Counter[str]:
    async with peer_of(address) as peer:
        found = [each.body.decode() for each in await peer.all_of("Reborn")]
    return Counter(each for each in found if each.startswith("letter"))


def lines_in(record: Path) -> int:
    return record.read_bytes().count(b"\n") if record.exists() else 0


@pytest.mark.slow
def test_replay_resumes_where_it_was_killed(tmp_path: Path) -> None:
    seed = random.SystemRandom().getrandbits(32)
    chance = random.Random(seed)
    record = tmp_path / "record.jsonl"
    broker, ready = start(tmp_path / "store")
    words = ("--to-topic", "Reborn", "--record", str(record), "--name-server", ready["name-server"])
    replay = [*PROGRAM, "dlq", "replay", "G", *words]
    try:
        asyncio.run(make_letters(ready["broker"]))
        for _ in range(KILLS):
            # Somewhere between the two lines of a letter, or between two letters.
            kill_at = lines_in(record) + chance.randrange(1, 2 * LETTERS // KILLS)
            running = subprocess.Popen(replay, stdout=subprocess.DEVNULL)
            deadline = time.monotonic() + SECONDS_MAX
            while running.poll() is None and lines_in(record) < kill_at and time.monotonic() < deadline:
                time.sleep(chance.random() * 0.002)
            running.kill()
            running.wait(SECONDS_MAX)
        done = subprocess.run(replay, capture_output=True, timeout=SECONDS_MAX, check=False)
        assert done.returncode == 0, done.stderr
        found = asyncio.run(reborn(ready["broker"]))
    finally:
        broker.terminate()
        broker.communicate(timeout=SECONDS_MAX)
    assert set(found) == {f"letter {number}" for number in range(LETTERS)}, f"seed {seed}"
    assert set(found.values()) == {1}, f"seed {seed}: sent twice"
