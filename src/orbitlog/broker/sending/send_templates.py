"""Send templates: what the slow path found out about a send, kept for the sends that repeat it.

A template is valid for sends over the same connection that have the same text in every header field, except opaque
number, queue, born timestamp and properties (`MESSAGE_FIELDS`). The verdict of every header rule is part of it. A
template that is used often also has a header pattern, so that its sends are read without parsing JSON. JSON headers
only.
"""

from __future__ import annotations

from dataclasses import replace

import orjson

from orbitlog.broker.sending.send_rules import MESSAGE_FIELDS, Send, queue_ids, send_limits
from orbitlog.formats import names
from orbitlog.formats.java import INT_MAX
from orbitlog.formats.records import flags
from orbitlog.formats.records.message import Message, make_message, record_version
from orbitlog.formats.records.record_template import RecordTemplate, template_of
from orbitlog.formats.tables.topic_config import TopicConfig
from orbitlog.wire.codes import RequestCode
from orbitlog.wire.command import Command
from orbitlog.wire.header_patterns import OPAQUE_MARK, OPAQUE_VALUE, HeaderPattern, header_pattern
from orbitlog.wire.send_headers import SendMessageRequest

SEND, BATCH = int(RequestCode.SEND_MESSAGE_V2), int(RequestCode.SEND_BATCH_MESSAGE)
HEADER_STARTS = {SEND: b'{"code":310,', BATCH: b'{"code":320,'}
RUN_MAX = 64
"""Messages of one run: they are appended by one write."""
_QUEUE, _BORN, _PROPERTIES = MESSAGE_FIELDS.values()
_TIMESTAMP_DIGITS_MAX = 18
_TEMPLATES_MAX = 4096
_PATTERNS_MAX = 16
_USES_BEFORE_PATTERN = 32

_loads = orjson.loads

# The values of one message in a header, as JSON writes them.
MESSAGE_VALUES = {
    OPAQUE_MARK: OPAQUE_VALUE,
    b'"%b":"' % _QUEUE.encode(): rb"([0-9]{1,5})",
    b'"%b":"' % _BORN.encode(): rb"([0-9]{1,18})",
    b'"%b":' % _PROPERTIES.encode(): rb'("[^"]*")',
}

_NO_PATTERN = HeaderPattern(lambda header: None, ())  # of a template that is not used often
TemplateKey = tuple[str | int, ...]


def _committed_record(half: Message, topic: str) -> RecordTemplate | None:
    if half.topic != names.HALF_TOPIC:
        return None
    sys_flag = flags.with_transaction_type(half.sys_flag, flags.TransactionType.COMMIT)
    return template_of(half._replace(topic=topic, sys_flag=sys_flag, version=record_version(topic)))


class SendTemplate:
    """What the sends of one template share: record template, queues by the text of their ids, response header.

    Half messages also share the record template of their commits.
    """

    __slots__ = ("answer", "committed", "is_oneway", "message", "pattern", "queues", "record", "send", "uses")

    def __init__(self, send: Send, message: Message, record: RecordTemplate, answer: bytes, *, is_oneway: bool) -> None:
        config = send.config
        assert config is not None
        # The fields of one message are removed: no rule must read them, and properties may be large.
        self.send = send._replace(header=replace(send.header, properties=None, queue_id=-1, born_timestamp_ms=0))
        self.message = message._replace(body=b"")
        self.record = record
        self.committed = _committed_record(message, config.topic)
        self.queues = {b"%d" % queue_id: (config.topic, queue_id) for queue_id in queue_ids(config)}
        self.answer = answer
        self.uses = 0
        self.pattern = _NO_PATTERN
        self.is_oneway = is_oneway


def _no_template() -> SendTemplate:
    """Return a template that matches no header."""
    message = make_message(names.SELF_TEST_TOPIC, b"")
    record = template_of(message)
    assert record is not None
    header = SendMessageRequest("", message.topic, "", 0, 0, 0, 0, 0)
    limits = send_limits(0, 0, rejects_transactions=True, waits_for_flush=False)
    send = Send(header, TopicConfig(message.topic, 0, 0), ("", 0), limits)
    return SendTemplate(send, message, record, b"", is_oneway=False)


