"""Verbs that find messages. Mirrors Java `tools.command.message` and `QueryConsumeQueueCommand`."""

from __future__ import annotations

import os
import re
import tempfile
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path

from orbitlog.cli.mqadmin.java_print import human_time, in_hash_order, second_time
from orbitlog.cli.mqadmin.mq_topics import selected
from orbitlog.cli.mqadmin.verb_flags import FlagValues
from orbitlog.cli.mqadmin.verb_session import VerbFailed, VerbSession
from orbitlog.cli.output.display_text import host_text
from orbitlog.client.consumer.received import Received
from orbitlog.errors import BrokerRefused, OrbitlogError
from orbitlog.formats import names
from orbitlog.wire.codes import ResponseCode

_LABEL = "%-20s %s"
_FOUND = "%-50s %4s %40s"
_TRACE = "%-10s %-20s %-20s %-20s %-10s %-10s"
_RULE = "=" * 38
_PROPERTY_CAPACITY = 128
_BODY_DIRECTORIES = ("rocketmq", "msgbodys")
_ID = re.compile(r"[0-9A-Za-z]{1,64}", re.ASCII)
_NOTHING = BrokerRefused(ResponseCode.NO_MESSAGE, "query message by key finished, but no message.")


async def query_msg_by_id(session: VerbSession, given: FlagValues) -> None:
    if "s" in given or ("g" in given and "d" in given):
        raise VerbFailed("resending is not supported; use `orbitlog dlq replay`, or `orbitlog send` with the body")
    for message_id in filter(None, (each.strip() for each in given["i"].split(","))):
        await show_message(session, await session.admin.message(message_id, given["t"]), charset=given.get("f"))


async def query_msg_by_unique_key(session: VerbSession, given: FlagValues) -> None:
    if "g" in given and "d" in given:
        raise VerbFailed("pushing a message to one consumer is not supported")
    messages = [each async for each in session.admin.find(given["t"], given["i"], count=32, by_id=True)]
    if not messages:
        raise _NOTHING
    messages.sort(key=lambda each: each.stored.store_timestamp_ms)
    for number, message in enumerate(messages if "a" in given else messages[:1]):
        await show_message(session, message, with_offset_id=False, number=number)


async def query_msg_by_offset(session: VerbSession, given: FlagValues) -> None:
    from orbitlog.cli.mqadmin.tools_consumer import ToolsConsumer
    from orbitlog.formats.message_queue import MessageQueue

    queue = MessageQueue(given["t"], given["b"], given.number("i", 0))
    pulled = await (await ToolsConsumer.of(session, given["t"])).pull(queue, given.number("o", 0), count=1)
    if pulled.messages:
        await show_message(session, pulled.messages[0], charset=given.get("f"))


async def query_msg_by_key(session: VerbSession, given: FlagValues) -> None:
    words = {"count": given.number("m", 64), "begin": _moment(given, "b"), "end": _moment(given, "e")}
    messages = [each async for each in session.admin.find(given["t"], given["k"], **words)]  # type: ignore[arg-type]
    if not messages:
        raise _NOTHING
    session.row(_FOUND, "#Message ID", "#QID", "#Offset")
    for message in messages:
        session.row(_FOUND, message.message_id, message.queue_id, message.queue_offset)


def _moment(given: FlagValues, name: str) -> datetime | None:
    return datetime.fromtimestamp(given.number(name, 0) / 1000, UTC) if name in given else None


