"""The short way of an ordinary send: from the frame to the log, many at a time, without an object for each.

Whoever sends many messages repeats most of its header. The long way (`SendHandler`) takes the first send of each kind,
with all checks; what it has found is a lane: whatever says the same in every field but its number, its queue, its time
and its properties may take it. A send that differs in anything else, or is unusual in any way, is left where it is, for
the long way. Both give the same records and the same answers, which a test holds them to.

Requests in JSON alone; what waits for the disk goes the long way.
"""

from __future__ import annotations

import re
import struct
from collections import deque
from typing import NamedTuple

import orjson

from orbitlog.broker import broker_settings as keys
from orbitlog.broker.broker_state import BrokerState
from orbitlog.broker.send_answer import SendAnswers
from orbitlog.formats import properties as props
from orbitlog.formats.java import INT_MAX
from orbitlog.formats.message import Message
from orbitlog.formats.properties import PROPERTIES_BYTES_MAX
from orbitlog.formats.record_template import RecordTemplate, Row, template_of
from orbitlog.formats.topic_config import TopicConfig
from orbitlog.remoting.connection import Connection
from orbitlog.wire.codes import RequestCode
from orbitlog.wire.command import FLAG_ONEWAY, Command, Serialization
from orbitlog.wire.frames import Frame

_START = b'{"code":310,'
_START_BYTES = len(_START)
_JSON = int(Serialization.JSON)
_CODE = int(RequestCode.SEND_MESSAGE_V2)
_OWN_FIELDS = ("e", "g", "i")
_RUN_MAX = 64
_TIME_DIGITS_MAX = 18
_LANES_MAX = 4096
_UNIQ_KEY = props.UNIQ_KEY + props.NAME_END

# Properties that hold one of these, behind a separator, are not stored as they came.
_NAMES = "DELAY|TRAN_MSG|POP_CK|CLUSTER|MSG_REGION|TRACE_ON|INNER_NUM|WAIT\x01[^t]|UNIQ_KEY\x01(?:\x02|$)|TIMER_[A-Z_]+"
_find_special = re.compile(f"\x02(?:{_NAMES})").search
_loads = orjson.loads
_pack_start = struct.Struct(">II").pack

LaneKey = tuple[str, ...]


class _Lane(NamedTuple):
    """What sends of one kind share; `queues` by their ids as text, `answer` begins and ends what they are told."""

    template: RecordTemplate
    queues: dict[str, tuple[str, int]]
    id_start: str