_NO_TEMPLATE = _no_template()


class TemplateCache:
    """The templates of one connection; those of half messages are in a cache of their own, `halves`.

    `recent` contains, by request code, the template that was used last, of those that have a pattern.
    """

    __slots__ = ("by_fields", "halves", "pattern_count", "recent")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.by_fields: dict[TemplateKey, SendTemplate] = {}
        self.pattern_count = 0
        self.recent = dict.fromkeys(HEADER_STARTS, _NO_TEMPLATE)
        self.halves: TemplateCache | None = None

    def add(self, request: Command, send: Send, message: Message, answer: bytes) -> bool:
        """Add the template of a send that was stored; return False if its record or its header is not suited."""
        record = template_of(message)
        shared = {name: text for name, text in request.ext_fields.items() if name not in MESSAGE_FIELDS.values()}
        if record is None or len(shared) + len(MESSAGE_FIELDS) != len(request.ext_fields):
            return False
        if len(self.by_fields) >= _TEMPLATES_MAX:
            self.clear()
        template = SendTemplate(send, message, record, answer, is_oneway=request.is_oneway)
        self.by_fields[(*shared, *shared.values(), request.flag, request.code)] = template
        return True


def parse_timestamp(text: bytes) -> int:
    """Return the milliseconds; raise `ValueError` if the slow path should parse, or refuse, them."""
    if not text.isdigit() or len(text) > _TIMESTAMP_DIGITS_MAX:
        raise ValueError("not a plain timestamp")
    return int(text)


ReadSend = tuple[SendTemplate, bytes, bytes, bytes, str]
"""Template, opaque number, queue id and born timestamp as text, properties. A tuple: it is made for every send."""
VerifiedSend = tuple[SendTemplate, bytes, bytes, bytes, str, bytes]
"""The same of a send whose signature was verified, and the bytes of the properties."""


def match_recent(cache: TemplateCache, header: bytes, code: int) -> ReadSend | None:
    """Read a header by the pattern of the template that was used last; None if it does not match."""
    template = cache.recent[code]
    match, groups = template.pattern
    values = match(header)
    if values is None:
        return None
    opaque, queue_text, time_text, properties = values.group(*groups)
    return template, opaque, queue_text, time_text, _loads(properties)


def find_by_fields(cache: TemplateCache, header: bytes, code: int) -> ReadSend:
    """Parse a header and look its template up.

    Raise `KeyError`, `TypeError`, `ValueError` or `AttributeError` if it has no template or is not valid.
    """
    if not header.startswith(HEADER_STARTS[code]):
        raise ValueError("another request")
    fields = _loads(header)
    opaque, flag = fields["opaque"], fields["flag"]
    ext_fields = fields["extFields"]
    if (
        not (type(opaque) is type(flag) is type(fields["version"]) is int)
        or fields["code"] != code
        or not 0 <= opaque <= INT_MAX
    ):
        raise ValueError("not a plain header")
    pop = ext_fields.pop
    queue_text, time_text, properties = pop(_QUEUE).encode(), pop(_BORN).encode(), pop(_PROPERTIES)
    if type(properties) is not str:
        raise TypeError("properties are not text")
    template = cache.by_fields[(*ext_fields, *ext_fields.values(), flag, code)]
    template.uses += 1
    if template.uses >= _USES_BEFORE_PATTERN:
        if template.uses == _USES_BEFORE_PATTERN and cache.pattern_count < _PATTERNS_MAX:
            cache.pattern_count += 1
            template.pattern = header_pattern(header, MESSAGE_VALUES) or _NO_PATTERN
        if template.pattern is not _NO_PATTERN:
            cache.recent[code] = template
    return template, b"%d" % opaque, queue_text, time_text, properties