async def query_msg_trace_by_id(session: VerbSession, given: FlagValues) -> None:
    from orbitlog.wire.trace_records import PUB, SUB_AFTER, TraceRecord, decode_trace

    consumed: dict[str, list[tuple[TraceRecord, str]]] = {}
    topic = given.get("t", names.TRACE_TOPIC)
    words = {"count": given.number("c", 64), "begin": _moment(given, "b"), "end": _moment(given, "e")}
    async for message in session.admin.find(topic, given["i"], **words):  # type: ignore[arg-type]
        host = host_text(message.stored.born_host_raw).rpartition(":")[0]
        for record in decode_trace(message.body):
            if record.message_id != given["i"]:
                continue
            if record.kind == PUB:
                session.row(_TRACE, "#Type", "#ProducerGroup", "#ClientHost", "#SendTime", "#CostTimes", "#Status")
                session.row(_TRACE, "Pub", *_trace_cells(record.group, host, record))
                session.row("")
            elif record.kind == SUB_AFTER:
                consumed.setdefault(record.group, []).append((record, host))
    for group in in_hash_order(consumed):
        session.row(_TRACE, "#Type", "#ConsumerGroup", "#ClientHost", "#ConsumerTime", "#CostTimes", "#Status")
        for record, host in consumed[group]:
            session.row(_TRACE, "Sub", *_trace_cells(group, host, record))
        session.row("")


def _trace_cells(group: str, host: str, record: object) -> tuple[str, ...]:
    timestamp_ms, cost_ms = getattr(record, "timestamp_ms", 0), getattr(record, "cost_ms", 0)
    status = "success" if getattr(record, "success", True) else "failed"
    return group, host, second_time(timestamp_ms), f"{cost_ms}ms", status


# One message with everything about it


async def show_message(
    session: VerbSession,
    message: Received | None,
    *,
    with_offset_id: bool = True,
    charset: str | None = None,
    number: int = 0,
) -> None:
    """Print a message like `QueryMsgByIdSubCommand.printMsg`, and write its body to the same path."""
    if message is None:
        session.print("\nMessage not found!")
        return
    stored = message.stored
    path = _write_body(message, number)
    labels: list[tuple[str, object]] = [("OffsetID:", message.offset_message_id)] if with_offset_id else []
    labels += [
        ("Topic:", message.topic),
        ("Tags:", f"[{message.tags or 'null'}]"),
        ("Keys:", f"[{message.properties.get('KEYS', 'null')}]"),
        ("Queue ID:", message.queue_id),
        ("Queue Offset:", message.queue_offset),
        ("CommitLog Offset:", stored.physical_offset),
        ("Reconsume Times:", stored.reconsume_times),
        ("Born Timestamp:", human_time(stored.born_timestamp_ms)),
        ("Store Timestamp:", human_time(stored.store_timestamp_ms)),
        ("Born Host:", host_text(stored.born_host_raw)),
        ("Store Host:", host_text(stored.store_host_raw)),
        ("System Flag:", stored.sys_flag),
        ("Properties:", properties_of(message)),
        ("Message Body Path:", path),
    ]
    if charset is not None:
        labels.append(("Message Body:", decoded(message.body, charset)))
    for name, value in labels:
        session.row(_LABEL, name, value)
    await _show_tracks(session, message, with_ends=with_offset_id)


def decoded(body: bytes, charset: str) -> str:
    try:
        return body.decode(charset, "replace")
    except LookupError:
        raise VerbFailed(f"{charset} is not a known character set") from None


def properties_of(message: Received) -> dict[str, str]:
    """Return the properties in the order of Apache's tool."""
    properties = message.properties
    return {name: properties[name] for name in in_hash_order(properties, _PROPERTY_CAPACITY)}


def _write_body(message: Received, number: int) -> str:
    """Write the body to a file below the temporary directory, where Apache's tool writes it.

    Every user of the machine can create directories there first: one that is a link or another user's is refused.
    """
    name = message.message_id if _ID.fullmatch(message.message_id) else message.offset_message_id
    name = f"{name}_{number}" if number else name
    path = Path(tempfile.gettempdir())
    with ExitStack() as opened:
        directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        opened.callback(os.close, directory)
        for part in _BODY_DIRECTORIES:
            path /= part
            directory = _own_directory(path, directory)
            opened.callback(os.close, directory)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with os.fdopen(os.open(name, flags, 0o600, dir_fd=directory), "wb") as file:
            file.write(message.body)
    return str(path / name)


