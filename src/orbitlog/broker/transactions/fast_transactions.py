"""The short way of ordinary transactions: half messages and their commits, all that one read brings as one run.

A half message is what came with a few properties behind it; its commit is the same without some of them. So neither is
put together from its parts: see `QuickSends`, whose lanes half messages have, too. What ends a half message that went
another way, or ends it in another way, is left where it is.
"""

from __future__ import annotations

import re
import struct
from collections import deque
from typing import NamedTuple

import orjson

from orbitlog.broker.runtime import broker_settings as keys
from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.broker.sending.send_templates import (
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
from orbitlog.broker.transactions.half_messages import HALF_QUEUE, HalfMessages, RecentHalf
from orbitlog.broker.transactions.transaction_ends import TransactionEnds
from orbitlog.formats import names
from orbitlog.formats.java import INT_MAX
from orbitlog.formats.records import properties as props
from orbitlog.formats.records.flags import TransactionType
from orbitlog.formats.records.properties import NAME_END, PROPERTIES_BYTES_MAX, PROPERTY_END, decode_properties
from orbitlog.formats.records.record_template import RecordTemplate, Row
from orbitlog.formats.records.transaction_ops import CHECK_TIMES, PREPARED_QUEUE_OFFSET
from orbitlog.wire.codes import RequestCode
from orbitlog.wire.command import FLAG_ONEWAY, Serialization
from orbitlog.wire.frames import Frame

_JSON = int(Serialization.JSON)
_END = int(RequestCode.END_TRANSACTION)
_START_SEND, _START_END = STARTS[SEND], b'{"code":37,'
_COMMIT = str(int(TransactionType.COMMIT))
_HALF_QUEUE = (names.HALF_TOPIC, HALF_QUEUE)
_OFFSET_DIGITS_MAX = 18
# What the broker puts behind the properties, or takes out of them.
_OWN_NAMES = {PREPARED_QUEUE_OFFSET, CHECK_TIMES, props.TRANSACTION_ID, props.REAL_TOPIC, props.REAL_QUEUE_ID}
_BOOLEANS = {None, "true", "false"}

_find_special = re.compile(f"\0|\x02(?:{SPECIAL_NAMES})").search
_loads = orjson.loads
_pack_start = struct.Struct(">II").pack
_pack_long = struct.Struct(">q").pack
_new_tuple = tuple.__new__


class _Half(NamedTuple):
    """A half message that was read: what is stored, and what its commit will be."""

    row: Row
    lane: Lane
    opaque: int
    queue: tuple[str, int]
    committed_raw: bytes
    producer_group: str
    unique_id: str


class _Commit(NamedTuple):
    """The end of a half message at hand: what is stored, and where that one lies."""

    row: Row
    half_physical_offset: int
    half: RecentHalf


class QuickTransactions:
    """Half messages and commits that go the short way."""

    def __init__(self, state: BrokerState, halves: HalfMessages, ends: TransactionEnds, added: dict[str, str]) -> None:
        self._state = state
        self._halves = halves
        self._ends = ends
        self._added = "".join(f"{name}{NAME_END}{value}{PROPERTY_END}" for name, value in added.items())

    def take(self, lanes: Lanes, backlog: deque[Frame], outgoing: list[bytes]) -> bool:
        """Take what is ordinary off the front of a connection's backlog; tells whether nothing is left."""
        while backlog and len(outgoing) < RUN_MAX:
            if not self._take_run(lanes, backlog, outgoing):
                return False
        return not backlog

    def _take_run(self, lanes: Lanes, backlog: deque[Frame], outgoing: list[bytes]) -> bool:
        """Store what follows each other, and answer it; tells whether that was anything, and all of it."""
        read = self._read(lanes, backlog)
        if not read:
            return False
        places = self._state.store.append_run([each.row for each in read])
        counts: dict[str, tuple[int, int]] = {}
        for each, place in zip(read, places, strict=False):
            backlog.popleft()
            topic = each.row[1][0]
            count, size_bytes = counts.get(topic, (0, 0))
            counts[topic] = count + 1, size_bytes + size_of_row(each.row)
            if isinstance(each, _Commit):
                self._ends.write_down_soon(each.half.queue_offset)
                self._ends.note(each.half.queue_offset)
            else:
                self._keep(each, *place)
                if not each.lane.is_oneway:
                    outgoing.append(_answer(each, *place))
        for each in read[len(places) :]:
            if isinstance(each, _Commit):
                self._halves.remember(each.half_physical_offset, each.half)  # for the long way
        for topic, (count, size_bytes) in counts.items():
            self._state.statistics.note_put(topic, count, size_bytes, count)
        if places:
            self._state.message_appended()
        return len(places) == len(read)

    def _keep(self, half: _Half, physical_offset: int, queue_offset: int) -> None:
        """Have at hand what was just stored."""
        (_, _, born_ms, body, raw), lane, _, queue, committed_raw, producer_group, _ = half
        recent = RecentHalf(
            lane.message, lane.committed, queue, queue_offset, born_ms, body, raw, committed_raw, producer_group
        )
        self._halves.remember(physical_offset, recent)

    def _read(self, lanes: Lanes, backlog: deque[Frame]) -> list[_Half | _Commit]:
        """Find out which frames from the first on are ordinary, and what is to be stored for them."""
        read: list[_Half | _Commit] = []
        for kind, header, body in backlog:
            if kind != _JSON or len(read) == RUN_MAX:
                break
            found: _Half | _Commit | None = None
            try:
                if header.startswith(_START_SEND):
                    found = self._half(lanes, header, body)
                elif header.startswith(_START_END):
                    found = self._commit(header)
            except (KeyError, TypeError, ValueError, AttributeError):
                break  # not what was seen before; the long way says what it is, or what is wrong with it
            if found is None:
                break
            read.append(found)
        return read

    def _half(self, lanes: Lanes, header: bytes, body: bytes) -> _Half | None:
        settings = self._state.settings
        if not 0 < len(body) <= settings[keys.MESSAGE_BYTES] or settings[keys.REJECT_TRANSACTIONS]:
            return None
        lane, opaque, queue_text, time_text, text = by_text(lanes, header, SEND) or by_fields(lanes, header, SEND)
        queue, born_ms = lane.queues[queue_text], time_ms_of(time_text)
        properties = decode_properties(text.encode())
        if properties[props.TRANSACTION_PREPARED] != "true":
            return None
        if text[-1] != PROPERTY_END:
            text += PROPERTY_END
        if (
            not len(properties) == text.count(NAME_END) == text.count(PROPERTY_END)  # else it is written otherwise
            or not _OWN_NAMES.isdisjoint(properties)
            or _find_special(PROPERTY_END + text)
        ):
            return None
        unique_id = properties[props.UNIQ_KEY]
        raw, committed_raw = self._halves.quick_properties(text + self._added, unique_id, *queue)
        if len(raw) > PROPERTIES_BYTES_MAX:
            return None
        row = (lane.template, _HALF_QUEUE, born_ms, body, raw)
        return _Half(row, lane, opaque, queue, committed_raw, properties[props.PRODUCER_GROUP], unique_id)

    def _commit(self, header: bytes) -> _Commit | None:
        fields = _loads(header)
        ext_fields, flag, opaque = fields["extFields"], fields["flag"], fields["opaque"]
        place, queue_place = ext_fields["commitLogOffset"], ext_fields["tranStateTableOffset"]
        if (
            not (type(opaque) is type(flag) is type(fields["version"]) is int)
            or fields["code"] != _END
            or flag != FLAG_ONEWAY
            or not 0 <= opaque <= INT_MAX
            or ext_fields["commitOrRollback"] != _COMMIT
            or ext_fields.get("fromTransactionCheck") not in _BOOLEANS
            or not (place.isascii() and place.isdigit() and len(place) <= _OFFSET_DIGITS_MAX)
            or not self._halves.can_end_together
        ):
            return None
        physical_offset = int(place)
        half = self._halves.recent(physical_offset)
        if (
            half is None
            or half.committed is None
            or ext_fields["producerGroup"] != half.producer_group
            or queue_place != str(half.queue_offset)
            or half.queue_offset in self._ends
        ):
            return None
        self._halves.forget(physical_offset)
        shared = half.committed
        template = _new_tuple(
            RecordTemplate,
            (shared.after_store_time[:12] + _pack_long(physical_offset), *shared[1:]),
        )
        return _Commit((template, half.queue, half.born_ms, half.body, half.committed_raw), physical_offset, half)


def _answer(half: _Half, physical_offset: int, queue_offset: int) -> bytes:
    answer = half.lane.answer % (half.opaque, physical_offset, half.queue[1], queue_offset)
    answer = b'%b,"transactionId":%b}}' % (answer[:-2], orjson.dumps(half.unique_id))
    return _pack_start(len(answer) + 4, len(answer)) + answer
