"""Administrative requests: which request codes ordinary clients and brokers need, and which are for operators.

One closed table for every server. A code that is not listed, known or not, is administrative: a new request is closed
to strangers until it is listed here. Without access control, `remoting.request_dispatch` refuses administrative
requests on exposed addresses. With it, `access.request_needs` states what each request needs.
"""

from __future__ import annotations

from enum import Enum

from orbitlog.wire.codes import RequestCode as Code


class RequestKind(Enum):
    """Who needs a request."""

    CLIENT = "client"
    BROKER = "broker"
    ADMINISTRATIVE = "administrative"


# What producers, consumers and the proxy of 5.x send in normal operation.
CLIENT_CODES = frozenset(
    (
        *(Code.SEND_MESSAGE, Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE, Code.SEND_REPLY_MESSAGE),
        *(Code.SEND_REPLY_MESSAGE_V2, Code.CONSUMER_SEND_MSG_BACK, Code.END_TRANSACTION, Code.RECALL_MESSAGE),
        *(Code.PULL_MESSAGE, Code.LITE_PULL_MESSAGE, Code.POP_MESSAGE, Code.PEEK_MESSAGE, Code.NOTIFICATION),
        *(Code.ACK_MESSAGE, Code.BATCH_ACK_MESSAGE, Code.CHANGE_MESSAGE_INVISIBLETIME, Code.POLLING_INFO),
        *(Code.POP_ROLLBACK, Code.QUERY_MESSAGE, Code.VIEW_MESSAGE_BY_ID, Code.QUERY_BROKER_OFFSET),
        *(Code.QUERY_CONSUMER_OFFSET, Code.UPDATE_CONSUMER_OFFSET, Code.SEARCH_OFFSET_BY_TIMESTAMP),
        *(Code.GET_MAX_OFFSET, Code.GET_MIN_OFFSET, Code.GET_EARLIEST_MSG_STORETIME, Code.HEART_BEAT),
        *(Code.UNREGISTER_CLIENT, Code.CHECK_CLIENT_CONFIG, Code.GET_CLIENT_CONFIG),
        *(Code.GET_CONSUMER_LIST_BY_GROUP, Code.LOCK_BATCH_MQ, Code.UNLOCK_BATCH_MQ, Code.QUERY_ASSIGNMENT),
        # One topic or group by its name, which the proxy needs.
        *(Code.GET_TOPIC_CONFIG, Code.GET_SUBSCRIPTIONGROUP_CONFIG),
        # Of a name server
        *(Code.GET_ROUTEINFO_BY_TOPIC, Code.GET_BROKER_CLUSTER_INFO, Code.GET_KV_CONFIG),
    )
)
# What brokers send to name servers, and replicas to their master: registrations, and reads of its tables.
BROKER_CODES = frozenset(
    (
        *(Code.REGISTER_BROKER, Code.UNREGISTER_BROKER, Code.QUERY_DATA_VERSION, Code.BROKER_HEARTBEAT),
        *(Code.GET_BROKER_MEMBER_GROUP, Code.EXCHANGE_BROKER_HA_INFO, Code.GET_ALL_TOPIC_CONFIG),
        *(Code.GET_ALL_CONSUMER_OFFSET, Code.GET_ALL_DELAY_OFFSET, Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG),
        *(Code.GET_ALL_MESSAGE_REQUEST_MODE, Code.GET_TIMER_CHECK_POINT, Code.GET_TIMER_METRICS),
    )
)


def kind_of(code: int) -> RequestKind:
    """Return who needs a request; an unknown code is administrative."""
    if code in CLIENT_CODES:
        return RequestKind.CLIENT
    return RequestKind.BROKER if code in BROKER_CODES else RequestKind.ADMINISTRATIVE


def is_administrative(code: int) -> bool:
    """Return whether a request is for operators only."""
    return kind_of(code) is RequestKind.ADMINISTRATIVE