class QuickSends:
    """Sends that go the short way."""

    def __init__(self, state: BrokerState, answers: SendAnswers, added_raw: bytes) -> None:
        self._state = state
        self._topics = state.topics
        self._version = state.topics.data_version
        self._lanes: dict[Connection, dict[LaneKey, _Lane]] = {}
        self._answer_start, self._answer_end = answers.quick_parts
        self._added = added_raw
        self._added_after_separator = b"\x02" + added_raw
        self._born_text, self._born_ms = "0", 0

    def learn(self, connection: Connection, request: Command, message: Message, config: TopicConfig) -> None:
        """Take note of an ordinary send that was stored: others like it may go the short way."""
        if request.code != _CODE or request.serialization != _JSON:
            return
        template = template_of(message)
        shared = {name: text for name, text in request.ext_fields.items() if name not in _OWN_FIELDS}
        if template is None or len(shared) + len(_OWN_FIELDS) != len(request.ext_fields):
            return
        lanes = self._current().get(connection)
        if lanes is None:
            lanes = self._lanes[connection] = {}
            connection.on_close(self._forget)
        if len(lanes) >= _LANES_MAX:
            lanes.clear()
        count = max(config.write_queue_count, config.read_queue_count)
        queues = {str(queue_id): (message.topic, queue_id) for queue_id in range(count)}
        lanes[(*shared, *shared.values())] = _Lane(template, queues, message.store_host_raw.hex().upper())

    def _forget(self, connection: Connection) -> None:
        self._lanes.pop(connection, None)

    def _current(self) -> dict[Connection, dict[LaneKey, _Lane]]:
        """Return the lanes, none of them where a topic has changed since."""
        if self._version is not self._topics.data_version:
            self._version = self._topics.data_version
            for lanes in self._lanes.values():
                lanes.clear()
        return self._lanes

    def __call__(self, connection: Connection, backlog: deque[Frame], outgoing: list[bytes]) -> None:
        """Take ordinary sends off the front of a connection's backlog, store and answer them."""
        lanes = self._current().get(connection)
        if not lanes or not backlog[0][1].startswith(_START):
            return
        rows: list[Row] = []
        asked: list[tuple[int, str, int]] = []
        self._read(lanes, backlog, rows, asked)
        if not rows:
            return
        state = self._state
        places = state.store.append_run(rows)
        if not places:
            return
        start, end = self._answer_start, self._answer_end
        taken, take = backlog.popleft, outgoing.append
        for (opaque, id_start, queue_id), (physical_offset, queue_offset) in zip(asked, places, strict=False):
            taken()
            if opaque >= 0:
                header = (
                    f'{start}{opaque},"flag":1,"extFields":{{"msgId":"{id_start}{physical_offset:016X}",'
                    f'"queueId":"{queue_id}","queueOffset":"{queue_offset}",{end}'
                ).encode()
                size = len(header)
                take(_pack_start(size + 4, size) + header)
        self._count(rows[: len(places)])
        state.message_appended()

    def _count(self, rows: list[Row]) -> None:
        statistics, topic, size_bytes, count = self._state.statistics, rows[0][0][0], 0, 0
        for (row_topic, fixed_bytes, *_), _, _, body, properties in rows:
            if row_topic is not topic:
                statistics.note_put(topic, count, size_bytes, count)
                topic, size_bytes, count = row_topic, 0, 0
            size_bytes += fixed_bytes + len(body) + len(properties)
            count += 1
        statistics.note_put(topic, count, size_bytes, count)

    def _read(
        self, lanes: dict[LaneKey, _Lane], backlog: deque[Frame], rows: list[Row], asked: list[tuple[int, str, int]]
    ) -> None:
        """Find out which frames from the first on are ordinary sends, and what is to be stored for them."""
        body_bytes_max = self._state.settings[keys.MESSAGE_BYTES]
        born_text, born_ms = self._born_text, self._born_ms
        for kind, header, body in backlog:
            if kind != _JSON or not header.startswith(_START) or not 0 < len(body) <= body_bytes_max:
                break
            try:
                fields = _loads(header)
                opaque, flag, version = fields["opaque"], fields["flag"], fields["version"]
                ext_fields = fields["extFields"]
                pop = ext_fields.pop
                queue_text, time_text, properties = pop("e"), pop("g"), pop("i")
                template, queues, id_start = lanes[(*ext_fields, *ext_fields.values())]
                queue = queues[queue_text]
                if time_text != born_text:
                    if not (time_text.isdigit() and time_text.isascii()) or len(time_text) > _TIME_DIGITS_MAX:
                        break
                    born_text, born_ms = time_text, int(time_text)
                raw = properties.encode()
            except (KeyError, TypeError, ValueError, AttributeError):
                break  # not what was seen before; the long way says what it is, or what is wrong with it
            if (
                not (type(opaque) is type(flag) is type(version) is int)
                or fields["code"] != _CODE
                or not 0 <= opaque <= INT_MAX
                or flag & ~FLAG_ONEWAY
                or _UNIQ_KEY not in properties
                or "\0" in properties
                or _find_special("\x02" + properties)
            ):
                break
            raw += self._added if raw[-1] == 2 else self._added_after_separator
            if len(raw) > PROPERTIES_BYTES_MAX:
                break
            rows.append((template, queue, born_ms, body, raw))
            asked.append((-1 if flag else opaque, id_start, queue[1]))
            if len(rows) == _RUN_MAX:
                break
        self._born_text, self._born_ms = born_text, born_ms
