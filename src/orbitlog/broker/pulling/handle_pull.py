"""Pull handler: returns messages of a queue, or holds the request until one arrives. Mirrors `PullMessageProcessor`.

Long polling: a pull without messages is held; `wake` answers those that a new message matches, `tick` those whose
timeout has passed. A pull is answered once. Pulls woken together that want the same share one read, and a connection
gets its responses in one write: fifty groups that wait for a message cost fifty writes and one read.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace

from orbitlog.broker.admin.name_checks import checked_group
from orbitlog.broker.pulling.held_pulls import HeldPull, HeldPulls
from orbitlog.broker.pulling.held_requests import HeldOwner
from orbitlog.broker.pulling.pull_answer import PullHints, pull_frame
from orbitlog.broker.runtime import broker_settings as keys
from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.broker.runtime.replication_settings import OFFSET_CHECK_IN_SLAVE, SLAVE_READ
from orbitlog.broker.tables.clients import BROADCASTING, Subscription, no_property_filter, parse_subscription
from orbitlog.errors import OrbitlogError, RequestRefused
from orbitlog.formats.records.message import RECORD_START
from orbitlog.formats.tables.group_config import GroupConfig
from orbitlog.formats.tables.topic_config import PERMISSION_READ, TopicConfig
from orbitlog.remoting.connection import HELD, Answer, Connection, failure_answer
from orbitlog.settings import limits as limit_keys
from orbitlog.store.dispatch.arrival import Arrival
from orbitlog.store.reads.queue_reader import GetResult, GetStatus, ReadRequest, RecordFilter, TagsFilter
from orbitlog.wire.codes import ResponseCode
from orbitlog.wire.command import Command, response_to
from orbitlog.wire.consume_headers import PullMessageRequest, PullMessageResponse

log = logging.getLogger(__name__)

COMMIT, SUSPEND, SUBSCRIPTION = 0x1, 0x2, 0x4
_SUSPEND_MS_MAX = 10 * 60_000
_COUNT_MAX = 4096
_ANSWERED_TOGETHER = 512
_QUEUES_CHECKED = 4096

_CODES = {
    GetStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}


@dataclass(slots=True)
class _Pull:
    """A valid pull request."""

    connection: Connection
    request: Command
    header: PullMessageRequest
    group: GroupConfig
    topic: TopicConfig
    subscription: Subscription
    held_ms: int = 0
    """When it was held, in milliseconds since 1970."""


_Read = tuple[ResponseCode, GetResult, bytes]
_ReadKey = tuple[str, int, int, int, TagsFilter | None, RecordFilter | None]
_Reads = dict[_ReadKey, _Read]


class PullHandler:
    """Serves PULL_MESSAGE and LITE_PULL_MESSAGE."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self.held: HeldPulls[_Pull] = HeldPulls(
            state.held_requests, per_queue_max=state.limits[limit_keys.HELD_PER_QUEUE]
        )
        # A slave that lags must not move consumers to its own end: they wait until it has their offset.
        self._waits_for_master = state.settings.is_slave and not state.settings[OFFSET_CHECK_IN_SLAVE]
        self._woken_pulls: deque[HeldPull[_Pull]] = deque()
        self._subscription_max = state.limits[limit_keys.SUBSCRIPTION_CHARACTERS]
        state.held_requests.add_displacer(self._displace)

    def __call__(self, connection: Connection, request: Command) -> Answer:
        header = request.header
        if not isinstance(header, PullMessageRequest):
            header = PullMessageRequest.from_ext_fields(request.ext_fields)
        pull = self._validated(connection, request, header)
        if header.sys_flag & COMMIT and header.commit_queue_offset >= 0:
            self._state.offsets.commit(header.topic, header.group, header.queue_id, header.commit_queue_offset)
        answer = self._answer(pull, None)
        return HELD if answer is None else answer

    def wake(self, arrivals: Iterable[Arrival]) -> None:
        """Answer the held pulls that a new message matches."""
        self._answer_held(self.held.take_arrived(arrivals))

    def tick(self, now_ms: int) -> None:
        """Answer held pulls whose timeout has passed, and those whose message arrived unnoticed."""
        self._answer_held(self.held.take_expired(now_ms))
        for topic, queue_id in self.held.next_queues(_QUEUES_CHECKED):
            self._answer_held(self.held.take_overdue(topic, queue_id, self._state.max_offset(topic, queue_id)))

    def wake_queue(self, topic: str, queue_id: int) -> None:
        """Answer all held pulls of a queue: the offset of one of them was reset."""
        self._answer_held(self.held.take_queue(topic, queue_id))

    def answer_all(self) -> None:
        """Answer all held pulls: the broker stops."""
        self._answer_now([*self._woken_pulls, *self.held.take_all()])
        self._woken_pulls.clear()

    def answer_owner(self, connection: Connection) -> None:
        """Answer the held pulls of one connection."""
        self._answer_held(self.held.take_owner(connection))

    def drop(self, connection: Connection) -> None:
        """Drop the held pulls of a closed connection."""
        self.held.take_owner(connection)

    def _displace(self, connection: HeldOwner, count: int) -> int:
        """Answer up to `count` of a connection's newest pulls: too many requests are held."""
        newest = self.held.take_newest(connection, count)
        self._answer_now(newest)
        return len(newest)

    def _answer_held(self, held: list[HeldPull[_Pull]]) -> None:
        """Answer pulls that were held; many of them in several turns of the event loop."""
        if not self._woken_pulls:
            self._answer_now(held[:_ANSWERED_TOGETHER])
            if len(held) > _ANSWERED_TOGETHER:
                self._woken_pulls.extend(held[_ANSWERED_TOGETHER:])
                asyncio.get_running_loop().call_soon(self._answer_rest)
        else:
            self._woken_pulls.extend(held)

    def _answer_rest(self) -> None:
        waiting = self._woken_pulls
        self._answer_now([waiting.popleft() for _ in range(min(len(waiting), _ANSWERED_TOGETHER))])
        if waiting:
            asyncio.get_running_loop().call_soon(self._answer_rest)

    def _answer_now(self, held: Iterable[HeldPull[_Pull]]) -> None:
        """Answer pulls that were held, with one write per connection."""
        of_connections: dict[Connection, list[_Pull]] = {}
        for held_pull in held:
            pull = held_pull.request
            of_connections.setdefault(pull.connection, []).append(pull)
        reads: _Reads = {}
        for connection, pulls in of_connections.items():
            answers = [(pull.request, self._woken(pull, reads)) for pull in pulls]
            connection.respond_all(answers)
            if self._state.statistics.observers.is_on:
                self._report(pulls, answers)

    def _report(self, pulls: list[_Pull], answers: list[tuple[Command, Command | bytes]]) -> None:
        """Report long polls that were answered to metrics."""
        now_ms, answered = self._state.now_ms(), self._state.statistics.observers.request_answered
        for pull, (request, answer) in zip(pulls, answers, strict=True):
            answered(request.code, answer, (now_ms - pull.held_ms) / 1000, True, 1)

    def _woken(self, pull: _Pull, reads: _Reads) -> Command | bytes:
        try:
            answer = self._answer(pull, reads)
        except OrbitlogError as error:
            return failure_answer(pull.connection, pull.request, error)
        assert answer is not None
        return answer

    # Reading

    def _answer(self, pull: _Pull, reads: _Reads | None) -> Command | bytes | None:
        """Answer a woken pull, sharing `reads` with the others; without `reads`, answer or hold a new one."""
        state, header = self._state, pull.header
        reset_to = state.offsets.take_reset(header.topic, header.group, header.queue_id)
        if reset_to is not None and reset_to != header.queue_offset:
            return self._moved(pull, reset_to)
        may_hold = reads is None and bool(header.sys_flag & SUSPEND) and not state.is_stopping
        if may_hold and 0 < header.queue_offset == state.max_offset(header.topic, header.queue_id):
            # The usual case of a consumer without lag: no read is needed to know that there is no message.
            state.offsets.note_pull(header.topic, header.group, header.queue_id, header.queue_offset)
            state.statistics.get_requests_missed.add(1)
            if self._hold(pull):
                return None
            may_hold = False
        code, result, body = self._read(pull, reads)
        if reads is None:
            state.offsets.note_pull(header.topic, header.group, header.queue_id, result.next_offset)
        if code is ResponseCode.SUCCESS:
            state.statistics.note_get(header.topic, header.group, result.count, len(body))
        else:
            state.statistics.get_requests_missed.add(1)
            if code is ResponseCode.PULL_NOT_FOUND and may_hold and self._hold(pull):
                return None
            if code is ResponseCode.PULL_OFFSET_MOVED:
                _warn_of_move(header, result)
        suggested = self._suggested_broker(pull.group, result)
        hints = PullHints(pull.topic.sys_flag, pull.group.sys_flag, suggested)
        return pull_frame(pull.request, code, result, body, hints)

    def _suggested_broker(self, group: GroupConfig, result: GetResult) -> int:
        """Return the id of the broker to pull from next: a slave's if the messages are too old to be in memory."""
        state = self._state
        if not state.settings[SLAVE_READ]:
            return 0
        if result.records:
            physical_offset: int = RECORD_START.unpack_from(result.records[-1])[2]
            if state.store.written_to - physical_offset > state.memory_bytes:
                return group.slow_consume_broker_id
        return group.broker_id

    def _read(self, pull: _Pull, reads: _Reads | None) -> _Read:
        """Return what the pull asks for, from `reads` if another pull read it already."""
        state, header, subscription = self._state, pull.header, pull.subscription
        count_max = max(min(header.message_count_max, _COUNT_MAX), 1)
        tags_filter, record_filter = subscription.tags_filter, subscription.record_filter
        key = header.topic, header.queue_id, header.queue_offset, count_max, tags_filter, record_filter
        if reads is not None and (earlier := reads.get(key)) is not None:
            return earlier
        # A broker that suggests slaves looks at the last record.
        may_join = not state.settings[SLAVE_READ]
        request = ReadRequest(header.queue_offset, count_max, tags_filter, record_filter, state.read_limits, may_join)
        result = state.store.get(header.topic, header.queue_id, request)
        code = _code(result, header)
        if code is ResponseCode.PULL_OFFSET_MOVED and self._waits_for_master:
            code, result = ResponseCode.PULL_NOT_FOUND, replace(result, next_offset=header.queue_offset)
        read = code, result, b"".join(result.records)
        if reads is not None:
            reads[key] = read
        return read

    def _hold(self, pull: _Pull) -> bool:
        """Hold a pull for as long as the request and the settings allow; return False if too many are held."""
        state, header = self._state, pull.header
        wait_ms = header.suspend_timeout_ms
        if not state.settings[keys.LONG_POLLING]:
            wait_ms = state.settings[keys.SHORT_POLLING_MS]
        pull.held_ms = state.now_ms()
        if not 0 <= wait_ms <= _SUSPEND_MS_MAX:
            wait_ms = _SUSPEND_MS_MAX if wait_ms > 0 else 0
        until_ms = pull.held_ms + wait_ms
        return self.held.hold(
            HeldPull(
                header.topic,
                header.queue_id,
                header.queue_offset,
                until_ms,
                pull.subscription.tags_filter,
                pull.connection,
                pull,
            )
        )

    def _moved(self, pull: _Pull, queue_offset: int) -> Command:
        """Redirect a consumer to the offset of an operator's reset."""
        topic, queue_id = pull.header.topic, pull.header.queue_id
        header = PullMessageResponse(
            suggested_broker_id=0,
            next_queue_offset=queue_offset,
            min_queue_offset=self._state.min_offset(topic, queue_id),
            max_queue_offset=self._state.max_offset(topic, queue_id),
        )
        return response_to(pull.request, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET", header.to_ext_fields())

    # Validation

    def _validated(self, connection: Connection, request: Command, header: PullMessageRequest) -> _Pull:
        state = self._state
        if not state.settings[keys.BROKER_PERMISSION] & PERMISSION_READ:
            raise RequestRefused(ResponseCode.NO_PERMISSION, "the broker may not be read (brokerPermission)")
        group = state.groups.find(header.group)
        if group is None:
            auto_create = state.settings[keys.AUTO_CREATE_GROUP]
            group = state.groups.find_or_create(checked_group(header.group), auto_create=auto_create)
        if group is None:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group [{header.group}] does not exist"
            )
        if not group.consume_enabled:
            raise RequestRefused(ResponseCode.NO_PERMISSION, f"group {header.group} may not consume (consumeEnable)")
        topic = state.topics.find(header.topic)
        if topic is None:
            raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic[:255]}] does not exist")
        if not topic.permission & PERMISSION_READ:
            raise RequestRefused(ResponseCode.NO_PERMISSION, f"topic {header.topic} may not be read")
        if not 0 <= header.queue_id < topic.read_queue_count:
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{header.queue_id}] is out of range: topic {header.topic} has {topic.read_queue_count} queues"
                " to read",
            )
        subscription = self._subscription(header, group)
        return _Pull(connection, request, header, group, topic, subscription)

    def _subscription(self, header: PullMessageRequest, group: GroupConfig) -> Subscription:
        """Return the group's subscription to the topic, from the request or from the last heartbeat."""
        if header.sys_flag & SUBSCRIPTION:
            if header.subscription and (characters := len(header.subscription)) > self._subscription_max:
                self._state.limits.refuse_over(limit_keys.SUBSCRIPTION_CHARACTERS, characters)
            subscription = parse_subscription(header.topic, header.subscription, header.expression_type)
            if subscription.problem:
                raise RequestRefused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, subscription.problem)
        else:
            subscription = self._registered(header, group)
        if not subscription.data.is_tag and not self._state.settings[keys.PROPERTY_FILTER]:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, no_property_filter(subscription.data.expression_type))
        if subscription.problem:
            raise RequestRefused(ResponseCode.FILTER_DATA_NOT_EXIST, subscription.problem)
        return subscription

    def _registered(self, header: PullMessageRequest, group: GroupConfig) -> Subscription:
        state = self._state
        consumers = state.clients.consumer_group(header.group)
        if consumers is None:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_NOT_EXIST, f"no consumer of group {header.group} has sent a heartbeat"
            )
        if consumers.message_model == BROADCASTING and not group.consume_broadcast_enabled:
            raise RequestRefused(ResponseCode.NO_PERMISSION, f"group {header.group} may not consume by broadcast")
        if not state.groups.may_read(header.group, header.topic):
            raise RequestRefused(ResponseCode.NO_PERMISSION, f"group {header.group} may not read {header.topic}")
        subscription = consumers.subscriptions.get(header.topic)
        if subscription is None:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"group {header.group} is not subscribed to {header.topic}, or not all of its consumers are",
            )
        if subscription.version < header.subscription_version:
            raise RequestRefused(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the last heartbeat had an older subscription")
        return subscription


def _code(result: GetResult, header: PullMessageRequest) -> ResponseCode:
    if result.status is GetStatus.FOUND:
        return ResponseCode.SUCCESS
    if result.status is GetStatus.NO_MESSAGE_IN_QUEUE:
        return ResponseCode.PULL_NOT_FOUND if header.queue_offset == 0 else ResponseCode.PULL_OFFSET_MOVED
    return _CODES[result.status]


def _warn_of_move(header: PullMessageRequest, result: GetResult) -> None:
    log.warning(
        "group %s requested offset %d of %s queue %d, out of range %d to %d: redirected to %d",
        header.group,
        header.queue_offset,
        header.topic,
        header.queue_id,
        result.min_offset,
        result.max_offset,
        result.next_offset,
    )
