"""POP handlers: the broker assigns messages, not queues, and each message must be acknowledged.

Mirrors `PopMessageProcessor`, `PeekMessageProcessor`, `NotificationProcessor` and `PollingInfoProcessor`. Polling
timeouts are counted by the broker's clock from the arrival of a request: the client's clock may be wrong.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Mapping
from functools import lru_cache

from orbitlog.broker.admin.name_checks import checked_group, known_topic
from orbitlog.broker.pop.held_pops import HeldPop, HeldPops
from orbitlog.broker.pop.pop_service import Popped, PopService, PopWish
from orbitlog.broker.pop.queue_search import QueueSearch
from orbitlog.broker.runtime import broker_settings as keys
from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.broker.tables.clients import Subscription, no_property_filter, parse_subscription
from orbitlog.errors import RequestRefused
from orbitlog.formats.names import RETRY_TOPIC_CHARACTERS_MAX, pop_retry_topic
from orbitlog.formats.tables.topic_config import PERMISSION_READ
from orbitlog.remoting.connection import HELD, Answer, Connection, Handler
from orbitlog.settings.limits import HELD_PER_QUEUE, SUBSCRIPTION_CHARACTERS
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command, response_to
from orbitlog.wire.pop_headers import (
    NotificationRequest,
    NotificationResponse,
    PeekMessageRequest,
    PollingInfoRequest,
    PollingInfoResponse,
    PopMessageRequest,
    PopMessageResponse,
)

_COUNT_MAX = 32
_POLL_MS_MAX = 10 * 60_000
_INVISIBLE_MS_MAX = 30 * 24 * 3600 * 1000
_CACHED_CHARACTERS_MAX = 512
_SEARCH_MS_MAX = 10_000  # for a request without a polling timeout: one search of a wide topic takes this long at most
_FOUND, _NOT_FOUND = "FOUND", "NO_MESSAGE_IN_QUEUE"


class PopHandlers:
    """Serves POP_MESSAGE, PEEK_MESSAGE, NOTIFICATION and POLLING_INFO."""

    def __init__(self, state: BrokerState, service: PopService) -> None:
        self._state = state
        self.service = service
        self.held = HeldPops(
            state.held_requests, per_topic_max=state.limits[HELD_PER_QUEUE], answered=self._report_answer
        )
        state.held_requests.add_displacer(self.held.displace)

    @property
    def table(self) -> Mapping[int, Handler]:
        return {
            RequestCode.POP_MESSAGE: self.pop,
            RequestCode.PEEK_MESSAGE: self.peek,
            RequestCode.NOTIFICATION: self.notification,
            RequestCode.POLLING_INFO: self.polling_info,
        }

    def tick(self, now_ms: int) -> None:
        """Requeue messages whose invisibility timeout has passed, and answer requests whose polling timeout has."""
        self.service.revive_once(now_ms)
        self.held.tick(now_ms)

    def pop(self, connection: Connection, request: Command) -> Answer:
        header = PopMessageRequest.from_ext_fields(request.ext_fields)
        if not 0 < header.message_count_max <= _COUNT_MAX:
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, f"maxMsgNums is out of range 1 to {_COUNT_MAX}")
        self._check(header.topic, header.group, header.queue_id)
        wish = PopWish(
            header.topic,
            header.group,
            header.queue_id,
            header.message_count_max,
            max(min(header.invisible_ms, _INVISIBLE_MS_MAX), 0),
            header.init_mode,
            self._subscription(header),
            header.ordered,
            header.attempt_id,
        )
        # Requests with an equal wish are interchangeable: if the first finds nothing, the others need not be tried.
        search, until_ms = QueueSearch(), self._until_ms(header.poll_ms)
        alike = (RequestCode.POP_MESSAGE, wish.topic, wish.group, wish.queue_id, header.expression, wish.ordered)
        held = HeldPop(
            awaited_topics(wish),
            wish.group,
            wish.queue_id,
            (*alike, wish.attempt_id),
            until_ms,
            connection,
            request,
            lambda: self._found_or_continued(held, search, until_ms, self._popped(request, wish, search)),
            lambda: self._nothing(request, wish),
            wish.ordered,
        )
        return self._now_or_later(held, search, lambda: self._nothing(request, wish, ResponseCode.POLLING_FULL))

    def _popped(self, request: Command, wish: PopWish, search: QueueSearch) -> Command | None:
        popped = self.service.pop(wish, search)
        if not popped.records:
            return None
        header = PopMessageResponse(
            pop_timestamp_ms=popped.pop_timestamp_ms,
            invisible_ms=wish.invisible_ms,
            revive_queue_id=popped.revive_queue_id,
            rest_count=popped.rest_count,
            start_offset_info=";".join(popped.starts),
            message_offset_info=";".join(popped.offsets),
            order_count_info=";".join(popped.counts) if wish.ordered else None,
        )
        return response_to(request, ResponseCode.SUCCESS, _FOUND, header.to_ext_fields(), b"".join(popped.records))

    def _nothing(self, request: Command, wish: PopWish, code: ResponseCode = ResponseCode.POLLING_TIMEOUT) -> Command:
        nothing = Popped(self._state.now_ms(), 0)
        header = PopMessageResponse(
            pop_timestamp_ms=nothing.pop_timestamp_ms,
            invisible_ms=wish.invisible_ms,
            revive_queue_id=nothing.revive_queue_id,
            rest_count=0,
        )
        return response_to(request, code, _NOT_FOUND, header.to_ext_fields())

    async def peek(self, _: Connection, request: Command) -> Answer:
        header = PeekMessageRequest.from_ext_fields(request.ext_fields)
        self._check(header.topic, header.group, header.queue_id)
        count = max(min(header.message_count_max, _COUNT_MAX), 1)
        wish = self._plain_wish(header.topic, header.group, header.queue_id, count)
        search = QueueSearch()
        records = self.service.peek(wish, search)
        while not records and search.is_unfinished:
            await asyncio.sleep(0)
            search.continue_next()
            records = self.service.peek(wish, search)
        answer = PopMessageResponse(
            pop_timestamp_ms=self._state.now_ms(), invisible_ms=0, revive_queue_id=0, rest_count=0
        )
        code = ResponseCode.SUCCESS if records else ResponseCode.PULL_NOT_FOUND
        remark = _FOUND if records else _NOT_FOUND
        return response_to(request, code, remark, answer.to_ext_fields(), b"".join(records))

    def notification(self, connection: Connection, request: Command) -> Answer:
        """Answer when there is a message to pop: proxies ask before they pop."""
        header = NotificationRequest.from_ext_fields(request.ext_fields)
        self._check(header.topic, header.group, header.queue_id)
        wish = self._plain_wish(header.topic, header.group, header.queue_id, 1, header)
        alike: Hashable = (
            *(RequestCode.NOTIFICATION, wish.topic, wish.group, wish.queue_id),
            *(wish.ordered, wish.attempt_id, id(request)),  # unique: one message answers every notification request
        )
        search, until_ms = QueueSearch(), self._until_ms(header.poll_ms)

        def attempt() -> Command | None:
            answer = _notice(request, True) if self.service.has_message(wish, search) else None
            return self._found_or_continued(held, search, until_ms, answer)

        held = HeldPop(
            awaited_topics(wish),
            wish.group,
            wish.queue_id,
            alike,
            until_ms,
            connection,
            request,
            attempt,
            lambda: _notice(request, False),
            wish.ordered,
        )
        return self._now_or_later(held, search, lambda: _notice(request, False, is_full=True))

    def polling_info(self, _: Connection, request: Command) -> Answer:
        header = PollingInfoRequest.from_ext_fields(request.ext_fields)
        count = self.held.count(header.topic, header.group, header.queue_id)
        answer = PollingInfoResponse(polling_count=count)
        return response_to(request, ResponseCode.SUCCESS, None, answer.to_ext_fields())

    # Validation

    def _until_ms(self, poll_ms: int) -> int:
        return self._state.now_ms() + max(min(poll_ms, _POLL_MS_MAX), 0)

    def _now_or_later(self, held: HeldPop, search: QueueSearch, too_many: Callable[[], Command]) -> Answer:
        """Answer now if possible; otherwise hold the request, unless too many are held."""
        answer = held.attempt()
        if answer is not None:
            return answer
        if search.is_unfinished:
            held.until_ms = max(held.until_ms, self._state.now_ms() + _SEARCH_MS_MAX)
        if held.until_ms <= self._state.now_ms() or self._state.is_stopping:
            return held.give_up()
        held.since_ms = self._state.now_ms()
        return HELD if self.held.hold(held) else too_many()

    def _report_answer(self, held: HeldPop, answer: Command) -> None:
        """Report a long poll that was answered to metrics."""
        observers = self._state.statistics.observers
        if observers.is_on:
            waited_s = (self._state.now_ms() - held.since_ms) / 1000
            observers.request_answered(held.request.code, answer, waited_s, True, 1)

    def _found_or_continued(
        self, held: HeldPop, search: QueueSearch, until_ms: int, answer: Command | None
    ) -> Command | None:
        """Return the answer of one window of a search; without one, plan the next window, or give up in time."""
        if answer is not None:
            return answer
        if not search.is_unfinished:
            return held.give_up() if until_ms <= self._state.now_ms() else None
        if not search.is_planned:
            search.is_planned = True
            asyncio.get_running_loop().call_soon(self._continue, held, search)
        return None

    def _continue(self, held: HeldPop, search: QueueSearch) -> None:
        search.is_planned = False
        search.continue_next()
        self.held.attempt_again(held)

    def _plain_wish(
        self, topic: str, group: str, queue_id: int, count: int, header: NotificationRequest | None = None
    ) -> PopWish:
        ordered, attempt_id = (header.ordered, header.attempt_id) if header is not None else (False, None)
        everything = _parsed(topic, None, None)
        return PopWish(topic, group, queue_id, count, 0, 0, everything, ordered, attempt_id)

    def _check(self, topic_name: str, group_name: str, queue_id: int) -> None:
        state = self._state
        if not state.settings[keys.BROKER_PERMISSION] & PERMISSION_READ:
            raise RequestRefused(ResponseCode.NO_PERMISSION, "the broker may not be read (brokerPermission)")
        topic = known_topic(state.topics, topic_name)
        if not topic.permission & PERMISSION_READ:
            raise RequestRefused(ResponseCode.NO_PERMISSION, f"topic {topic_name} may not be read")
        if queue_id >= topic.read_queue_count:
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{queue_id}] is out of range: topic {topic_name} has {topic.read_queue_count} queues to read",
            )
        group = state.groups.find_or_create(
            checked_group(group_name), auto_create=state.settings[keys.AUTO_CREATE_GROUP]
        )
        if group is None:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group [{group_name}] does not exist"
            )
        if not group.consume_enabled:
            raise RequestRefused(ResponseCode.NO_PERMISSION, f"group {group_name} may not consume (consumeEnable)")
        if not state.groups.may_read(group_name, topic_name):
            raise RequestRefused(ResponseCode.NO_PERMISSION, f"group {group_name} may not read {topic_name}")
        if len(pop_retry_topic(group_name, topic_name)) > RETRY_TOPIC_CHARACTERS_MAX:
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER, "the names of group and topic are too long together for a retry topic"
            )

    def _subscription(self, header: PopMessageRequest) -> Subscription:
        self._state.limits.refuse_over(SUBSCRIPTION_CHARACTERS, len(header.expression or ""))
        subscription = _parsed(header.topic, header.expression or None, header.expression_type)
        if not subscription.data.is_tag and not self._state.settings[keys.PROPERTY_FILTER]:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, no_property_filter(subscription.data.expression_type))
        if subscription.problem:
            raise RequestRefused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, subscription.problem)
        return subscription


def awaited_topics(wish: PopWish) -> tuple[str, ...]:
    """Return the topics whose messages answer a request: its own topic and both forms of its retry topic."""
    return (wish.topic, *(pop_retry_topic(wish.group, wish.topic, is_v2=is_v2) for is_v2 in (False, True)))


def _parsed(topic: str, expression: str | None, expression_type: str | None) -> Subscription:
    """Parse a subscription; a short one is cached, as the requests of a group repeat it."""
    if expression is None:
        expression_type = None
    elif len(expression) > _CACHED_CHARACTERS_MAX:
        return parse_subscription(topic, expression, expression_type)
    return _parse_cached(topic, expression, expression_type)


_parse_cached = lru_cache(maxsize=1024)(parse_subscription)


def _notice(request: Command, has_message: bool, *, is_full: bool = False) -> Command:
    header = NotificationResponse(has_message=has_message, polling_full=is_full)
    return response_to(request, ResponseCode.SUCCESS, None, header.to_ext_fields())
