"""The short way of an ordinary send: from the frame to the log, many at a time, without an object for each.

Whoever sends many messages repeats most of its header. The long way (`SendHandler`) takes the first send of each kind,
with all checks; what it has found is a lane: whatever says the same in every field but its number, its queue, its time
and its properties may take it. A send that differs in anything else, or is unusual in any way, is left where it is, for
the long way. Both give the same records and the same answers, which a test holds them to.

Half messages of transactions have lanes of their own: their properties are read and added to, all else is the same.

A lane that is used often even knows its headers by their text: a pattern finds the four values in it, and nothing else
has to be read. Requests in JSON alone. Where sends wait for the disk, see `SyncedSends`.
"""

from __future__ import annotations

import re
import struct
from collections import deque
from collections.abc import Callable
from zlib import crc32

import orjson

from orbitlog.broker import broker_settings as keys
from orbitlog.broker.broker_state import BrokerState
from orbitlog.broker.half_messages import HALF_QUEUE, HalfMessages
from orbitlog.broker.send_answer import SendAnswers
from orbitlog.formats import names
from orbitlog.formats import properties as props
from orbitlog.formats.java import INT_MAX
from orbitlog.formats.message import BODY_CRC_MASK, Message
from orbitlog.formats.properties import PROPERTIES_BYTES_MAX, decode_properties
from orbitlog.formats.record_template import RecordTemplate, Row, template_of
from orbitlog.formats.topic_config import TopicConfig
from orbitlog.remoting.connection import Connection
from orbitlog.wire.codes import RequestCode
from orbitlog.wire.command import Command, Serialization
from orbitlog.wire.frames import Frame

_JSON = int(Serialization.JSON)
_SEND, _BATCH = int(RequestCode.SEND_MESSAGE_V2), int(RequestCode.SEND_BATCH_MESSAGE)
_STARTS = {_SEND: b'{"code":310,', _BATCH: b'{"code":320,'}
_START_SEND, _START_BATCH = _STARTS[_SEND], _STARTS[_BATCH]
_OWN_FIELDS = ("e", "g", "i")
RUN_MAX = 64
_TIME_DIGITS_MAX = 18
_LANES_MAX = 4096
_PATTERNS_MAX = 16
_PATTERN_AFTER_USES = 32
_UNIQ_KEY = props.UNIQ_KEY + props.NAME_END
_HALF_QUEUE = (names.HALF_TOPIC, HALF_QUEUE)

# Properties that hold one of these, behind a separator, are not stored as they came.
_NAMES = "DELAY|POP_CK|CLUSTER|MSG_REGION|TRACE_ON|INNER_NUM|WAIT\x01[^t]|UNIQ_KEY\x01(?:\x02|$)|TIMER_[A-Z_]+"
_find_special = re.compile(f"\x02(?:TRAN_MSG|{_NAMES})").search
_find_special_of_half = re.compile(f"\0|\x02(?:{_NAMES})").search
_loads = orjson.loads
_pack_start = struct.Struct(">II").pack

# The values of a header that are a message's own, as JSON writes them. None of the marks can stand within a text: the
# quotes there have backslashes.
_OWN_VALUES = {
    b'"opaque":': rb"(0|[1-9][0-9]{0,8})",
    b'"e":"': rb"([0-9]{1,5})",
    b'"g":"': rb"([0-9]{1,18})",
    b'"i":': rb'("[^"]*")',
}

LaneKey = tuple[str | int, ...]
Match = Callable[[bytes], re.Match[bytes] | None]


class _Lane:
    """What sends of one kind share: a template, queues by their ids as text, how they are answered."""

    __slots__ = ("answer", "is_oneway", "match", "message", "queues", "template", "uses")

    def __init__(
        self, message: Message, template: RecordTemplate, config: TopicConfig, answer: bytes, *, is_oneway: bool
    ) -> None:
        queue_count = max(config.write_queue_count, config.read_queue_count)
        self.message = message
        self.template = template
        self.queues = {b"%d" % queue_id: (config.topic, queue_id) for queue_id in range(queue_count)}
        self.answer = answer
        self.uses = 0
        self.match: tuple[Match, tuple[int, ...]] | None = None
        self.is_oneway = is_oneway


