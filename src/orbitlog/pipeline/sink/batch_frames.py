"""Batch frames: whole requests from a template of their header, because each batch to a queue has the same one.

Building a header from its fields takes as long as encoding ten rows. Signed requests have no template: the signature
covers the body.
"""

from __future__ import annotations

import time

from orbitlog.client.producer.outgoing import OutgoingBatch, batch_request
from orbitlog.formats.message_queue import MessageQueue
from orbitlog.formats.records import properties
from orbitlog.pipeline.sink.encoded_rows import RequestRows
from orbitlog.wire.codes import RequestCode
from orbitlog.wire.command import Command, encode_command
from orbitlog.wire.frame_start import FRAME_START_BYTES, TOTAL_BYTES, pack_frame_start
from orbitlog.wire.send_headers import SendMessageV2Request

_TEMPLATES_MAX = 4096
# Placeholders for the varying fields: no topic, group or broker has a name with numbers this long.
_OPAQUE, _BORN_MS = 2_101_234_567, 7_701_234_567_890_123
# No id of the batch itself: Apache 4.9 appends the properties of a batch to each member, and the last UNIQ_KEY wins,
# so all rows would have the same id.
_PROPERTIES = properties.encode_properties({properties.WAIT: "true"}).decode()


def batch_header(queue: MessageQueue, group: str) -> SendMessageV2Request:
    """Return the header of a batch request to a queue."""
    header, _ = batch_request(OutgoingBatch(queue.topic, [], b""), queue, group, "")
    header.properties = _PROPERTIES
    return header


class BatchFrames:
    """The templates of one producer group."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._templates: dict[MessageQueue, tuple[bytes, bytes, bytes]] = {}

    def frame(self, queue: MessageQueue, rows: RequestRows, opaque: int) -> bytes:
        """Return the request that sends rows to a queue now."""
        first, second, third = self._templates.get(queue) or self._make_template(queue)
        header = b"%b%d%b%d%b" % (first, opaque, second, time.time_ns() // 1_000_000, third)
        start = pack_frame_start(TOTAL_BYTES + len(header) + rows.size_bytes, len(header))
        return b"".join((start, header, *rows.members()))

    def _make_template(self, queue: MessageQueue) -> tuple[bytes, bytes, bytes]:
        header = batch_header(queue, self._group)
        header.born_timestamp_ms = _BORN_MS
        command = Command(RequestCode.SEND_BATCH_MESSAGE, _OPAQUE, ext_fields=header.to_ext_fields())
        first, rest = encode_command(command)[FRAME_START_BYTES:].split(b"%d" % _OPAQUE)
        second, third = rest.split(b"%d" % _BORN_MS)
        if len(self._templates) >= _TEMPLATES_MAX:
            self._templates.clear()
        self._templates[queue] = first, second, third
        return first, second, third
