"""Pull frames: pull requests from a template, because the pulls of a queue differ in offsets and counts only."""

from __future__ import annotations

from dataclasses import replace

from orbitlog.wire.codes import RequestCode
from orbitlog.wire.command import Command
from orbitlog.wire.consume_headers import PullMessageRequest
from orbitlog.wire.frame_template import INT_PLACE, LONG_PLACES, OPAQUE_PLACE, FrameTemplate

_TEMPLATES_MAX = 4096
_Key = tuple[str, int, int, int, int, str | None, str | None]


class PullFrames:
    """The templates of one consumer group."""

    def __init__(self) -> None:
        self._templates: dict[_Key, FrameTemplate] = {}

    def frame(self, header: PullMessageRequest, opaque: int) -> bytes:
        """Return the frame of a request with this header."""
        key = (
            *(header.topic, header.queue_id, header.sys_flag, header.suspend_timeout_ms, header.subscription_version),
            *(header.subscription, header.expression_type),
        )
        template = self._templates.get(key) or self._make_template(key, header)
        numbers = opaque, header.queue_offset, header.message_count_max, header.commit_queue_offset
        return template.frame(numbers)

    def _make_template(self, key: _Key, header: PullMessageRequest) -> FrameTemplate:
        first, second = LONG_PLACES
        placed = replace(header, queue_offset=first, message_count_max=INT_PLACE, commit_queue_offset=second)
        command = Command(RequestCode.PULL_MESSAGE, OPAQUE_PLACE, ext_fields=placed.to_ext_fields())
        if len(self._templates) >= _TEMPLATES_MAX:
            self._templates.clear()
        template = self._templates[key] = FrameTemplate(command, (OPAQUE_PLACE, first, INT_PLACE, second))
        return template
