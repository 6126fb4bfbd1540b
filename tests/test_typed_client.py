"""A user's program is checked by `mypy --strict`: the blocking client has the types of the asyncio client."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

PROGRAM = """
from datetime import timedelta

from orbitlog import BlockingDelivery, Credentials, Receipt, SendStatus, StartFrom, connect, errors


def send(address: str) -> Receipt:
    with connect(address, credentials=Credentials("key", "secret")) as mq:
        receipt = mq.send("Orders", "one", tags="paid", keys=["k1"], properties={"a": "b"}, delay=timedelta(seconds=3))
        reveal_type(mq)
        reveal_type(receipt)
        reveal_type(mq.send_batch("Orders", ["two", b"three"]))
        reveal_type(mq.admin.topics())
        return receipt


def consume(address: str) -> None:
    def work(delivery: BlockingDelivery) -> None:
        delivery.ack()

    with connect(address) as mq, mq.consume("Orders", group="billing", start_from=StartFrom.FIRST) as consumer:
        reveal_type(consumer.next(1.0))
        for delivery in consumer:
            reveal_type(delivery.body)
            work(delivery)
            break


async def consume_async(address: str) -> None:
    async with connect(address) as mq:
        reveal_type(mq)
        receipt = await mq.send("Orders", "one")
        if receipt.status is not SendStatus.SENT:
            raise errors.OrbitlogError("not stored")


def wrong(address: str) -> None:
    with connect(address) as mq:
        mq.send("Orders", 1)  # error
        mq.send("Orders", "x", tag="paid")  # error
        mq.send("Orders", "x", delay_level="3")  # error
        mq.consume("Orders", grup="billing")  # error
"""
REVEALED = [
    "orbitlog.client.blocking.BlockingRocketMQ",
    "orbitlog.client.producer.receipts.Receipt",
]


@pytest.mark.slow
def test_program_of_a_user_is_checked_strictly(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.lstrip())
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--no-error-summary"]
    environment = os.environ | {"MYPYPATH": str(ROOT / "src")}
    ran = subprocess.run(
        [*command, f"--cache-dir={tmp_path / 'cache'}", program.name],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    lines = ran.stdout.splitlines()
    revealed = [line.split('"')[1] for line in lines if "Revealed type is" in line]
    assert revealed[:2] == REVEALED, ran.stdout
    assert "Any" not in revealed, ran.stdout
    wrong = [number for number, line in enumerate(program.read_text().splitlines(), 1) if line.endswith("# error")]
    assert [int(line.split(":")[1]) for line in lines if ": error:" in line] == wrong, ran.stdout
