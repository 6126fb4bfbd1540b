"""POP acknowledgement handlers: acknowledge popped messages or extend their invisibility timeout.

Mirrors `AckMessageProcessor` and `ChangeInvisibleTimeProcessor`. A late acknowledgement gets the response of any other,
as in Java: the message is in the retry topic by then.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping

from orbitlog.broker.admin.name_checks import known_topic
from orbitlog.broker.pop.earlier_pops import EarlierPops
from orbitlog.broker.pop.pop_service import PopService
from orbitlog.broker.pop.popped_queues import Flight, PopKey
from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.errors import FormatError, RequestRefused
from orbitlog.remoting.connection import Answer, Connection, Handler
from orbitlog.remoting.loop_slices import STEP_ITEMS, at_once, in_slices, sliced
from orbitlog.settings.limits import ACK_BITS_BYTES, ACK_RECEIPTS
from orbitlog.wire.bodies.body_json import decode_request_body
from orbitlog.wire.bodies.client_bodies import BatchAck, BatchAckBody
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command, response_to
from orbitlog.wire.pop_headers import AckMessageRequest, ChangeInvisibleTimeRequest, ChangeInvisibleTimeResponse
from orbitlog.wire.pop_receipt import (
    PopReceipt,
    acknowledged_offsets,
    parse_receipt,
    real_topic,
)

_INVISIBLE_MS_MAX = 30 * 24 * 3600 * 1000
_STEP_MESSAGES = 500  # of one receipt, whose bits may name thousands
_STEP_BODY_BYTES = 16 * 1024


class PopAckHandlers:
    """Serves ACK_MESSAGE, BATCH_ACK_MESSAGE and CHANGE_MESSAGE_INVISIBLETIME."""

    def __init__(
        self, state: BrokerState, service: PopService, wake: Callable[[Iterable[str]], None], earlier: EarlierPops
    ) -> None:
        self._state = state
        self._service = service
        self._wake = wake
        self._earlier = earlier

    @property
    def table(self) -> Mapping[int, Handler]:
        return {
            RequestCode.ACK_MESSAGE: self.acknowledge,
            RequestCode.BATCH_ACK_MESSAGE: self.acknowledge_all,
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME: self.keep_longer,
        }

    def acknowledge(self, _: Connection, request: Command) -> Answer:
        header = AckMessageRequest.from_ext_fields(request.ext_fields)
        receipt = _receipt(header.extra_info)
        key = self._key(header.topic, header.group, header.queue_id)
        low, high = self._state.min_offset(key.topic, key.queue_id), self._state.max_offset(key.topic, key.queue_id)
        if not low <= header.queue_offset <= high:
            raise RequestRefused(
                ResponseCode.NO_MESSAGE,
                f"offset {header.queue_offset} is out of range {low} to {high} of {key.topic} queue {key.queue_id}",
            )
        self._take(key, (header.queue_offset,), receipt)
        return response_to(request, ResponseCode.SUCCESS)

    def acknowledge_all(self, _: Connection, request: Command) -> Answer | Awaitable[Answer]:
        limits = self._state.limits
        limits.refuse_over(ACK_RECEIPTS, request.body.count(b"{") - 1)  # before each of them is decoded
        try:
            body = decode_request_body(BatchAckBody, request.body, "acknowledgements")
        except FormatError as error:
            raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, f"invalid body: {error}") from None
        acks, broker_name = body.acks, body.broker_name or ""
        if not acks:
            raise RequestRefused(ResponseCode.NO_MESSAGE, "the batch contains no receipt")
        limits.refuse_over(ACK_BITS_BYTES, sum(len(ack.bits) for ack in acks) * 3 // 4)  # bits are base64
        steps = self._batch_steps(acks, broker_name)
        if len(request.body) > _STEP_BODY_BYTES:
            return self._answered(request, steps)
        at_once(steps)
        return response_to(request, ResponseCode.SUCCESS)

    async def _answered(self, request: Command, steps: Generator[int, None, None]) -> Command:
        await in_slices(steps)
        return response_to(request, ResponseCode.SUCCESS)

    def _batch_steps(self, acks: Iterable[BatchAck], broker_name: str) -> Generator[int, None, None]:
        """Take the receipts of a batch in steps; each acknowledgement is complete in itself."""
        count = 0
        for ack in acks:
            key = PopKey(real_topic(ack.topic, ack.group, ack.retry), ack.group, ack.queue_id)
            receipt = PopReceipt(
                *(ack.start_queue_offset, ack.pop_timestamp_ms, ack.invisible_ms, ack.revive_queue_id, ack.retry),
                *(broker_name, ack.queue_id, -1),
            )
            for queue_offsets in sliced(_offsets(ack), _STEP_MESSAGES):
                self._take(key, queue_offsets, receipt)
                count += len(queue_offsets)
                if count >= STEP_ITEMS:
                    yield count
                    count = 0

    def _take(self, key: PopKey, queue_offsets: Iterable[int], receipt: PopReceipt) -> None:
        pop_timestamp_ms = receipt.pop_timestamp_ms
        if not receipt.is_ordered:
            for queue_offset in queue_offsets:
                if not self._service.popped.acknowledge(key, queue_offset, pop_timestamp_ms):
                    self._earlier.acknowledge(key, queue_offset, receipt)
            return
        offsets, committed = self._state.offsets, None
        for queue_offset in queue_offsets:
            done_to = self._service.ordered.acknowledge(key, queue_offset, pop_timestamp_ms)
            committed = done_to if done_to is not None else committed
        if committed is not None and committed > (offsets.find(*key) or 0):
            offsets.commit(*key, committed)
            # An ordered queue may deliver its next batch now: wake a request that waits for it.
            self._wake((key.topic,))

    def keep_longer(self, _: Connection, request: Command) -> Answer:
        header = ChangeInvisibleTimeRequest.from_ext_fields(request.ext_fields)
        receipt = _receipt(header.extra_info)
        key = self._key(header.topic, header.group, header.queue_id)
        now_ms = self._state.now_ms()
        visible_ms = now_ms + max(min(header.invisible_ms, _INVISIBLE_MS_MAX), 0)
        popped_ms = receipt.pop_timestamp_ms
        if receipt.is_ordered:
            new_popped_ms = popped_ms
            is_kept = self._service.ordered.keep_longer(key, header.queue_offset, popped_ms, visible_ms)
        else:
            # The timestamp must differ from the old receipt's, or the old receipt would remain valid.
            new_popped_ms = max(now_ms, popped_ms + 1)
            flight = Flight(new_popped_ms, visible_ms, header.queue_offset)
            is_kept = self._service.popped.keep_longer(
                key, header.queue_offset, popped_ms, flight
            ) or self._earlier.keep_longer(key, header.queue_offset, receipt, new_popped_ms, visible_ms)
        if not is_kept:
            raise RequestRefused(ResponseCode.NO_MESSAGE, "the receipt is invalid or expired")
        answer = ChangeInvisibleTimeResponse(
            pop_timestamp_ms=new_popped_ms,
            invisible_ms=visible_ms - new_popped_ms,
            revive_queue_id=receipt.revive_queue_id,
        )
        return response_to(request, ResponseCode.SUCCESS, None, answer.to_ext_fields())

    def _key(self, topic: str, group: str, queue_id: int) -> PopKey:
        config = known_topic(self._state.topics, topic)
        if not 0 <= queue_id < config.read_queue_count:
            raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, f"queueId[{queue_id}] is out of range for topic {topic}")
        return PopKey(topic, group, queue_id)


def _receipt(text: str) -> PopReceipt:
    try:
        return parse_receipt(text)
    except FormatError as error:
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, str(error)) from None


def _offsets(ack: BatchAck) -> list[int]:
    try:
        return acknowledged_offsets(ack.start_queue_offset, base64.b64decode(ack.bits, validate=True))
    except (binascii.Error, ValueError):
        raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, "the bits of a batch are not valid base64") from None
    except FormatError as error:
        raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, str(error)) from None
