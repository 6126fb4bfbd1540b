"""Pull frames: pull requests from a template, because the pulls of a queue differ in offsets and counts only."""

from __future__ import annotations

from dataclasses import replace

from orbitlog.client.connection.frame_template import FrameTemplate
from orbitlog.wire.codes import RequestCode
from orbitlog.wire.command import Command
from orbitlog.wire.consume_headers import PullMessageRequest

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
        def make(number: int) -> Command:
            placed = replace(header, queue_offset=number, message_count_max=number, commit_queue_offset=number)
            return Command(RequestCode.PULL_MESSAGE, number, ext_fields=placed.to_ext_fields())

        if len(self._templates) >= _TEMPLATES_MAX:
            self._templates.clear()
        template = self._templates[key] = FrameTemplate(make)
        return template
