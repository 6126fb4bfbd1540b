"""Fast path and slow path of transactions: the same records, responses and counts."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import orjson
import pytest

from orbitlog.broker.transactions.handle_transactions import TransactionHandler
from orbitlog.remoting import incoming_requests
from tests.support.compared_paths import answers, broker_at, log_bytes, settled
from tests.support.hot_path import HotPath, commits, halves

# Fields of an end that differ from those of Java's producer.
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
    """Return an end as Java sends it, or with odd fields."""
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
def test_both_paths_store_and_answer_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, settings: dict[str, str]
) -> None:
    slow_path_calls, take = 0, TransactionHandler.__call__

    def counted(*arguments: Any) -> Any:
        nonlocal slow_path_calls
        slow_path_calls += 1
        return take(*arguments)

    monkeypatch.setattr(TransactionHandler, "__call__", counted)
    # The slow path would give way after some requests, and op messages of the first ones would precede the rest.
    monkeypatch.setattr(incoming_requests, "TURN_SECONDS", 60.0)

    async def work() -> None:
        nonlocal slow_path_calls
        chance = random.Random(seed)
        used = [0, 0]
        async with (
            broker_at(tmp_path / "fast", **settings) as fast,
            broker_at(tmp_path / "slow", **settings) as slow,
        ):
            both = HotPath(fast, keeps=True), HotPath(slow, keeps=True)
            both[1].connection.incoming.fast_path = None
            for path in both:
                path.broker.state.topics.find_or_create("Compare", 8)
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
                    before = slow_path_calls
                    path.feed(b"".join(frames))
                    await settled(path)
                    await asyncio.sleep(0)  # the end of the turn
                    used[number] += slow_path_calls - before
                assert answers(both[0]) == answers(both[1])
                waiting = commits(both[0].transport.kept[-1]) if both[0].transport.kept else []
            assert log_bytes(fast) == log_bytes(slow) != b""
            counts = [broker.state.statistics.put_messages for broker in (fast, slow)]
            assert counts[0].total == counts[1].total > 60
            assert counts[0].times == counts[1].times
            assert fast.state.statistics.put_bytes == slow.state.statistics.put_bytes
            for path in both:
                path.close()
        if "compat" in settings:
            assert used[0] == used[1], "each end has an op message of its own there"
        else:
            assert used[0] < used[1] * 0.85, "the fast path is taken"

    asyncio.run(work())
