"""Batch frames: whole requests from a template of their header, because each batch to a queue has the same one.

Building a header from its fields takes as long as encoding ten rows. Signed requests have no template: the signature
covers the body.
"""

from __future__ import annotations

import time

from orbitlog.client.connection.frame_template import FrameTemplate
from orbitlog.client.producer.outgoing import OutgoingBatch, batch_request
from orbitlog.formats.message_queue import MessageQueue
from orbitlog.formats.records import properties
from orbitlog.pipeline.sink.encoded_rows import RequestRows
from orbitlog.wire.codes import RequestCode
from orbitlog.wire.command import Command
from orbitlog.wire.send_headers import SendMessageV2Request

_TEMPLATES_MAX = 4096
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
        self._templates: dict[MessageQueue, FrameTemplate] = {}

    def frame(self, queue: MessageQueue, rows: RequestRows, opaque: int) -> bytes:
        """Return the request that sends rows to a queue now."""
        template = self._templates.get(queue) or self._make_template(queue)
        return template.frame((opaque, time.time_ns() // 1_000_000), rows.size_bytes, rows.members())

    def _make_template(self, queue: MessageQueue) -> FrameTemplate:
        header = batch_header(queue, self._group)

        def make(number: int) -> Command:
            header.born_timestamp_ms = number
            return Command(RequestCode.SEND_BATCH_MESSAGE, number, ext_fields=header.to_ext_fields())

        if len(self._templates) >= _TEMPLATES_MAX:
            self._templates.clear()
        template = self._templates[queue] = FrameTemplate(make)
        return template
