"""The short way of an ordinary send: from the frame to the log, many at a time, without an object for each.

Whoever sends many messages repeats most of its header. The long way (`SendHandler`) takes the first send of each kind,
with all checks; what it has found is a lane (`send_lanes`). A send that differs from its lane in anything but its own
values, or is unusual in any way, is left where it is, for the long way. Both give the same records and answers, to
which a test holds them.

Transactions have a short way of their own, `QuickTransactions`. Where sends wait for the disk, see `SyncedSends`.
"""

from __future__ import annotations

import re
import struct
from collections import deque

from orbitlog.broker.runtime import broker_settings as keys
from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.broker.sending.send_answer import SendAnswers
from orbitlog.broker.sending.send_templates import (
    BATCH,
    OWN_FIELDS,
    RUN_MAX,
    SEND,
    SPECIAL_NAMES,
    STARTS,
    Lane,
    Lanes,
    by_fields,
    by_text,
    size_of_row,
    time_ms_of,
)
from orbitlog.broker.transactions.fast_transactions import QuickTransactions
from orbitlog.formats import names
from orbitlog.formats.records import properties as props
from orbitlog.formats.records.message import Message
from orbitlog.formats.records.properties import PROPERTIES_BYTES_MAX
from orbitlog.formats.records.record_template import Row, template_of
from orbitlog.formats.tables.topic_config import TopicConfig
from orbitlog.remoting.connection import Connection
from orbitlog.wire.command import Command, Serialization
from orbitlog.wire.frames import Frame

_JSON = int(Serialization.JSON)
_START_BATCH = STARTS[BATCH]
_LANES_MAX = 4096
_UNIQ_KEY = props.UNIQ_KEY + props.NAME_END

_find_special = re.compile(f"\x02(?:TRAN_MSG|{SPECIAL_NAMES})").search
_pack_start = struct.Struct(">II").pack


def is_special(properties: str) -> bool:
    """Tell whether there is more to do with the properties of a message than to store them."""
    return _UNIQ_KEY not in properties or _find_special("\x02" + properties) is not None


class QuickSends:
    """Sends that go the short way."""

    def __init__(
        self, state: BrokerState, answers: SendAnswers, transactions: QuickTransactions, added_raw: bytes
    ) -> None:
        self._state = state
        self._added_to_members = added_raw if state.compat.batch_members_get_batch_properties else b""
        self._topics = state.topics
        self._version = state.topics.data_version
        self._lanes: dict[Connection, Lanes] = {}
        self._answers = answers
        self._transactions = transactions
        self._added = added_raw
        self._added_after_separator = b"\x02" + added_raw
        self._born_text, self._born_ms = b"0", 0

    def learn(self, connection: Connection, request: Command, message: Message, config: TopicConfig) -> None:
        """Take note of an ordinary send that was stored: others like it may go the short way."""
        if request.code not in STARTS or request.serialization != _JSON or message.topic == names.TIMER_TOPIC:
            return
        template = template_of(message)
        shared = {name: text for name, text in request.ext_fields.items() if name not in OWN_FIELDS}
        if template is None or len(shared) + len(OWN_FIELDS) != len(request.ext_fields):
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
        lane = Lane(message._replace(body=b""), template, config, answer, is_oneway=request.is_oneway)
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
            or (lanes.halves is not None and self._transactions.take(lanes.halves, backlog, outgoing))
            or not lanes.by_fields
        ):
            return
        while backlog and backlog[0][1].startswith(_START_BATCH) and len(outgoing) < RUN_MAX:
            if not self._take_batch(lanes, backlog[0], outgoing):
                return
            backlog.popleft()
        rows: list[Row] = []
        asked: list[tuple[Lane, int]] = []
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
                state.statistics.note_put(row[1][0], 1, size_of_row(row))
        else:
            size_bytes = places[-1][0] + size_of_row(rows[-1]) - places[0][0]
            state.statistics.note_put(rows[0][1][0], len(rows), size_bytes, len(rows))
        state.message_appended()

    def _take_batch(self, lanes: Lanes, frame: Frame, outgoing: list[bytes]) -> bool:
        """Store and answer an ordinary batch; False where it is for the long way."""
        kind, header, body = frame
        state = self._state
        if kind != _JSON or not 0 < len(body) <= state.settings[keys.MESSAGE_BYTES]:
            return False
        try:
            lane, opaque, queue_text, time_text, properties = by_text(lanes, header, BATCH) or by_fields(
                lanes, header, BATCH
            )
            queue, born_ms = lane.queues[queue_text], time_ms_of(time_text)
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

    def _read(self, lanes: Lanes, backlog: deque[Frame], rows: list[Row], asked: list[tuple[Lane, int]]) -> bool:
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
                lane, opaque, queue_text, time_text, properties = by_text(lanes, header, SEND) or by_fields(
                    lanes, header, SEND
                )
                queue = lane.queues[queue_text]
                if time_text != born_text:
                    born_text, born_ms = time_text, time_ms_of(time_text)
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
