"""The short way of transactions and the long one: the same records, the same answers, the same counts."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import orjson
import pytest

from orbitlog.broker.transactions.handle_transactions import TransactionHandler
from tests.support.broker_bytes import answers, broker_at, log_bytes, settled
from tests.support.hot_path import HotPath, commits, halves

# What one who ends a transaction may say otherwise than Java's producer does.
ODD_FIELDS = [
    {"commitOrRollback": "12"},
    {"commitOrRollback": "0"},
    {"commitOrRollback": "08"},
    {"commitOrRollback": "x"},
    {"producerGroup": "other"},
    {"fromTransactionCheck": "true"},
    {"fromTransactionCheck": "perhaps"},
    {"commitLogOffset": "0"},
    {"commitLogOffset": "-1"},
    {"commitLogOffset": "9" * 30},
    {"commitLogOffset": "\u0663"},
    {"tranStateTableOffset": "0"},
    {"tranStateTableOffset": "+1"},
    {"msgId": "x", "transactionId": "x", "bname": "broker-a"},
]


def end_frame(chance: random.Random, usual: bytes) -> bytes:
    """An end as it comes mostly, or as it may come."""
    if chance.random() < 0.6:
        return usual
    fields = orjson.loads(usual[8:])
    fields["extFields"] |= chance.choice(ODD_FIELDS)
    if chance.random() < 0.2:
        del fields["extFields"][chance.choice(sorted(fields["extFields"]))]
    fields["flag"] = chance.choice([2, 2, 2, 0, 6])
    header = orjson.dumps(fields)
    return (len(header) + 4).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header


@pytest.mark.parametrize(
    ("seed", "settings"),
    [(0, {}), (1, {}), (2, {}), (3, {"compat": "4.9"}), (4, {"flush": "SYNC_FLUSH"})],
    ids=["first", "second", "third", "4.9", "sync flush"],
)
def test_both_ways_store_and_answer_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, settings: dict[str, str]
) -> None:
    long_way, take = 0, TransactionHandler.__call__

    def counted(*arguments: Any) -> Any:
        nonlocal long_way
        long_way += 1
        return take(*arguments)

    monkeypatch.setattr(TransactionHandler, "__call__", counted)

    async def work() -> None:
        nonlocal long_way
        chance = random.Random(seed)
        used = [0, 0]
        async with (
            broker_at(tmp_path / "quick", **settings) as quick,
            broker_at(tmp_path / "long", **settings) as plain,
        ):
            both = HotPath(quick, keeps=True), HotPath(plain, keeps=True)
            both[1].connection._quick = None
            for path in both:
                path.broker.state.topics.make("Compare", 8)
            waiting: list[bytes] = []
            for turn in range(25):
                sent = halves(
                    chance.choice([1, 3, 10]), body_bytes=chance.choice([1, 128, 128, 5000]), first=1 + turn * 20
                )
                ending = [end_frame(chance, each) for each in waiting]
                ending += chance.choices(ending, k=2) if ending and chance.random() < 0.3 else []
                frames = sent + ending
                chance.shuffle(frames)
                for number, path in enumerate(both):
                    before = long_way
                    path.feed(b"".join(frames))
                    await settled(path)
                    await asyncio.sleep(0)  # the end of the turn
                    used[number] += long_way - before
                assert answers(both[0]) == answers(both[1])
                waiting = commits(both[0].transport.kept[-1]) if both[0].transport.kept else []
            assert log_bytes(quick) == log_bytes(plain) != b""
            counts = [broker.state.statistics.put_messages for broker in (quick, plain)]
            assert counts[0].total == counts[1].total > 60
            assert counts[0].times == counts[1].times
            assert quick.state.statistics.put_bytes == plain.state.statistics.put_bytes
            for path in both:
                path.close()
        if "compat" in settings:
            assert used[0] == used[1], "each end has an op message of its own there"
        else:
            assert used[0] < used[1] * 0.85, "the short way is taken"

    asyncio.run(work())
