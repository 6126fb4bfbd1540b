"""The answer to a send that was stored, written in one go: it leaves a busy broker a hundred thousand times a second.

The same bytes as `encode_command` writes, which a test holds it to; requests in the binary serialization go there.
"""

from __future__ import annotations

import json
import struct

from orbitlog.store.appending.put_result import PutResult
from orbitlog.wire.codes import ResponseCode
from orbitlog.wire.command import LANGUAGE, PROTOCOL_VERSION, Command, Serialization, encode_command, response_to
from orbitlog.wire.frame_start import json_frame

_OFFSET = struct.Struct(">q")


class SendAnswers:
    """Answers that name region and tracing, which never change."""

    def __init__(self, region: str, trace_on: str) -> None:
        self._region = region
        self._trace_on = trace_on
        head = f'{{"code":%d,"language":"{LANGUAGE}","version":{PROTOCOL_VERSION},"opaque":%d,"flag":1,"extFields":'
        ids = '{"msgId":"%s","queueId":"%d","queueOffset":"%d",'
        rest = f'"MSG_REGION":{json.dumps(region)},"TRACE_ON":{json.dumps(trace_on)}}}}}'
        self._template = head + ids + rest.replace("%", "%%")

    def stored_template(self, store_host_raw: bytes) -> bytes:
        """What answers requests in JSON, with places for number, physical offset, queue id and queue offset."""
        before, _, after = self._template.partition("%s")
        before = before.replace("%d", f"{ResponseCode.SUCCESS:d}", 1)
        return f"{before}{store_host_raw.hex().upper()}%016X{after}".encode()

    def stored(
        self, request: Command, store_host_raw: bytes, physical_offset: int, queue_id: int, queue_offset: int
    ) -> bytes:
        """Answer that one message was stored there."""
        message_id = (store_host_raw + _OFFSET.pack(physical_offset)).hex().upper()
        return self._frame(request, ResponseCode.SUCCESS, message_id, queue_id, queue_offset)

    def put_aside(
        self, request: Command, store_host_raw: bytes, result: PutResult, queue_id: int, more: dict[str, str]
    ) -> bytes:
        """Answer that a message waits for its moment or its end, and by what it is named in either case."""
        message_id = (store_host_raw + _OFFSET.pack(result.physical_offset)).hex().upper()
        ext_fields = self._ext_fields(message_id, queue_id, result.queue_offset) | more
        return encode_command(response_to(request, ResponseCode.SUCCESS, ext_fields=ext_fields))

    def batch_stored(
        self, request: Command, store_host_raw: bytes, physical_offsets: list[int], queue_id: int, queue_offset: int
    ) -> bytes:
        """Answer that several were stored, the first of them at that queue offset."""
        ids = _ids(store_host_raw, physical_offsets)
        return self._frame(request, ResponseCode.SUCCESS, ids, queue_id, queue_offset)

    def batch_frame(
        self, opaque: int, store_host_raw: bytes, physical_offsets: list[int], queue_id: int, queue_offset: int
    ) -> bytes:
        """Answer the same to a request in JSON that has this number."""
        ids = _ids(store_host_raw, physical_offsets)
        text = self._template % (ResponseCode.SUCCESS, opaque, ids, queue_id, queue_offset)
        return json_frame(text.encode())

    def _frame(self, request: Command, code: int, message_id: str, queue_id: int, queue_offset: int) -> bytes:
        if request.serialization == Serialization.JSON:
            text = self._template % (code, request.opaque, message_id, queue_id, queue_offset)
            return json_frame(text.encode())
        return encode_command(
            response_to(request, code, ext_fields=self._ext_fields(message_id, queue_id, queue_offset))
        )

    def _ext_fields(self, message_id: str, queue_id: int, queue_offset: int) -> dict[str, str]:
        return {
            "msgId": message_id,
            "queueId": str(queue_id),
            "queueOffset": str(queue_offset),
            "MSG_REGION": self._region,
            "TRACE_ON": self._trace_on,
        }


def _ids(store_host_raw: bytes, physical_offsets: list[int]) -> str:
    """Write the ids of messages, apart by commas: each the host and a place, all places in one go."""
    host = store_host_raw.hex().upper()
    places = struct.pack(f">{len(physical_offsets)}q", *physical_offsets).hex(",", _OFFSET.size).upper()
    return host + places.replace(",", "," + host)
