"""Verbs that send. Mirrors Java `SendMessageCommand`, `CheckMsgSendRTCommand`, `CLusterSendMsgRTCommand`."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta

from orbitlog.cli.mqadmin.mq_printing import queue_text
from orbitlog.cli.mqadmin.verb_flags import FlagValues
from orbitlog.cli.mqadmin.verb_session import VerbFailed, VerbSession
from orbitlog.client.producer.receipts import SendStatus
from orbitlog.errors import OrbitlogError
from orbitlog.formats.message_queue import MessageQueue

_SENT = "%-32s  %-4s  %-20s    %s"
_ROUND_TRIP = "%-24s  %-24s  %-8s  %-16s  %-16s"
_STATUSES = {
    SendStatus.SENT: "SEND_OK",
    SendStatus.NOT_YET_ON_DISK: "FLUSH_DISK_TIMEOUT",
    SendStatus.NO_REPLICA: "SLAVE_NOT_AVAILABLE",
    SendStatus.NOT_YET_REPLICATED: "FLUSH_SLAVE_TIMEOUT",
}
_BODY_BYTES_MAX = 4 << 20
_BEIJING = timedelta(hours=8)


def _body(size: int, pattern: str = "a") -> str:
    if not 0 <= size <= _BODY_BYTES_MAX:
        raise VerbFailed(f"invalid message size {size}: 0 to {_BODY_BYTES_MAX} bytes")
    return (pattern * (size // len(pattern) + 1))[:size] if len(pattern) == 1 else pattern * -(-size // len(pattern))


async def send_message(session: VerbSession, given: FlagValues) -> None:
    if "i" in given and "b" not in given:
        session.print("Broker name must be set if the queue is chosen!")
        return
    queue = MessageQueue(given["t"], given["b"], given.number("i", 0)) if "i" in given else None
    if queue is not None:
        await session.admin.routes.refresh(given["t"])
    receipt = await session.mq.send(
        given["t"], given["p"], tags=given.get("c"), keys=given.get("k", "").split(), queue=queue
    )
    session.row(_SENT, "#Broker Name", "#QID", "#Send Result", "#MsgId")
    queue_name = (receipt.queue.broker_name, receipt.queue.queue_id)
    session.row(_SENT, *queue_name, _STATUSES[receipt.status], receipt.message_id)


async def check_msg_send_rt(session: VerbSession, given: FlagValues) -> None:
    topic, amount, body = given["t"], given.number("a", 100), _body(given.number("s", 128))
    queues = (await session.admin.routes.of(topic, create=True)).write_queues
    if not queues:
        raise VerbFailed(f"No route info of this topic: {topic}")
    session.row(_SENT, "#Broker Name", "#QID", "#Send Result", "#RT")
    total_ms = 0
    for number in range(amount):
        queue = queues[number % len(queues)]
        sent, elapsed_ms = await _timed(session, topic, body, queue)
        total_ms += elapsed_ms if number else 0
        session.row(_SENT, queue.broker_name, queue.queue_id, sent, elapsed_ms)
    session.row("Avg RT: %s", f"{total_ms / max(amount - 1, 1):.2f}")


async def _timed(session: VerbSession, topic: str, body: str, queue: MessageQueue | None = None) -> tuple[bool, int]:
    started = time.perf_counter()
    try:
        await session.mq.send(topic, body, queue=queue)
    except OrbitlogError:
        return False, int((time.perf_counter() - started) * 1000)
    return True, int((time.perf_counter() - started) * 1000)


async def cluster_rt(session: VerbSession, given: FlagValues) -> None:
    """Measure until interrupted, as Apache's tool does."""
    amount, body = given.number("a", 100), _body(given.number("s", 128))
    as_log, room = given.truth("p"), given.get("m", "noname")
    clusters = (await session.admin.cluster()).clusters
    if not as_log:
        session.row(
            "%-24s  %-24s  %-4s  %-8s  %-8s", "#Cluster Name", "#Broker Name", "#RT", "#successCount", "#failCount"
        )
    while True:
        for cluster in [given["c"]] if "c" in given else sorted(clusters):
            if cluster not in clusters:
                session.print("cluster [%s] not exist", cluster)
                break
            for broker_name in sorted(clusters[cluster]):
                rounds = [await _timed(session, broker_name, body) for _ in range(amount)]
                good = sum(sent for sent, _ in rounds)
                mean_ms = sum(ms for _, ms in rounds[1:]) / max(amount - 1, 1)
                if as_log:
                    now = f"{datetime.now(UTC) + _BEIJING:%Y-%m-%d %H:%M:%S}"
                    session.row("%s|%s|%s|%s|%d", now, room, cluster, broker_name, round(mean_ms))
                else:
                    session.row(_ROUND_TRIP, cluster, broker_name, f"{mean_ms:.2f}", good, amount - good)
        await asyncio.sleep(given.number("i", 10))


async def send_msg_status(session: VerbSession, given: FlagValues) -> None:
    topic, size = given["b"], given.number("s", 128)
    await session.mq.send(topic, _body(16, "hello jodie"))
    for _ in range(given.number("c", 50)):
        started = time.perf_counter()
        receipt = await session.mq.send(topic, _body(size, "hello jodie"))
        session.row(
            "rt=%sms, SendResult=SendResult [sendStatus=%s, msgId=%s, offsetMsgId=%s, messageQueue=%s, "
            "queueOffset=%s, recallHandle=%s]",
            int((time.perf_counter() - started) * 1000),
            _STATUSES[receipt.status],
            receipt.message_id,
            receipt.offset_message_id,
            queue_text(receipt.queue),
            receipt.queue_offset,
            receipt.recall_handle,
        )
