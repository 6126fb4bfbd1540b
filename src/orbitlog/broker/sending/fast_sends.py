"""Fast path of sends: from the frame to the CommitLog, many messages at a time, without an object for each.

The slow path (`SendHandler`) takes the first send of each kind, evaluates all rules, and leaves a template
(`send_templates`). The fast path takes sends that match a template and pass every message rule (`send_rules`), appends
them as one run and answers them from the template. Every other frame stays in the backlog, for the slow path. Both
paths give the same records and responses; `test_fast_sends` compares them.

Transactions have a fast path of their own, `FastTransactions`. With SYNC_FLUSH see `SyncFlushSends`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple
from zlib import crc32

import orjson

from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.broker.sending.message_writer import MessageWriter
from orbitlog.broker.sending.send_answer import SendAnswers
from orbitlog.broker.sending.send_rules import Send, SendKind, SendRules, Verdict
from orbitlog.broker.sending.send_templates import (
    BATCH,
    HEADER_STARTS,
    RUN_MAX,
    SEND,
    SendTemplate,
    TemplateCache,
    VerifiedSend,
    find_by_fields,
    match_recent,
    parse_timestamp,
)
from orbitlog.broker.transactions.fast_transactions import FastTransactions
from orbitlog.formats import names
from orbitlog.formats.records.message import BODY_CRC_MASK, Message
from orbitlog.formats.records.properties import join_properties
from orbitlog.formats.records.record_template import Row
from orbitlog.remoting.connection import Connection
from orbitlog.wire.command import Command, Serialization
from orbitlog.wire.frame_start import TOTAL_BYTES, pack_frame_start
from orbitlog.wire.frames import Frame

_JSON = int(Serialization.JSON)
_SEND_START, _BATCH_START = HEADER_STARTS[SEND], HEADER_STARTS[BATCH]
_START_BYTES = len(_SEND_START)
_loads = orjson.loads


class SendParts(NamedTuple):
    """What the paths of sends share."""

    writer: MessageWriter
    answers: SendAnswers
    rules: SendRules
    added_raw: bytes
    """Properties that the broker adds to each message, and to each member of a batch."""
    added_to_members: bytes


class FastSends:
    """Serves sends that repeat an earlier one."""

    def __init__(self, state: BrokerState, parts: SendParts, transactions: FastTransactions) -> None:
        self._writer = parts.writer
        self._answers = parts.answers
        self._transactions = transactions
        self._single_checks = parts.rules.message_checks[SendKind.SINGLE]
        self._batch_checks = parts.rules.message_checks[SendKind.BATCH]
        self._added = parts.added_raw
        self._added_to_members = parts.added_to_members
        self._caches: dict[Connection, TemplateCache] = {}
        self._topics, self._settings = state.topics, state.settings
        self._topics_version, self._settings_changes = state.topics.data_version, state.settings.change_count
        # Many sends of a run have the same born timestamp: the last one is kept parsed.
        self._born_text, self._born_ms = b"0", 0

    def learn(self, connection: Connection, request: Command, send: Send, message: Message, verdict: Verdict) -> None:
        """Add a template of a send that the slow path has stored, if its verdict may be cached."""
        if (
            verdict.cached_on is None
            or request.code not in HEADER_STARTS
            or request.serialization != _JSON
            or message.topic == names.TIMER_TOPIC
        ):
            return
        self._drop_stale()
        cache = self._caches.get(connection)
        if cache is None:
            cache = self._caches[connection] = TemplateCache()
            connection.on_close(self._drop)
        if message.topic == names.HALF_TOPIC:
            cache.halves = cache = cache.halves or TemplateCache()
        cache.add(request, send, message, self._answers.stored_template(message.store_host_raw))

    def templates_of(self, connection: Connection) -> TemplateCache | None:
        """Return the templates of a connection that are in force; None if it never had one."""
        if (
            self._topics_version is not self._topics.data_version
            or self._settings_changes != self._settings.change_count
        ):
            self._drop_stale()
        return self._caches.get(connection)

    def _drop(self, connection: Connection) -> None:
        self._caches.pop(connection, None)

    def _drop_stale(self) -> None:
        """Drop all templates if a topic or a setting has changed: verdicts of header rules depend on both."""
        version, changes = self._topics.data_version, self._settings.change_count
        if version is not self._topics_version or changes != self._settings_changes:
            self._topics_version, self._settings_changes = version, changes
            for cache in self._caches.values():
                cache.clear()

    def __call__(
        self,
        connection: Connection,
        backlog: deque[Frame],
        outgoing: list[bytes],
        opaques: list[bytes] | None = None,
        reads: Sequence[VerifiedSend] = (),
    ) -> None:
        """Take sends off the front of a connection's backlog, store them and add their responses to `outgoing`.

        `opaques`, if given, gets the opaque number of each response. `reads` has the values of every frame of the
        backlog if its caller has read them, by templates that are in force.
        """
        cache = self._caches.get(connection)
        if cache is None:
            return
        if (
            self._topics_version is not self._topics.data_version
            or self._settings_changes != self._settings.change_count
        ):
            self._drop_stale()
        rows: list[Row] = []
        asked: list[tuple[SendTemplate, bytes]] = []
        if reads:
            is_one_topic = self._check(reads, backlog, rows, asked)
        else:
            if cache.halves is not None and self._transactions.take(cache.halves, backlog, outgoing, opaques):
                return
            start = backlog[0][1][:_START_BYTES]
            if start != _SEND_START and (
                start != _BATCH_START or self._take_batches(cache, backlog, outgoing, opaques)
            ):
                return
            is_one_topic = self._read(cache, backlog, rows, asked)
        if not rows:
            return
        places = self._writer.put_rows(rows, is_one_topic)
        for (template, opaque), row, (physical_offset, queue_offset) in zip(asked, rows, places, strict=False):
            backlog.popleft()
            if not template.is_oneway:
                header = template.answer % (opaque, physical_offset, row[1][1], queue_offset)
                size = len(header)
                outgoing.append(pack_frame_start(size + TOTAL_BYTES, size) + header)
        if opaques is not None:
            opaques += [opaque for (template, opaque), _ in zip(asked, places, strict=False) if not template.is_oneway]

    def _take_batches(
        self, cache: TemplateCache, backlog: deque[Frame], outgoing: list[bytes], opaques: list[bytes] | None
    ) -> bool:
        """Take batches off the front of a backlog; return whether no other send follows that may be taken now."""
        while self._take_batch(cache, backlog[0], outgoing, opaques):
            backlog.popleft()
            if not backlog or len(outgoing) >= RUN_MAX:
                return True
        return False

    def _take_batch(
        self, cache: TemplateCache, frame: Frame, outgoing: list[bytes], opaques: list[bytes] | None
    ) -> bool:
        """Store and answer a batch; return False if it is left to the slow path."""
        serialization, header, body = frame
        if serialization != _JSON:
            return False
        try:
            template, opaque, queue_text, time_text, properties = match_recent(cache, header, BATCH) or find_by_fields(
                cache, header, BATCH
            )
            queue, born_ms = template.queues[queue_text], parse_timestamp(time_text)
        except (KeyError, TypeError, ValueError, AttributeError):
            return False
        for check in self._batch_checks:
            if check(template.send, body, properties) is not None:
                return False
        batch = template.message._replace(body=body, queue_id=queue[1], born_timestamp_ms=born_ms)
        appended = self._writer.put_members(batch, self._added_to_members)
        if appended is None:
            return False
        if not template.is_oneway:
            outgoing.append(self._answers.batch_frame(int(opaque), batch, appended))
            if opaques is not None:
                opaques.append(opaque)
        return True

    def _read(
        self,
        cache: TemplateCache,
        backlog: deque[Frame],
        rows: list[Row],
        asked: list[tuple[SendTemplate, bytes]],
    ) -> bool:
        """Read frames up to the first that is left to the slow path; return whether all rows have one topic."""
        is_one_topic = True
        checks, added = self._single_checks, self._added
        born_text, born_ms = self._born_text, self._born_ms
        # The template of the last send is tried first, by its pattern: most sends of a run have the same one.
        template = cache.recent[SEND]
        match, groups = template.pattern
        for serialization, header, body in islice(backlog, RUN_MAX):
            if serialization != _JSON:
                break
            try:
                values = match(header)
                if values is not None:
                    opaque, queue_text, time_text, text = values.group(*groups)
                    properties = _loads(text)
                else:
                    template, opaque, queue_text, time_text, properties = find_by_fields(cache, header, SEND)
                    match, groups = template.pattern
                    is_one_topic = is_one_topic and (not rows or rows[-1][0] is template.record)
                queue = template.queues[queue_text]
                if time_text != born_text:
                    born_text, born_ms = time_text, parse_timestamp(time_text)
                    self._born_text, self._born_ms = born_text, born_ms
                raw = properties.encode()
            except (KeyError, TypeError, ValueError, AttributeError):
                break  # no template, or invalid: the slow path answers it
            for check in checks:
                if check(template.send, body, properties) is not None:
                    return is_one_topic
            rows.append(
                (template.record, queue, born_ms, crc32(body) & BODY_CRC_MASK, body, join_properties(raw, added))
            )
            asked.append((template, opaque))
        return is_one_topic

    def _check(
        self,
        reads: Sequence[VerifiedSend],
        backlog: deque[Frame],
        rows: list[Row],
        asked: list[tuple[SendTemplate, bytes]],
    ) -> bool:
        """Do the same for frames whose values were read already."""
        is_one_topic = True
        checks, added = self._single_checks, self._added
        born_text, born_ms = self._born_text, self._born_ms
        last = reads[0][0]
        for (template, opaque, queue_text, time_text, properties, raw), (_, _, body) in zip(
            reads, backlog, strict=False
        ):
            if template is not last:
                last, is_one_topic = template, is_one_topic and template.record is last.record
            try:
                queue = template.queues[queue_text]
                if time_text != born_text:
                    born_text, born_ms = time_text, parse_timestamp(time_text)
                    self._born_text, self._born_ms = born_text, born_ms
            except (KeyError, ValueError):
                break
            for check in checks:
                if check(template.send, body, properties) is not None:
                    return is_one_topic
            rows.append(
                (template.record, queue, born_ms, crc32(body) & BODY_CRC_MASK, body, join_properties(raw, added))
            )
            asked.append((template, opaque))
        return is_one_topic
