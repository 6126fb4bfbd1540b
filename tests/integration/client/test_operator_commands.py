"""Commands over system topics: dead letters, transactions, scheduled messages, traces."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

from orbitlog.client.admin.inspection import Inspection
from orbitlog.client.connection.connect import connect
from orbitlog.client.producer.outgoing import make_outgoing, send_request
from orbitlog.formats.message_queue import MessageQueue
from orbitlog.formats.records.flags import TransactionType
from orbitlog.wire.codes import RequestCode
from orbitlog.wire.consume_headers import SendBackRequest
from orbitlog.wire.trace_records import PUB, SUB_AFTER, SUB_BEFORE, TraceRecord, encode_trace
from tests.support.cluster_commands import objects, run

TO_DEAD_LETTERS = -1


def kill_letters(cluster: str, topic: str, group: str, bodies: list[str]) -> None:
    """Send messages, and send each back as a consumer does that gives up at once."""

    async def work() -> None:
        async with connect(cluster) as mq:
            (address,) = (await mq.admin.brokers()).values()
            for number, body in enumerate(bodies):
                receipt = await mq.send(topic, body, tags=f"t{number % 2}", keys=[f"k{number}"])
                physical_offset = int(receipt.offset_message_id[-16:], 16)
                back = SendBackRequest(group=group, physical_offset=physical_offset, delay_level=TO_DEAD_LETTERS)
                await mq.admin.link.invoke(address, RequestCode.CONSUMER_SEND_MSG_BACK, back)

    asyncio.run(work())


def bodies_of(cluster: str, topic: str, count: int) -> list[str]:
    return sorted(each["body"] for each in objects(cluster, "tail", topic, "--from", "first", "--limit", str(count)))


def letter_count(cluster: str, group: str) -> int:
    return sum(each["letters"] for each in objects(cluster, "dlq", "list") if each["group"] == group)


def test_dead_letters_are_listed_shown_and_replayed_once(cluster: str, tmp_path: Path) -> None:
    bodies = [f"letter {number}" for number in range(6)]
    kill_letters(cluster, "Dead", "dead-group", bodies)
    assert letter_count(cluster, "dead-group") == 6
    letters = objects(cluster, "dlq", "list", "dead-group", "--tags", "t1")
    assert [each["keys"] for each in letters] == ["k1", "k3", "k5"]
    assert letters[0]["topic"] == "Dead"
    (shown,) = objects(cluster, "dlq", "show", "dead-group", letters[0]["msgId"])
    assert (shown["topic"], shown["reconsumeTimes"]) == ("%DLQ%dead-group", 1)
    assert "no dead letter" in run(cluster, "dlq", "show", "dead-group", "0" * 32, exit_code=1)

    record = tmp_path / "record.jsonl"
    replay = ("dlq", "replay", "dead-group", "--to-topic", "Reborn", "--record", str(record))
    run(cluster, "topic", "create", "Reborn", "--queues", "2")
    assert len(objects(cluster, *replay, "--dry-run")) == 6 and not record.exists()
    first = objects(cluster, *replay, "--limit", "2", "--rate", "100")
    assert [each["toTopic"] for each in first] == ["Reborn", "Reborn"]
    assert len(objects(cluster, *replay, "--contains", "letter 5")) == 1
    assert len(objects(cluster, *replay)) == 3
    assert objects(cluster, *replay) == []
    assert bodies_of(cluster, "Reborn", 6) == bodies
    sent = [json.loads(line) for line in record.read_text().splitlines()]
    assert [each["state"] for each in sent] == ["sending", "sent"] * 6
    (found,) = objects(cluster, "message", "get", first[0]["newMsgId"], "--topic", "Reborn")
    assert found["properties"]["REPLAYED_ID"] == first[0]["msgId"]
    assert letter_count(cluster, "dead-group") == 6


def test_interrupted_replay_sends_nothing_twice(cluster: str, tmp_path: Path) -> None:
    kill_letters(cluster, "Dead", "cut-group", ["a", "b", "c"])
    run(cluster, "topic", "create", "RebornOnce", "--queues", "1")
    record = tmp_path / "record.jsonl"
    replay = ("dlq", "replay", "cut-group", "--to-topic", "RebornOnce", "--record", str(record))
    objects(cluster, *replay)
    lines = record.read_text().splitlines(keepends=True)
    # Cut off after the second was sent and before that was written down, in the middle of the line.
    record.write_text("".join(lines[:3]) + lines[3][:20])
    assert [each["msgId"] for each in objects(cluster, *replay)] == [json.loads(lines[5])["msgId"]]
    # The third was sent for real before, so it is there twice; the second is not.
    assert bodies_of(cluster, "RebornOnce", 4) == ["a", "b", "c", "c"]
    # Cut off before the second was sent: it is sent, under the id that was written down.
    unsent = {**json.loads(lines[2]), "newMsgId": "0" * 32}
    record.write_text("".join(lines[:2]) + json.dumps(unsent) + "\n" + "".join(lines[4:]))
    assert [each["newMsgId"] for each in objects(cluster, *replay)] == ["0" * 32]
    record.write_text("nonsense}\n" + lines[0])
    assert "line 1: not a valid replay record" in run(cluster, *replay, exit_code=1)


def test_dead_letter_is_replayed_to_its_group_only(cluster: str, tmp_path: Path) -> None:
    kill_letters(cluster, "Dead", "again-group", ["once more"])
    record = tmp_path / "record.jsonl"
    (sent,) = objects(cluster, "dlq", "replay", "again-group", "--record", str(record))
    assert sent["toTopic"] == "%RETRY%again-group"

    async def consume() -> bytes:
        async with connect(cluster) as mq:
            async for message in await mq.consume("Dead", group="again-group"):
                if message.properties.get("REPLAYED_ID") == sent["msgId"]:
                    return message.body
        raise AssertionError

    assert asyncio.run(asyncio.wait_for(consume(), 60)) == b"once more"


def test_pending_transactions_are_listed(cluster: str) -> None:
    async def prepare() -> list[str]:
        async with connect(cluster) as mq:
            await mq.admin.create_topic("Halves", 1)
            ids = []
            for number in range(2):
                message = make_outgoing("Halves", b"half", f"{number:032X}", user_properties={})
                message.properties.update({"TRAN_MSG": "true", "PGROUP": "half-producers"})
                header, body = send_request(
                    message,
                    MessageQueue("Halves", "broker-a", 0),
                    "half-producers",
                    transaction=TransactionType.PREPARED,
                )
                (address,) = (await mq.admin.brokers()).values()
                await mq.admin.link.invoke(address, RequestCode.SEND_MESSAGE_V2, header, body)
                ids.append(message.unique_id)
            return ids

    ids = asyncio.run(prepare())
    rows = objects(cluster, "transactions", "--group", "half-producers")
    assert [row["transactionId"] for row in rows] == ids
    assert {row["topic"] for row in rows} == {"Halves"}
    assert objects(cluster, "transactions", "--older-than", "3600") == []


def test_scheduled_messages_are_listed_and_recalled(cluster: str) -> None:
    objects(cluster, "send", "Later", "in an hour", "--delay", "3600")
    (later,) = objects(cluster, "send", "Later", "in two hours", "--delay", "7200")

    async def by_level() -> None:
        async with connect(cluster) as mq:
            await mq.send("Later", "by level", delay_level=18)

    asyncio.run(by_level())
    rows = objects(cluster, "message", "delayed", "Later")
    assert [row["cancellable"] for row in rows] == [True, True, False]
    assert later["msgId"] in {row["msgId"] for row in rows}
    run(cluster, "message", "cancel", "Later", later["msgId"])
    rows = objects(cluster, "message", "delayed", "Later")
    assert later["msgId"] not in {row["msgId"] for row in rows} and len(rows) == 2
    assert "no delayed message" in run(cluster, "message", "cancel", "Later", later["msgId"], exit_code=1)
    level = next(row["msgId"] for row in rows if not row["cancellable"])
    assert "delay level" in run(cluster, "message", "cancel", "Later", level, exit_code=1)
    handle = next(row["recallHandle"] for row in rows if row["cancellable"])
    run(cluster, "message", "cancel", "Later", handle)
    assert len(objects(cluster, "message", "delayed", "Later")) == 1


def test_the_life_of_a_message(cluster: str) -> None:
    now_ms = int(time.time() * 1000)
    one, other = "A" * 32, "B" * 32
    records = [
        TraceRecord(PUB, one, now_ms, "P", "Traced", host="127.0.0.1:10911", body_bytes=3, cost_ms=2),
        TraceRecord(SUB_BEFORE, one, now_ms + 5, "G", request_id="R"),
        TraceRecord(SUB_AFTER, one, now_ms + 9, "G", cost_ms=4, success=False, request_id="R", result=4),
        TraceRecord(PUB, other, now_ms, "P", "Traced"),
    ]

    async def write() -> None:
        async with connect(cluster) as mq:
            await mq.send("RMQ_SYS_TRACE_TOPIC", encode_trace(records), keys=[one, other])
            for _ in range(100):
                if await Inspection(mq.admin).traces(one):
                    return
                await asyncio.sleep(0.05)

    asyncio.run(write())
    rows = objects(cluster, "message", "trace", one)
    assert [row["step"] for row in rows] == ["sent", "given to a consumer", "consumed"]
    assert [row["outcome"] for row in rows] == ["success", "success", "failed"]
    assert "no trace" in run(cluster, "message", "trace", "C" * 32, exit_code=1)
    assert "no trace" in run(cluster, "message", "trace", one, "--trace-topic", "NobodyTraced", exit_code=1)


def test_traces_of_this_client_are_readable(cluster: str) -> None:
    async def live() -> str:
        async with connect(cluster, trace=True) as mq:
            await mq.admin.create_topic("TracedHere", 1)
            receipt = await mq.send("TracedHere", "one", keys=["trace-key"])
            async for message in mq.consume("TracedHere", group="trace-group", start_from="first"):
                if message.attempts == 0:
                    await message.retry(after=1)
                    continue
                await message.ack()
                break
            return receipt.message_id

    message_id = asyncio.run(asyncio.wait_for(live(), 60))
    deadline = time.monotonic() + 60
    rows = []
    while len(rows) < 5 and time.monotonic() < deadline:
        rows = objects(cluster, "message", "trace", message_id)
    assert [(row["step"], row["outcome"]) for row in rows] == [
        ("sent", "success"),
        ("given to a consumer", "success"),
        ("consumed", "failed"),
        ("given to a consumer", "success"),
        ("consumed", "success"),
    ]
    assert {row["group"] for row in rows[1:]} == {"trace-group"}


def test_quarantined_messages_are_listed_with_the_reason(cluster: str) -> None:
    """A message sent back whose properties leave no room for those of a retry."""
    assert objects(cluster, "message", "quarantined") == []

    async def work() -> None:
        async with connect(cluster) as mq:
            (address,) = (await mq.admin.brokers()).values()
            receipt = await mq.send("Stuck", "too wide", properties={"filler": "x" * 32_580})
            physical_offset = int(receipt.offset_message_id[-16:], 16)
            back = SendBackRequest(group="stuck-group", physical_offset=physical_offset, delay_level=0)
            await mq.admin.link.invoke(address, RequestCode.CONSUMER_SEND_MSG_BACK, back)

    asyncio.run(work())
    (row,) = objects(cluster, "message", "quarantined", "--limit", "5")
    assert (row["fromTopic"], row["omitted"], row["body"]) == ("Stuck", "filler", "too wide")
    assert "properties length" in row["reason"]
