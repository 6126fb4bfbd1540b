"""What sends of one kind have in common, found once by the long way: their lane.

Whatever says the same as the first of its lane, in every field but its number, its queue, its time and its properties,
needs none of the checks again. A lane that is used often even knows its headers by their text: a pattern finds the four
values in it, and nothing else has to be read. Requests in JSON alone.
"""

from __future__ import annotations

import orjson

from orbitlog.formats import names
from orbitlog.formats.java import INT_MAX
from orbitlog.formats.records import flags
from orbitlog.formats.records.message import Message, record_version
from orbitlog.formats.records.record_template import RecordTemplate, Row, template_of
from orbitlog.formats.tables.topic_config import TopicConfig
from orbitlog.wire.codes import RequestCode
from orbitlog.wire.header_patterns import OPAQUE_MARK, OPAQUE_VALUE, HeaderPattern, header_pattern

SEND, BATCH = int(RequestCode.SEND_MESSAGE_V2), int(RequestCode.SEND_BATCH_MESSAGE)
STARTS = {SEND: b'{"code":310,', BATCH: b'{"code":320,'}
OWN_FIELDS = ("e", "g", "i")
RUN_MAX = 64
_TIME_DIGITS_MAX = 18
_PATTERNS_MAX = 16
_PATTERN_AFTER_USES = 32

# Properties that hold one of these, behind a separator, are not stored as they came.
SPECIAL_NAMES = (
    "DELAY|POP_CK|CLUSTER|MSG_REGION|TRACE_ON|INNER_NUM|WAIT\x01[^t]|UNIQ_KEY\x01(?:\x02|$)|TIMER_[A-Z_]+|__CRC32#|__LITE_TOPIC"
    "|INNER_MULTI_DISPATCH"
)
_loads = orjson.loads

# The values of a header that are a message's own, as JSON writes them. None of the marks can stand within a text: the
# quotes there have backslashes.
_OWN_VALUES = {
    OPAQUE_MARK: OPAQUE_VALUE,
    b'"e":"': rb"([0-9]{1,5})",
    b'"g":"': rb"([0-9]{1,18})",
    b'"i":': rb'("[^"]*")',
}

LaneKey = tuple[str | int, ...]


class Lane:
    """What sends of one kind share: a template, queues by their ids as text, how they are answered.

    Half messages also share what they become when they are committed.
    """

    __slots__ = ("answer", "committed", "is_oneway", "match", "message", "queues", "template", "uses")

    def __init__(
        self, message: Message, template: RecordTemplate, config: TopicConfig, answer: bytes, *, is_oneway: bool
    ) -> None:
        queue_count = max(config.write_queue_count, config.read_queue_count)
        self.message = message
        self.template = template
        self.committed = _committed_template(message, config.topic)
        self.queues = {b"%d" % queue_id: (config.topic, queue_id) for queue_id in range(queue_count)}
        self.answer = answer
        self.uses = 0
        self.match: HeaderPattern | None = None
        self.is_oneway = is_oneway


class Lanes:
    """The lanes of one connection; `recent` are the ones that were used last, by code, of those that have a pattern.

    Those of half messages are apart.
    """

    __slots__ = ("by_fields", "halves", "pattern_count", "recent")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.by_fields: dict[LaneKey, Lane] = {}
        self.pattern_count = 0
        self.recent: dict[int, Lane] = {}
        self.halves: Lanes | None = None


def _committed_template(half: Message, topic: str) -> RecordTemplate | None:
    if half.topic != names.HALF_TOPIC:
        return None
    sys_flag = flags.with_transaction_type(half.sys_flag, flags.TransactionType.COMMIT)
    return template_of(half._replace(topic=topic, sys_flag=sys_flag, version=record_version(topic)))


def size_of_row(row: Row) -> int:
    template, _, _, body, properties = row
    return template.size_bytes + len(body) + len(properties)


def time_ms_of(text: bytes) -> int:
    if not text.isdigit() or len(text) > _TIME_DIGITS_MAX:
        raise ValueError("for the long way")
    return int(text)


Found = tuple[Lane, int, bytes, bytes, str]


def by_text(lanes: Lanes, header: bytes, code: int) -> Found | None:
    """Find the values of a header that differs from others of its lane in nothing but them."""
    lane = lanes.recent.get(code)
    if lane is None or lane.match is None:
        return None
    match, groups = lane.match
    found = match(header)
    if found is None:
        return None
    opaque, queue_text, time_text, properties = found.group(*groups)
    return lane, int(opaque), queue_text, time_text, _loads(properties)


def by_fields(lanes: Lanes, header: bytes, code: int) -> Found:
    """Read a header, and look for its lane; raises what its values raise where it has none."""
    if not header.startswith(STARTS[code]):
        raise ValueError("another request")
    fields = _loads(header)
    opaque, flag = fields["opaque"], fields["flag"]
    ext_fields = fields["extFields"]
    if (
        not (type(opaque) is type(flag) is type(fields["version"]) is int)
        or fields["code"] != code
        or not 0 <= opaque <= INT_MAX
    ):
        raise ValueError("for the long way")
    pop = ext_fields.pop
    queue_text, time_text, properties = pop("e").encode(), pop("g").encode(), pop("i")
    lane = lanes.by_fields[(*ext_fields, *ext_fields.values(), flag, code)]
    lane.uses += 1
    if lane.uses >= _PATTERN_AFTER_USES:
        if lane.uses == _PATTERN_AFTER_USES and lanes.pattern_count < _PATTERNS_MAX:
            lanes.pattern_count += 1
            lane.match = header_pattern(header, _OWN_VALUES)
        if lane.match is not None:
            lanes.recent[code] = lane
    return lane, opaque, queue_text, time_text, properties
