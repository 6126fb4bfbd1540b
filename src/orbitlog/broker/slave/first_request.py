"""First request: from which offset a slave with an empty store asks a master for its log.

Apache's masters answer a request for offset 0 with their last segment, and any other request with the log from there
on. To get the whole log, an empty slave asks for the start of the first segment or, if that is offset 0, appends the
first record by a request of its own and asks for the byte after it.
"""

from __future__ import annotations

from orbitlog.broker.slave.fit_check import log_range, view_message
from orbitlog.errors import RemotingError
from orbitlog.remoting.client import RemotingClient
from orbitlog.store.message_store import MessageStore
from orbitlog.wire.codes import ResponseCode


async def whole_log_offset(store: MessageStore, client: RemotingClient, master: str) -> int:
    """Return the offset that an empty store must be sent first; it may append the first record of the log.

    Raise `RemotingError` if the master does not state the range of its log or does not return its first record.
    """
    assert not store.received_to, "a store with messages continues at its end"
    min_offset, end = await log_range(client, master)
    if min_offset or end - end % store.segment_bytes == 0:
        return min_offset
    answer = await view_message(client, master, 0)
    if answer.code != ResponseCode.SUCCESS or not answer.body:
        raise RemotingError(
            f"master {master} does not return the first message of its log: {answer.remark or 'empty answer'}"
            " (haFirstRequest=last starts with its last segment)"
        )
    store.append_replicated(0, answer.body)
    return 0