def _own_directory(path: Path, parent: int) -> int:
    """Return a descriptor of a directory of this user, which is created if it does not exist."""
    with suppress(FileExistsError):
        os.mkdir(path.name, 0o700, dir_fd=parent)
    try:
        descriptor = os.open(path.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    except OSError as error:
        raise VerbFailed(f"{path} is not a directory of its own ({error.strerror}); remove it, or set TMPDIR") from None
    status = os.fstat(descriptor)
    if status.st_uid != os.geteuid() or status.st_mode & 0o022:
        os.close(descriptor)
        raise VerbFailed(f"{path} belongs to another user, or others may write to it; set TMPDIR to another directory")
    return descriptor


async def _show_tracks(session: VerbSession, message: Received, *, with_ends: bool) -> None:
    route = await session.name_servers.route(message.stored.topic)
    address = next((each for each in map(selected, route.brokers) if each is not None), None)
    groups = [] if address is None else await session.brokers.groups_of_topic(address, message.stored.topic)
    if not groups:
        session.print("\n\nWARN: No Consumer")
        return
    session.print("\n\n")
    for group in groups:
        kind, problem = await _track(session, message, group)
        session.print(
            "MessageTrack [consumerGroup=%s, trackType=%s, exceptionDesc=%s]" + ("\n" if with_ends else ""),
            group,
            kind,
            problem,
        )


async def _track(session: VerbSession, message: Received, group: str) -> tuple[str, str | None]:
    """Return the state of a message in a group, like `messageTrackDetail`."""
    try:
        connected = await session.groups.connections(group)
    except BrokerRefused as error:
        kind = "NOT_ONLINE" if error.code == ResponseCode.CONSUMER_NOT_ONLINE else "UNKNOWN"
        return kind, f"CODE:{error.code} DESC:{error.remark}"
    except OrbitlogError as error:
        return "UNKNOWN", str(error)
    if connected.consume_type == "CONSUME_ACTIVELY":
        return "PULL", None
    if connected.message_model == "BROADCASTING":
        return "CONSUME_BROADCASTING", None
    try:
        stats = await session.groups.stats(group)
    except OrbitlogError as error:
        return "UNKNOWN", str(error)
    topic, queue_id = message.stored.topic, message.queue_id
    for queue, each in stats.offsets.items():
        if (queue.topic, queue.queue_id) == (topic, queue_id) and each.consumer_queue_offset > message.queue_offset:
            tags = connected.subscriptions[topic].tags if topic in connected.subscriptions else ()
            wanted = not tags or "*" in tags or message.tags in tags
            return ("CONSUMED" if wanted else "CONSUMED_BUT_FILTERED"), None
    return "NOT_CONSUME_YET", None


# Units of a queue


async def query_cq(session: VerbSession, given: FlagValues) -> None:
    broker = given.get("b")
    if not broker:
        broker = next(map(selected, (await session.name_servers.route(given["t"])).brokers), None)
    if broker is None:
        raise VerbFailed("No topic route data!")
    index = given.number("i", 0)
    words = (broker, given["t"], given.number("q", 0), index, given.number("c", 10), given.get("g"))
    queue_units = await session.brokers.queue_units(*words)
    if queue_units.filter_data is not None:
        session.row("Filter data: \n%s\n%s", queue_units.filter_data, _RULE)
    session.row("Queue data: \nmax: %d, min: %d", queue_units.max_queue_offset, queue_units.min_queue_offset)
    session.row("%s", _RULE)
    for number, unit in enumerate(queue_units.units, index):
        session.row("idx: %d", number)
        session.row(
            "ConsumeQueueData{physicOffset=%d, physicSize=%d, tagsCode=%d, extendDataJson='%s', bitMap='%s', "
            "eval=%s, msg='%s'}",
            *(unit.physical_offset, unit.size, unit.tags_code, unit.extension, unit.bit_map, unit.matches),
            unit.message,
        )
        session.row("%s", _RULE)
