"""Request budgets: the largest header and body of each request code, for broker and name server.

A code that is not in the table has nearly no body. The frame decoder asks as soon as it has the header of a large
frame, before it buffers the body.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from orbitlog.settings import limits as keys
from orbitlog.settings.limits import Limits
from orbitlog.settings.setting import Setting
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import FLAG_RESPONSE

UNCHECKED_BYTES = 4 * 1024
"""No budget is smaller, so frames up to this size need no check."""

_MESSAGE_CODES = frozenset(
    (
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
        RequestCode.CONSUME_MESSAGE_DIRECTLY,
    )
)
# Headers with message properties, lists of names or filter expressions.
_LARGE_HEADER_CODES = _MESSAGE_CODES | frozenset(
    (
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
        RequestCode.POP_MESSAGE,
        RequestCode.GET_CONSUME_STATS,
        RequestCode.QUERY_CORRECTION_OFFSET,
        RequestCode.PUT_KV_CONFIG,
        RequestCode.UPDATE_AND_CREATE_TOPIC,
    )
)
BODY_LIMITS: dict[int, Setting[int]] = {
    **dict.fromkeys(
        (
            RequestCode.HEART_BEAT,
            RequestCode.LOCK_BATCH_MQ,
            RequestCode.UNLOCK_BATCH_MQ,
            RequestCode.CHECK_CLIENT_CONFIG,
        ),
        keys.CLIENT_BODY_BYTES,
    ),
    **dict.fromkeys(
        (
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
            RequestCode.UPDATE_BROKER_CONFIG,
            RequestCode.UPDATE_NAMESRV_CONFIG,
            RequestCode.REGISTER_TOPIC_IN_NAMESRV,
            RequestCode.QUERY_ASSIGNMENT,
            RequestCode.SET_MESSAGE_REQUEST_MODE,
            RequestCode.BATCH_ACK_MESSAGE,
            RequestCode.AUTH_CREATE_USER,
            RequestCode.AUTH_UPDATE_USER,
            RequestCode.AUTH_CREATE_ACL,
            RequestCode.AUTH_UPDATE_ACL,
        ),
        keys.LIST_BODY_BYTES,
    ),
    RequestCode.REGISTER_BROKER: keys.REGISTRATION_BODY_BYTES,
}
"""Codes with a body, except those whose body is a message: these may have `maxMessageSize` bytes."""


class BudgetRefusal(NamedTuple):
    """The response to a request over its budget; `limit` is None for `maxMessageSize`."""

    limit: Setting[int] | None
    code: ResponseCode
    remark: str


class RequestBudgets:
    """The budgets of one server; `message_bytes` returns `maxMessageSize`, which may change while it runs."""

    def __init__(self, limits: Limits, message_bytes: Callable[[], int] | None = None) -> None:
        self._limits = limits
        self._message_bytes = message_bytes

    def refusal(self, code: int, flag: int, header_bytes: int, body_bytes: int) -> BudgetRefusal | None:
        """Return the response to a request that is over its budget, otherwise None."""
        is_response = flag & FLAG_RESPONSE
        if not is_response and code in _MESSAGE_CODES and self._message_bytes is not None:
            body_bytes_max = self._message_bytes()
            if body_bytes > body_bytes_max:
                remark = (
                    f"the message is illegal: a body of {body_bytes} bytes; msg body length limit {body_bytes_max}B,"
                    " msg properties length limit 32KB"
                )
                return BudgetRefusal(None, ResponseCode.MESSAGE_ILLEGAL, remark)
        else:
            body_limit = keys.RESPONSE_BODY_BYTES if is_response else BODY_LIMITS.get(code, keys.PLAIN_BODY_BYTES)
            if body_bytes > self._limits[body_limit]:
                return self._over(body_limit, "body", body_bytes)
        header_limit = keys.LARGE_HEADER_BYTES if code in _LARGE_HEADER_CODES else keys.PLAIN_HEADER_BYTES
        return self._over(header_limit, "header", header_bytes) if header_bytes > self._limits[header_limit] else None

    def _over(self, limit: Setting[int], part: str, size: int) -> BudgetRefusal:
        remark = f"{part} of {size} bytes exceeds the maximum of {self._limits[limit]} for this request ({limit.key})"
        return BudgetRefusal(limit, ResponseCode.INVALID_PARAMETER, remark)
