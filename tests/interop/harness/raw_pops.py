"""POP by plain requests: pops, acknowledgements one by one and in batches, and longer invisibility, at any broker."""

from __future__ import annotations

import asyncio
import base64
import json
from dataclasses import dataclass

from orbitlog.access.credentials import Credentials
from orbitlog.formats.names import RETRY_PREFIX
from orbitlog.formats.records.message import decode_message
from orbitlog.remoting.client import RemotingClient
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command

_EMPTY = (ResponseCode.POLLING_TIMEOUT, ResponseCode.PULL_NOT_FOUND)
_SECONDS_MAX = 20.0


@dataclass(frozen=True)
class PoppedMessage:
    """One message that was popped; `topic` is the one that it was popped from, perhaps a retry topic."""

    body: str
    topic: str
    queue_id: int
    queue_offset: int
    receipt: str
    reconsume_times: int
    properties: dict[str, str]
    stated_topic: str
    """The topic in the record."""


@dataclass(frozen=True)
class RawPops:
    """One group's POP requests for one topic."""

    broker_address: str
    broker_name: str
    topic: str
    group: str

    def pop(
        self, count: int = 32, invisible_ms: int = 60_000, *, order: bool = False, from_end: bool = False
    ) -> list[PoppedMessage]:
        answer = self._ask(
            RequestCode.POP_MESSAGE,
            {
                **{"consumerGroup": self.group, "topic": self.topic, "queueId": -1, "pollTime": 0},
                "initMode": int(from_end),
                **{"maxMsgNums": count, "invisibleTime": invisible_ms, "bornTime": 0, "expType": "TAG", "exp": "*"},
                "order": str(order).lower(),
            },
        )
        if answer.code in _EMPTY:
            return []
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        fields = answer.ext_fields
        starts = {tuple(part.split(" ")[:2]): part.split(" ")[2] for part in fields["startOffsetInfo"].split(";")}
        found, position = [], 0
        while position < len(answer.body):
            message = decode_message(answer.body, position)
            position += message.size_bytes
            receipt = message.properties.get("POP_CK")
            if receipt is None:
                times = f"{fields['popTime']} {fields['invisibleTime']} {fields['reviveQid']}"
                retry = "0" if not message.topic.startswith(RETRY_PREFIX) else "2" if "+" in message.topic else "1"
                start = starts[retry, str(message.queue_id)]
                receipt = f"{start} {times} {retry} {self.broker_name} {message.queue_id} {message.queue_offset}"
            found.append(
                PoppedMessage(
                    message.body.decode(),
                    self._popped_from(receipt),
                    message.queue_id,
                    message.queue_offset,
                    receipt,
                    message.reconsume_times,
                    message.properties,
                    message.topic,
                )
            )
        return found

    def _popped_from(self, receipt: str) -> str:
        separator = {"1": "_", "2": "+"}.get(receipt.split(" ")[4])
        return self.topic if separator is None else f"%RETRY%{self.group}{separator}{self.topic}"

    def acknowledge(self, message: PoppedMessage) -> None:
        answer = self._ask(RequestCode.ACK_MESSAGE, self._place(message))
        assert answer.code == ResponseCode.SUCCESS, answer.remark

    def acknowledge_all(self, messages: list[PoppedMessage]) -> None:
        """Acknowledge messages of one pop from one queue."""
        start, popped, invisible, revive_queue, retry, *_ = messages[0].receipt.split(" ")
        bits = sum(1 << one.queue_offset - int(start) for one in messages)
        raw = bits.to_bytes(bits.bit_length() // 8 + 1, "little").rstrip(b"\0")
        ack = {"c": self.group, "t": self.topic, "r": retry, "so": int(start), "q": messages[0].queue_id}
        ack |= {"rq": int(revive_queue), "pt": int(popped), "it": int(invisible), "b": base64.b64encode(raw).decode()}
        body = json.dumps({"brokerName": self.broker_name, "acks": [ack]}).encode()
        answer = self._ask(RequestCode.BATCH_ACK_MESSAGE, {}, body)
        assert answer.code == ResponseCode.SUCCESS, answer.remark

    def keep_longer(self, message: PoppedMessage, invisible_ms: int) -> PoppedMessage:
        """Change the invisible time; returns the message with its new receipt, as Java's client builds it."""
        answer = self._ask(
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME, {**self._place(message), "invisibleTime": invisible_ms}
        )
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        fields = answer.ext_fields
        _, _, _, _, retry, *rest = message.receipt.split(" ")
        times = [fields["popTime"], fields["invisibleTime"], fields["reviveQid"]]
        receipt = " ".join([str(message.queue_offset), *times, retry, *rest])
        return PoppedMessage(**{**vars(message), "receipt": receipt})

    def _place(self, message: PoppedMessage) -> dict[str, object]:
        place = {"consumerGroup": self.group, "topic": message.topic, "queueId": message.queue_id}
        return {**place, "offset": message.queue_offset, "extraInfo": message.receipt}

    def _ask(self, code: int, fields: dict[str, object], body: bytes = b"") -> Command:
        return ask_broker(self.broker_address, code, fields, body)


def ask_broker(
    address: str, code: int, fields: dict[str, object], body: bytes = b"", *, credentials: Credentials | None = None
) -> Command:
    """Send one plain request to a broker, signed if there are credentials."""
    command = Command(code, ext_fields={name: str(value) for name, value in fields.items()}, body=body)
    if credentials is not None:
        credentials.sign(command)

    async def ask() -> Command:
        client = RemotingClient()
        try:
            return await client.invoke(address, command, _SECONDS_MAX)
        finally:
            await client.close()

    return asyncio.run(ask())


def committed_offset(address: str, topic: str, group: str, queue_id: int) -> int:
    """Return the offset that a group has committed at a broker; -1 without one."""
    fields: dict[str, object] = {"consumerGroup": group, "topic": topic, "queueId": queue_id}
    answer = ask_broker(address, RequestCode.QUERY_CONSUMER_OFFSET, {**fields, "setZeroIfNotFound": "false"})
    return int(answer.ext_fields["offset"]) if answer.code == ResponseCode.SUCCESS else -1
