"""Send responses: JSON frames formatted from a template, since a busy broker sends a hundred thousand a second.

The bytes are those of `encode_command`; a test compares them. Requests with binary headers are answered by
`encode_command` itself.
"""

from __future__ import annotations

import json
import struct

from orbitlog.formats.records.message import Message
from orbitlog.store.appending.put_result import AppendedMembers, PutResult
from orbitlog.wire.codes import ResponseCode
from orbitlog.wire.command import LANGUAGE, PROTOCOL_VERSION, Command, Serialization, encode_command, response_to
from orbitlog.wire.frame_start import json_frame

_OFFSET = struct.Struct(">q")


class SendAnswers:
    """Responses to sends that were stored; region and tracing are the same in all of them."""

    def __init__(self, region: str, trace_on: str) -> None:
        self._region = region
        self._trace_on = trace_on
        head = (
            f'{{"code":{ResponseCode.SUCCESS:d},"language":"{LANGUAGE}","version":{PROTOCOL_VERSION},"opaque":%d,'
            '"flag":1,"extFields":'
        )
        ids = '{"msgId":"%s","queueId":"%d","queueOffset":"%d",'
        rest = f'"MSG_REGION":{json.dumps(region)},"TRACE_ON":{json.dumps(trace_on)}}}}}'
        self._template = head + ids + rest.replace("%", "%%")

    def stored_template(self, store_host_raw: bytes) -> bytes:
        """Return a JSON response header, to be formatted with opaque text, physical offset, queue id, queue offset."""
        before, _, after = self._template.partition("%s")
        before = before.replace("%d", "%b", 1)
        return f"{before}{store_host_raw.hex().upper()}%016X{after}".encode()

    def stored(
        self, request: Command, store_host_raw: bytes, physical_offset: int, queue_id: int, queue_offset: int
    ) -> bytes:
        """Return the response to a stored message."""
        message_id = (store_host_raw + _OFFSET.pack(physical_offset)).hex().upper()
        return self._frame(request, message_id, queue_id, queue_offset)

    def deferred(
        self, request: Command, store_host_raw: bytes, result: PutResult, queue_id: int, more_fields: dict[str, str]
    ) -> bytes:
        """Return the response to a stored timer message or half message, which has further fields."""
        message_id = (store_host_raw + _OFFSET.pack(result.physical_offset)).hex().upper()
        ext_fields = self._ext_fields(message_id, queue_id, result.queue_offset) | more_fields
        return encode_command(response_to(request, ResponseCode.SUCCESS, ext_fields=ext_fields))

    def batch_stored(
        self, request: Command, store_host_raw: bytes, physical_offsets: list[int], queue_id: int, queue_offset: int
    ) -> bytes:
        """Return the response to a stored batch; `queue_offset` is that of its first message."""
        return self._frame(request, _ids(store_host_raw, physical_offsets), queue_id, queue_offset)

    def batch_frame(self, opaque: int, batch: Message, appended: AppendedMembers) -> bytes:
        """Return the same for a JSON request of which only the opaque number is known."""
        ids = _ids(batch.store_host_raw, appended.physical_offsets)
        return json_frame((self._template % (opaque, ids, batch.queue_id, appended.queue_offset)).encode())

    def _frame(self, request: Command, message_id: str, queue_id: int, queue_offset: int) -> bytes:
        if request.serialization == Serialization.JSON:
            return json_frame((self._template % (request.opaque, message_id, queue_id, queue_offset)).encode())
        ext_fields = self._ext_fields(message_id, queue_id, queue_offset)
        return encode_command(response_to(request, ResponseCode.SUCCESS, ext_fields=ext_fields))

    def _ext_fields(self, message_id: str, queue_id: int, queue_offset: int) -> dict[str, str]:
        return {
            "msgId": message_id,
            "queueId": str(queue_id),
            "queueOffset": str(queue_offset),
            "MSG_REGION": self._region,
            "TRACE_ON": self._trace_on,
        }


def _ids(store_host_raw: bytes, physical_offsets: list[int]) -> str:
    """Return the message ids, separated by commas: each is the host and a physical offset, in hexadecimal digits."""
    host = store_host_raw.hex().upper()
    # All offsets are packed and converted at once; the separator of `hex` marks where each host goes.
    offsets = struct.pack(f">{len(physical_offsets)}q", *physical_offsets).hex(",", _OFFSET.size).upper()
    return host + offsets.replace(",", "," + host)
