"""Slave requests: refuses the requests that change the log or the tables, with the codes of Java's slaves."""

from __future__ import annotations

from collections.abc import Mapping

from orbitlog.errors import RequestRefused
from orbitlog.remoting.connection import Answer, Connection, Handler
from orbitlog.wire.codes import RequestCode as Code
from orbitlog.wire.codes import ResponseCode
from orbitlog.wire.command import Command

_WRITES = (
    *(Code.SEND_MESSAGE, Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE, Code.CONSUMER_SEND_MSG_BACK),
    *(Code.SEND_REPLY_MESSAGE, Code.SEND_REPLY_MESSAGE_V2),
    # Deliveries by POP are recorded in the log.
    *(Code.POP_MESSAGE, Code.PEEK_MESSAGE, Code.NOTIFICATION, Code.ACK_MESSAGE, Code.BATCH_ACK_MESSAGE),
    Code.CHANGE_MESSAGE_INVISIBLETIME,
)
_ENDINGS = (Code.END_TRANSACTION, Code.RECALL_MESSAGE)
TABLE_CHANGES = (
    *(Code.UPDATE_AND_CREATE_TOPIC, Code.UPDATE_AND_CREATE_TOPIC_LIST, Code.DELETE_TOPIC_IN_BROKER),
    *(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST),
    *(Code.DELETE_SUBSCRIPTIONGROUP, Code.UPDATE_AND_GET_GROUP_FORBIDDEN, Code.SET_MESSAGE_REQUEST_MODE),
    *(Code.CLEAN_UNUSED_TOPIC, Code.CLONE_GROUP_OFFSET),
)
RESETS = (Code.INVOKE_BROKER_TO_RESET_OFFSET,)


def slave_table(table: Mapping[int, Handler]) -> dict[int, Handler]:
    """Return the handlers of a slave: those of a master, except for requests that a slave refuses."""
    # As 4.9.7. A 5.5.0 slave answers SYSTEM_BUSY; producers of both versions retry at another broker after either.
    write = _refusing(ResponseCode.SERVICE_NOT_AVAILABLE, "this broker is a slave: send to its master")
    ending = _refusing(ResponseCode.SLAVE_NOT_AVAILABLE, "this broker is a slave: send this to its master")
    change = _refusing(
        ResponseCode.SYSTEM_ERROR,
        "Can't modify topic or subscription group from slave broker, please execute it from master broker.",
    )
    reset = _refusing(ResponseCode.SYSTEM_ERROR, "Can not reset offset in slave broker")
    refusals: dict[int, Handler] = {
        **dict.fromkeys(_WRITES, write),
        **dict.fromkeys(_ENDINGS, ending),
        **dict.fromkeys(TABLE_CHANGES, change),
        **dict.fromkeys(RESETS, reset),
    }
    return {code: refusals.get(code, handler) for code, handler in table.items()}


def _refusing(code: ResponseCode, remark: str) -> Handler:
    def refuse(_: Connection, __: Command) -> Answer:
        raise RequestRefused(code, remark)

    return refuse