class Lanes:
    """The lanes of one connection; `recent` are the ones that were used last, by code, of those that have a pattern.

    Those of half messages are apart.
    """

    __slots__ = ("by_fields", "halves", "pattern_count", "recent")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.by_fields: dict[LaneKey, _Lane] = {}
        self.pattern_count = 0
        self.recent: dict[int, _Lane] = {}
        self.halves: Lanes | None = None


def is_special(properties: str) -> bool:
    """Tell whether there is more to do with the properties of a message than to store them."""
    return _UNIQ_KEY not in properties or _find_special("\x02" + properties) is not None


class QuickSends:
    """Sends that go the short way."""

    def __init__(
        self, state: BrokerState, answers: SendAnswers, halves: HalfMessages, added: dict[str, str], added_raw: bytes
    ) -> None:
        self._state = state
        self._added_to_members = added_raw if state.compat.batch_members_get_batch_properties else b""
        self._topics = state.topics
        self._version = state.topics.data_version
        self._lanes: dict[Connection, Lanes] = {}
        self._answers = answers
        self._halves = halves
        self._added_to_halves = added
        self._added = added_raw
        self._added_after_separator = b"\x02" + added_raw
        self._born_text, self._born_ms = b"0", 0

    def learn(self, connection: Connection, request: Command, message: Message, config: TopicConfig) -> None:
        """Take note of an ordinary send that was stored: others like it may go the short way."""
        if request.code not in _STARTS or request.serialization != _JSON or message.topic == names.TIMER_TOPIC:
            return
        template = template_of(message)
        shared = {name: text for name, text in request.ext_fields.items() if name not in _OWN_FIELDS}
        if template is None or len(shared) + len(_OWN_FIELDS) != len(request.ext_fields):
            return
        self._forget_stale()
        lanes = self._lanes.get(connection)
        if lanes is None:
            lanes = self._lanes[connection] = Lanes()
            connection.on_close(self._forget)
        if message.topic == names.HALF_TOPIC:
            lanes.halves = lanes = lanes.halves or Lanes()
        if len(lanes.by_fields) >= _LANES_MAX:
            lanes.clear()
        answer = self._answers.stored_template(message.store_host_raw)
        lane = _Lane(message._replace(body=b""), template, config, answer, is_oneway=request.is_oneway)
        lanes.by_fields[(*shared, *shared.values(), request.flag, request.code)] = lane

    def _forget(self, connection: Connection) -> None:
        self._lanes.pop(connection, None)

    def _forget_stale(self) -> None:
        """Forget all lanes where a topic has changed since they were found."""
        if self._version is not self._topics.data_version:
            self._version = self._topics.data_version
            for lanes in self._lanes.values():
                lanes.clear()

    def __call__(self, connection: Connection, backlog: deque[Frame], outgoing: list[bytes]) -> None:
        """Take ordinary sends off the front of a connection's backlog, store and answer them."""
        if self._version is not self._topics.data_version:
            self._forget_stale()
        lanes = self._lanes.get(connection)
        if (
            lanes is None
            or (lanes.halves is not None and self._takes_halves(lanes.halves, backlog, outgoing))
            or not lanes.by_fields
        ):
            return
        while backlog and backlog[0][1].startswith(_START_BATCH) and len(outgoing) < RUN_MAX:
            if not self._take_batch(lanes, backlog[0], outgoing):
                return
            backlog.popleft()
        rows: list[Row] = []
        asked: list[tuple[_Lane, int]] = []
        is_mixed = self._read(lanes, backlog, rows, asked)
        if not rows:
            return
        state = self._state
        places = state.store.append_run(rows)
        if not places:
            return
        for (lane, opaque), row, (physical_offset, queue_offset) in zip(asked, rows, places, strict=False):
            backlog.popleft()
            if not lane.is_oneway:
                header = lane.answer % (opaque, physical_offset, row[1][1], queue_offset)
                size = len(header)
                outgoing.append(_pack_start(size + 4, size) + header)
        if is_mixed or len(places) < len(rows):
            for row, _ in zip(rows, places, strict=False):
                state.statistics.note_put(row[0].topic, 1, _size_bytes(row))
        else:
            size_bytes = places[-1][0] + _size_bytes(rows[-1]) - places[0][0]
            state.statistics.note_put(rows[0][0][0], len(rows), size_bytes, len(rows))
        state.message_appended()

    def _take_batch(self, lanes: Lanes, frame: Frame, outgoing: list[bytes]) -> bool:
        """Store and answer an ordinary batch; False where it is for the long way."""
        kind, header, body = frame
        state = self._state
        if kind != _JSON or not 0 < len(body) <= state.settings[keys.MESSAGE_BYTES]:
            return False
        try:
            found = _by_text(lanes, header, _BATCH) or _by_fields(lanes, header, _BATCH)
            lane, opaque, queue_text, time_text, properties = found
            queue, born_ms = lane.queues[queue_text], _time_ms(time_text)
            properties.encode()  # not stored with a batch, but what is no text is for the long way
        except (KeyError, TypeError, ValueError, AttributeError):
            return False
        batch = lane.message._replace(body=body, queue_id=queue[1], born_timestamp_ms=born_ms)
        appended = state.store.append_members(batch, self._added_to_members)
        if appended is None:
            return False
        state.statistics.note_put(batch.topic, len(appended.physical_offsets), appended.size_bytes)
        state.message_appended()
        if not lane.is_oneway:
            host = batch.store_host_raw
            outgoing.append(
                self._answers.batch_frame(opaque, host, appended.physical_offsets, queue[1], appended.queue_offset)
            )
        return True

    def _takes_halves(self, lanes: Lanes, backlog: deque[Frame], outgoing: list[bytes]) -> bool:
        """Take half messages off the front; tells whether nothing is left."""
        while backlog and backlog[0][1].startswith(_START_SEND) and len(outgoing) < RUN_MAX:
            if not self._take_half(lanes, backlog[0], outgoing):
                return False
            backlog.popleft()
        return not backlog

    def _take_half(self, lanes: Lanes, frame: Frame, outgoing: list[bytes]) -> bool:
        """Put aside and answer an ordinary half message; False where it is none, or for the long way."""
        kind, header, body = frame
        state, settings = self._state, self._state.settings
        if kind != _JSON or not 0 < len(body) <= settings[keys.MESSAGE_BYTES] or settings[keys.REJECT_TRANSACTIONS]:
            return False
        try:
            found = _by_text(lanes, header, _SEND) or _by_fields(lanes, header, _SEND)
            lane, opaque, queue_text, time_text, text = found
            (topic, queue_id), born_ms = lane.queues[queue_text], _time_ms(time_text)
            properties = decode_properties(text.encode())
            if properties[props.TRANSACTION_PREPARED] != "true" or _find_special_of_half("\x02" + text):
                return False
            unique_id = properties[props.UNIQ_KEY]
        except (KeyError, TypeError, ValueError, AttributeError):
            return False
        properties |= self._added_to_halves
        raw = self._halves.prepared_properties(properties, topic, queue_id)
        row = (lane.template, _HALF_QUEUE, born_ms, body, raw)
        places = state.store.append_run((row,)) if len(raw) <= PROPERTIES_BYTES_MAX else None
        if not places:
            return False
        state.statistics.note_put(names.HALF_TOPIC, 1, _size_bytes(row))
        state.message_appended()
        physical_offset, queue_offset = places[0]
        sample = lane.message
        self._halves.remember(
            Message(
                crc32(body) & BODY_CRC_MASK,
                HALF_QUEUE,
                sample.flag,
                queue_offset,
                physical_offset,
                sample.sys_flag,
                born_ms,
                sample.born_host_raw,
                0,
                sample.store_host_raw,
                sample.reconsume_times,
                sample.prepared_transaction_offset,
                body,
                names.HALF_TOPIC,
                raw,
            ),
            properties,
        )
        if not lane.is_oneway:
            answer = lane.answer % (opaque, physical_offset, queue_id, queue_offset)
            answer = b'%b,"transactionId":%b}}' % (answer[:-2], orjson.dumps(unique_id))
            outgoing.append(_pack_start(len(answer) + 4, len(answer)) + answer)
        return True

    def _read(self, lanes: Lanes, backlog: deque[Frame], rows: list[Row], asked: list[tuple[_Lane, int]]) -> bool:
        """Find out which frames from the first on are ordinary sends, and what is to be stored for them.

        Tells whether they are of several lanes.
        """
        first, is_mixed = None, False
        body_bytes_max = self._state.settings[keys.MESSAGE_BYTES]
        born_text, born_ms = self._born_text, self._born_ms
        for kind, header, body in backlog:
            if kind != _JSON or not 0 < len(body) <= body_bytes_max:
                break
            try:
                found = _by_text(lanes, header, _SEND) or _by_fields(lanes, header, _SEND)
                lane, opaque, queue_text, time_text, properties = found
                queue = lane.queues[queue_text]
                if time_text != born_text:
                    born_text, born_ms = time_text, _time_ms(time_text)
                raw = properties.encode()
            except (KeyError, TypeError, ValueError, AttributeError):
                break  # not what was seen before; the long way says what it is, or what is wrong with it
            if _UNIQ_KEY not in properties or "\0" in properties or _find_special("\x02" + properties):
                break
            raw += self._added if raw[-1] == 2 else self._added_after_separator
            if len(raw) > PROPERTIES_BYTES_MAX:
                break
            rows.append((lane.template, queue, born_ms, body, raw))
            asked.append((lane, opaque))
            if lane is not first:
                is_mixed, first = is_mixed or first is not None, lane
            if len(rows) == RUN_MAX:
                break
        self._born_text, self._born_ms = born_text, born_ms
        return is_mixed


