"""Fit check: compares a slave's store with its master before it follows, because the HA protocol compares nothing.

Three requests to the master: its settings, the range of its log, and its copy of the slave's last message. A slave that
has messages of its own, or another history, must not follow: its log would become a mixture of both.
"""

from __future__ import annotations

import logging

from orbitlog.errors import FormatError, RemotingError, ReplicaMismatch
from orbitlog.formats.records.message import Message, encode_message
from orbitlog.remoting.client import RemotingClient
from orbitlog.settings.properties_file import parse_properties
from orbitlog.store.message_store import MessageStore
from orbitlog.wire.bodies.body_json import read_body
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command
from orbitlog.wire.consume_headers import ViewMessageRequest

log = logging.getLogger(__name__)

_SECONDS = 3.0
_DIGITS_MAX = 19
_NOT_DISPATCHED_MAX = 10_000
_CONTROLLER_KEY = "enableControllerMode"
_SEGMENT_KEY = "mappedFileSizeCommitLog"
_EMPTY_ADVICE = "Move this store away and start the slave with an empty one"


async def check_fit(store: MessageStore, client: RemotingClient, master: str) -> None:
    """Raise `ReplicaMismatch` if the store is not a copy of the master's log up to its end; `RemotingError` if unknown.

    An answer that the master refuses to give does not prevent the slave from following; it is logged.
    """
    await _check_settings(store, client, master)
    if not store.received_to:
        return
    min_offset, end = await log_range(client, master)
    if store.written_to > end:
        raise ReplicaMismatch(
            f"this log ends at {store.written_to}, but that of the master at {end}: it has messages that the master"
            f" does not have; nothing was overwritten. {_EMPTY_ADVICE}; `orbitlog dump` shows the messages"
        )
    if store.written_to < min_offset:
        raise ReplicaMismatch(
            f"this log ends at {store.written_to}, but that of the master starts at {min_offset}: the messages between"
            f" were deleted. {_EMPTY_ADVICE}"
        )
    await _check_last_message(store, client, master, min_offset)


async def _check_settings(store: MessageStore, client: RemotingClient, master: str) -> None:
    settings = await master_settings(client, master)
    if settings.get(_CONTROLLER_KEY, "").lower() == "true":
        raise ReplicaMismatch(f"the master runs with {_CONTROLLER_KEY}=true: only members of its group can follow it")
    size = settings.get(_SEGMENT_KEY, "")
    if is_number(size) and int(size) != store.segment_bytes:
        raise ReplicaMismatch(
            f"segments of the master have {size} bytes, those of this slave {store.segment_bytes}: set"
            f" {_SEGMENT_KEY}={size} and start with an empty store"
        )


async def master_settings(client: RemotingClient, master: str) -> dict[str, str]:
    """Return the settings of the master; none if it refuses to state them."""
    answer = await client.invoke(master, Command(RequestCode.GET_BROKER_CONFIG), _SECONDS)
    if answer.code != ResponseCode.SUCCESS:
        log.warning("could not read the settings of master %s: %s", master, answer.remark)
        return {}
    return dict(parse_properties(answer.body.decode("utf-8", "replace")))


async def log_range(client: RemotingClient, master: str) -> tuple[int, int]:
    """Return start and end of the master's log; raise `RemotingError` if it does not state them."""
    answer = await client.invoke(master, Command(RequestCode.GET_BROKER_RUNTIME_INFO), _SECONDS)
    try:
        body = read_body(answer.body) if answer.body else {}
    except FormatError:
        body = {}
    table = body.get("table") if isinstance(body, dict) else None
    values = [table.get(key) for key in ("commitLogMinOffset", "commitLogMaxOffset")] if isinstance(table, dict) else []
    # A Java broker without a message states -1 as the start of its log.
    texts = ["0" if str(value) == "-1" else str(value) for value in values]
    if len(texts) != 2 or not all(map(is_number, texts)):
        raise RemotingError(f"master {master} does not state the range of its log: {answer.remark or 'invalid answer'}")
    return int(texts[0]), int(texts[1])


def is_number(text: str) -> bool:
    """Return whether a text of a master is a number of at most 64 bits."""
    return text.isdecimal() and len(text) <= _DIGITS_MAX


async def _check_last_message(store: MessageStore, client: RemotingClient, master: str, min_offset: int) -> None:
    """Compare the last message with the master's at the same offset."""
    message = _last_message(store)
    if message is None or message.physical_offset < min_offset:
        return
    answer = await view_message(client, master, message.physical_offset)
    if answer.code == ResponseCode.NO_PERMISSION:
        log.warning("could not compare the last message with master %s: %s", master, answer.remark)
        return
    if answer.code != ResponseCode.SUCCESS or answer.body != encode_message(message):
        raise ReplicaMismatch(
            f"the message at physical offset {message.physical_offset} differs from the master's: this log has another"
            f" history; nothing was overwritten. {_EMPTY_ADVICE}"
        )


def _last_message(store: MessageStore) -> Message | None:
    """Return the last message; not that of a queue if later ones are not dispatched yet."""
    physical_offset = store.last_queued_offset()
    message = None if physical_offset is None else store.read_at(physical_offset)
    for _ in range(_NOT_DISPATCHED_MAX):
        following = None if message is None else store.read_at(message.physical_offset + message.size_bytes)
        if following is None:
            break
        message = following
    return message


async def view_message(client: RemotingClient, master: str, physical_offset: int) -> Command:
    """Ask the master for the record at a physical offset; its bytes are the body of the answer."""
    header = ViewMessageRequest(physical_offset=physical_offset)
    command = Command(RequestCode.VIEW_MESSAGE_BY_ID, ext_fields=header.to_ext_fields())
    return await client.invoke(master, command, _SECONDS)
