"""Verbs that print the messages of topics. Mirrors Java `PrintMessageSubCommand`, `ConsumeMessageCommand`."""

from __future__ import annotations

import time
from collections import Counter

from orbitlog.cli.mqadmin.java_print import java_text, parse_time_ms, queues_in_hash_order
from orbitlog.cli.mqadmin.mq_messages import decoded, properties_of
from orbitlog.cli.mqadmin.tools_consumer import GROUP, ToolsConsumer
from orbitlog.cli.mqadmin.verb_flags import FlagValues
from orbitlog.cli.mqadmin.verb_session import VerbSession
from orbitlog.cli.output.display_text import host_text
from orbitlog.client.consumer.received import Received
from orbitlog.formats.message_queue import MessageQueue

_RULE = "-" * 56


def queue_text(queue: MessageQueue) -> str:
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"


def message_text(message: Received) -> str:
    """Return Java's `MessageExt.toString`."""
    stored = message.stored
    signed = [byte - 256 if byte > 127 else byte for byte in message.body]
    return (
        f"MessageExt [brokerName={message.broker_name or 'null'}, queueId={stored.queue_id}, "
        f"storeSize={stored.size_bytes}, queueOffset={stored.queue_offset}, sysFlag={stored.sys_flag}, "
        f"bornTimestamp={stored.born_timestamp_ms}, bornHost=/{host_text(stored.born_host_raw)}, "
        f"storeTimestamp={stored.store_timestamp_ms}, storeHost=/{host_text(stored.store_host_raw)}, "
        f"msgId={message.offset_message_id}, commitLogOffset={stored.physical_offset}, bodyCRC={stored.body_crc}, "
        f"reconsumeTimes={stored.reconsume_times}, preparedTransactionOffset={stored.prepared_transaction_offset}, "
        f"toString()=Message{{topic='{stored.topic}', flag={stored.flag}, "
        f"properties={java_text(properties_of(message))}, body={java_text(signed)}, transactionId='null'}}]"
    )


def _show(session: VerbSession, messages: list[Received], charset: str, *, with_body: bool) -> None:
    for message in messages:
        body = decoded(message.body, charset) if with_body else "NOT PRINT BODY"
        session.row("MSGID: %s %s BODY: %s", message.message_id, message_text(message), body)


async def _bounds(pulls: ToolsConsumer, queue: MessageQueue, begin: str | None, end: str | None) -> tuple[int, int]:
    from datetime import UTC, datetime

    async def at(text: str) -> int:
        return await pulls.link.offset_at(queue, datetime.fromtimestamp(parse_time_ms(text) / 1000, UTC))

    low = await pulls.link.min_offset(queue) if begin is None else await at(begin)
    high = await pulls.link.max_offset(queue) if end is None else await at(end)
    return low, high


async def print_msg(session: VerbSession, given: FlagValues) -> None:
    charset, tags, with_body = given.get("c", "UTF-8"), given.get("s", "*"), given.truth("d", True)
    pulls = await ToolsConsumer.of(session, given["t"])
    for queue in queues_in_hash_order(pulls.queues):
        low, high = await _bounds(pulls, queue, given.get("b"), given.get("e"))
        session.row("minOffset=%s, maxOffset=%s, %s", low, high, queue_text(queue))
        while low < high:
            pulled = await pulls.pull(queue, low, tags=tags)
            low = pulled.next_queue_offset
            words = (queue_text(queue), pulled.status, low)
            if pulled.status == "FOUND":
                _show(session, pulled.messages, charset, with_body=with_body)
            elif pulled.status == "NO_MATCHED_MSG":
                session.row("%s no matched msg. status=%s, offset=%s", *words)
            else:
                session.row("%s print msg finished. status=%s, offset=%s", *words)
                break
        session.row("%s", _RULE)


async def print_msg_by_queue(session: VerbSession, given: FlagValues) -> None:
    charset, tags = given.get("c", "UTF-8"), given.get("s", "*")
    queue = MessageQueue(given["t"], given["a"], given.number("i", 0))
    pulls = await ToolsConsumer.of(session, given["t"])
    low, high = await _bounds(pulls, queue, given.get("b"), given.get("e"))
    by_tag: Counter[str] = Counter()
    while low < high:
        pulled = await pulls.pull(queue, low, tags=tags)
        low = pulled.next_queue_offset
        if pulled.status != "FOUND":
            break
        by_tag.update(message.tags for message in pulled.messages if message.tags)
        if given.truth("p"):
            _show(session, pulled.messages, charset, with_body=given.truth("d"))
    if given.truth("f"):
        for tag, count in by_tag.most_common():
            session.row("Tag: %-30s Count: %s", tag, count)


async def consume_message(session: VerbSession, given: FlagValues) -> None:
    error = _flag_error(given)
    if error is not None:
        session.print("%s", error)
        return
    left = given.number("c", 128)
    pulls = await ToolsConsumer.of(session, given["t"], given.get("g", GROUP))
    if "i" in given:
        queue = MessageQueue(given["t"], given["b"], given.number("i", 0))
        low, high = await _bounds(pulls, queue, given.get("s"), given.get("e"))
        start = given.number("o", 0)
        if start > high:
            session.row("%s no matched msg, offset=%s", queue_text(queue), start)
            return
        low = max(low, start)
        if high - low > left:
            session.row("The oldler %d message will be provided", left)
            high = low + left - 1
        await _consume(session, pulls, queue, low, high)
        return
    for queue in queues_in_hash_order(pulls.queues):
        if left == 0:
            return
        low, high = await _bounds(pulls, queue, given.get("s"), given.get("e"))
        if high - low > left:
            session.row("The older %d message of the %d queue will be provided", left, queue.queue_id)
            high, left = low + left - 1, 0
        else:
            left -= high - low + 1
        await _consume(session, pulls, queue, low, high)


def _flag_error(given: FlagValues) -> str | None:
    """Return the error of Apache's tool for incompatible flags, or None."""
    now_ms = time.time_ns() // 1_000_000
    begin_ms = parse_time_ms(given["s"]) if "s" in given else 0
    end_ms = parse_time_ms(given["e"]) if "e" in given else 0
    for is_wrong, sentence in (
        (given.number("c", 128) <= 0, "Please input a positive messageNumber!"),
        ("i" in given and "b" not in given, "Please set the brokerName before queueId!"),
        ("o" in given and "i" not in given, "Please set queueId before offset!"),
        (begin_ms > now_ms, "Please set the beginTimestamp before now!"),
        (end_ms > now_ms, "Please set the endTimestamp before now!"),
        (
            "e" in given and begin_ms > end_ms,
            "Please make sure that the beginTimestamp is less than or equal to the endTimestamp",
        ),
    ):
        if is_wrong:
            return sentence
    return None


async def _consume(session: VerbSession, pulls: ToolsConsumer, queue: MessageQueue, low: int, high: int) -> None:
    while low <= high:
        pulled = await pulls.pull(queue, low, count=high - low + 1)
        low = pulled.next_queue_offset
        words = (queue_text(queue), pulled.status, low)
        if pulled.status == "FOUND":
            session.row("Consume ok")
            _show(session, pulled.messages, "UTF-8", with_body=True)
        elif pulled.status == "NO_MATCHED_MSG":
            session.row("%s no matched msg. status=%s, offset=%s", *words)
        else:
            session.row("%s print msg finished. status=%s, offset=%s", *words)
            return