def _size_bytes(row: Row) -> int:
    template, _, _, body, properties = row
    return template.size_bytes + len(body) + len(properties)


def _time_ms(text: bytes) -> int:
    if not text.isdigit() or len(text) > _TIME_DIGITS_MAX:
        raise ValueError("for the long way")
    return int(text)


_Found = tuple[_Lane, int, bytes, bytes, str]


def _by_text(lanes: Lanes, header: bytes, code: int) -> _Found | None:
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


def _by_fields(lanes: Lanes, header: bytes, code: int) -> _Found:
    """Read a header, and look for its lane; raises what its values raise where it has none."""
    if not header.startswith(_STARTS[code]):
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
            lane.match = _pattern_of(header)
        if lane.match is not None:
            lanes.recent[code] = lane
    return lane, opaque, queue_text, time_text, properties


def _pattern_of(header: bytes) -> tuple[Match, tuple[int, ...]] | None:
    """Return what finds the four own values in headers like this one, and the numbers of their groups."""
    starts = {}
    for mark in _OWN_VALUES:
        if header.count(mark) != 1:
            return None
        starts[mark] = header.index(mark) + len(mark)
    pattern, position = b"", 0
    order = sorted(starts, key=starts.__getitem__)
    for mark in order:
        value = re.compile(_OWN_VALUES[mark]).match(header, starts[mark])
        if value is None:
            return None
        pattern += re.escape(header[position : value.start()]) + _OWN_VALUES[mark]
        position = value.end()
    pattern += re.escape(header[position:])
    return re.compile(pattern).fullmatch, tuple(order.index(mark) + 1 for mark in _OWN_VALUES)
