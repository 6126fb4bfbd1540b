"""Fast path of transactions: half messages and their commits, all that one read brings as one run.

A half message consists of the properties as sent and a few that the broker appends; its commit has the same without
some of these. So both are written without decoding and encoding properties. Half messages have send templates like
other sends (`FastSends`). Rollbacks, replies to transaction checks and ends of half messages that took the slow path
stay in the backlog.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import NamedTuple
from zlib import crc32

import orjson

from orbitlog.broker.sending.message_writer import MessageWriter
from orbitlog.broker.sending.send_rules import SendKind, SendRules
from orbitlog.broker.sending.send_templates import (
    HEADER_STARTS,
    RUN_MAX,
    SEND,
    SendTemplate,
    TemplateCache,
    find_by_fields,
    match_recent,
    parse_timestamp,
)
from orbitlog.broker.transactions.half_messages import HALF_QUEUE, HalfMessages, RecentHalf
from orbitlog.broker.transactions.transaction_ends import TransactionEnds
from orbitlog.formats import names
from orbitlog.formats.java import INT_MAX
from orbitlog.formats.records import properties as props
from orbitlog.formats.records.flags import TransactionType
from orbitlog.formats.records.message import BODY_CRC_MASK
from orbitlog.formats.records.properties import NAME_END, PROPERTY_END, decode_properties
from orbitlog.formats.records.record_template import RecordTemplate, Row
from orbitlog.wire.codes import RequestCode
from orbitlog.wire.command import FLAG_ONEWAY, Serialization
from orbitlog.wire.frame_start import json_frame
from orbitlog.wire.frames import Frame

_JSON = int(Serialization.JSON)
_END = int(RequestCode.END_TRANSACTION)
_SEND_START, _END_START = HEADER_STARTS[SEND], b'{"code":37,'
_COMMIT = str(int(TransactionType.COMMIT))
_HALF_QUEUE = (names.HALF_TOPIC, HALF_QUEUE)
_OFFSET_DIGITS_MAX = 18
_BOOLEANS = {None, "true", "false"}

_loads = orjson.loads
_pack_long = struct.Struct(">q").pack
_new_tuple = tuple.__new__


class _Half(NamedTuple):
    """A half message that was read: the row to store, and what its commit will need."""

    row: Row
    template: SendTemplate
    opaque: bytes
    queue: tuple[str, int]
    committed_raw: bytes
    producer_group: str
    unique_id: str


class _Commit(NamedTuple):
    """The commit of a recent half message: the row to store, and the half message."""

    row: Row
    half_physical_offset: int
    half: RecentHalf


class FastTransactions:
    """Serves half messages that repeat an earlier one, and commits of half messages that it stored."""

    def __init__(
        self,
        writer: MessageWriter,
        halves: HalfMessages,
        ends: TransactionEnds,
        rules: SendRules,
        added: dict[str, str],
    ) -> None:
        self._writer = writer
        self._halves = halves
        self._ends = ends
        self._checks = rules.message_checks[SendKind.HALF]
        self._added = "".join(f"{name}{NAME_END}{value}{PROPERTY_END}" for name, value in added.items())

    def take(
        self,
        cache: TemplateCache,
        backlog: deque[Frame],
        outgoing: list[bytes],
        opaques: list[bytes] | None,
    ) -> bool:
        """Take half messages and commits off the front of a backlog; return whether the backlog is empty then.

        Responses are added to `outgoing` and, if given, their opaque numbers to `opaques`.
        """
        while backlog and len(outgoing) < RUN_MAX:
            if not self._take_run(cache, backlog, outgoing, opaques):
                return False
        return not backlog

    def _take_run(
        self,
        cache: TemplateCache,
        backlog: deque[Frame],
        outgoing: list[bytes],
        opaques: list[bytes] | None,
    ) -> bool:
        """Store and answer one run; return False if there was nothing to store, or not all of it was stored."""
        run = self._read(cache, backlog)
        if not run:
            return False
        places = self._writer.put_rows([item.row for item in run], False)
        for item, (physical_offset, queue_offset) in zip(run, places, strict=False):
            backlog.popleft()
            if isinstance(item, _Commit):
                self._ends.write_soon(item.half.queue_offset)
                self._ends.note(item.half.queue_offset)
            else:
                self._keep(item, physical_offset, queue_offset)
                if not item.template.is_oneway:
                    outgoing.append(_answer(item, physical_offset, queue_offset))
                    if opaques is not None:
                        opaques.append(item.opaque)
        for item in run[len(places) :]:
            if isinstance(item, _Commit):
                self._halves.remember(item.half_physical_offset, item.half)  # the slow path will look for it
        return len(places) == len(run)

    def _keep(self, half: _Half, physical_offset: int, queue_offset: int) -> None:
        """Keep a half message that was just stored in memory, for its commit."""
        (_, _, born_ms, _, body, raw), template, _, queue, committed_raw, producer_group, _ = half
        recent = RecentHalf(
            template.message, template.committed, queue, queue_offset, born_ms, body, raw, committed_raw, producer_group
        )
        self._halves.remember(physical_offset, recent)

    def _read(self, cache: TemplateCache, backlog: deque[Frame]) -> list[_Half | _Commit]:
        """Read frames up to the first that is left to the slow path."""
        run: list[_Half | _Commit] = []
        for serialization, header, body in backlog:
            if serialization != _JSON or len(run) == RUN_MAX:
                break
            item: _Half | _Commit | None = None
            try:
                if header.startswith(_SEND_START):
                    item = self._half(cache, header, body)
                elif header.startswith(_END_START):
                    item = self._commit(header)
            except (KeyError, TypeError, ValueError, AttributeError):
                break  # no template, or invalid: the slow path answers it
            if item is None:
                break
            run.append(item)
        return run

    def _half(self, cache: TemplateCache, header: bytes, body: bytes) -> _Half | None:
        template, opaque, queue_text, time_text, text = match_recent(cache, header, SEND) or find_by_fields(
            cache, header, SEND
        )
        queue, born_ms = template.queues[queue_text], parse_timestamp(time_text)
        properties = decode_properties(text.encode())
        if properties[props.TRANSACTION_PREPARED] != "true":
            return None
        for check in self._checks:
            if check(template.send, body, text) is not None:
                return None
        if text[-1] != PROPERTY_END:
            text += PROPERTY_END
        # A name that occurs twice or has no value is dropped when the slow path decodes and encodes the properties.
        if not len(properties) == text.count(NAME_END) == text.count(PROPERTY_END):
            return None
        unique_id = properties[props.UNIQ_KEY]
        raw, committed_raw = self._halves.joined_properties(text + self._added, unique_id, *queue)
        row = (template.record, _HALF_QUEUE, born_ms, crc32(body) & BODY_CRC_MASK, body, raw)
        return _Half(row, template, opaque, queue, committed_raw, properties[props.PRODUCER_GROUP], unique_id)

    def _commit(self, header: bytes) -> _Commit | None:
        fields = _loads(header)
        ext_fields, flag, opaque = fields["extFields"], fields["flag"], fields["opaque"]
        offset_text, queue_offset_text = ext_fields["commitLogOffset"], ext_fields["tranStateTableOffset"]
        if (
            not (type(opaque) is type(flag) is type(fields["version"]) is int)
            or fields["code"] != _END
            or flag != FLAG_ONEWAY
            or not 0 <= opaque <= INT_MAX
            or ext_fields["commitOrRollback"] != _COMMIT
            or ext_fields.get("fromTransactionCheck") not in _BOOLEANS
            or not (offset_text.isascii() and offset_text.isdigit() and len(offset_text) <= _OFFSET_DIGITS_MAX)
            or not self._halves.can_end_together
        ):
            return None
        physical_offset = int(offset_text)
        half = self._halves.recent(physical_offset)
        if (
            half is None
            or half.committed is None
            or ext_fields["producerGroup"] != half.producer_group
            or queue_offset_text != str(half.queue_offset)
            or half.queue_offset in self._ends
        ):
            return None
        self._halves.forget(physical_offset)
        shared = half.committed
        # `after_store_time` is store host (8 bytes), reconsume times (4), prepared transaction offset (8): the commit
        # differs from the template in the last one, the offset of its half message.
        template = _new_tuple(
            RecordTemplate,
            (shared.after_store_time[:12] + _pack_long(physical_offset), *shared[1:]),
        )
        body_crc = crc32(half.body) & BODY_CRC_MASK
        row = (template, half.queue, half.born_ms, body_crc, half.body, half.committed_raw)
        return _Commit(row, physical_offset, half)


def _answer(half: _Half, physical_offset: int, queue_offset: int) -> bytes:
    answer = half.template.answer % (half.opaque, physical_offset, half.queue[1], queue_offset)
    # The template ends the ext fields and the header with "}}": one more field goes in front of it.
    return json_frame(b'%b,"transactionId":%b}}' % (answer[:-2], orjson.dumps(half.unique_id)))
