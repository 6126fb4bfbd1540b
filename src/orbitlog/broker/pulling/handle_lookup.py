"""Lookup handlers: messages by key and by physical offset. Mirrors `QueryMessageProcessor`."""

from __future__ import annotations

from collections.abc import Mapping

from orbitlog.broker.admin.name_checks import checked_stored_topic
from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.errors import RequestRefused
from orbitlog.formats.records.message import encode_message
from orbitlog.remoting.connection import Answer, Connection, Handler
from orbitlog.remoting.loop_slices import in_slices
from orbitlog.settings.limits import KEY_QUERY_BYTES, KEY_QUERY_ENTRIES, KEY_QUERY_RECORDS
from orbitlog.store.reads.key_query import KeyQuery
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command, response_to
from orbitlog.wire.consume_headers import QueryMessageRequest, QueryMessageResponse, ViewMessageRequest

_COUNT_MAX = 64
_UNIQUE_KEY_COUNT = 32
_ANSWER_BYTES_MAX = 8 * 1024 * 1024
_LIMITS = {"entries": KEY_QUERY_ENTRIES, "records": KEY_QUERY_RECORDS, "bytes": KEY_QUERY_BYTES}


class LookupHandlers:
    """Serves QUERY_MESSAGE and VIEW_MESSAGE_BY_ID."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state

    @property
    def table(self) -> Mapping[int, Handler]:
        return {RequestCode.QUERY_MESSAGE: self.query, RequestCode.VIEW_MESSAGE_BY_ID: self.view}

    async def query(self, _: Connection, request: Command) -> Answer:
        """Return messages by key, newest first, as many as fit a frame; search in steps."""
        header = QueryMessageRequest.from_ext_fields(request.ext_fields)
        limit = _UNIQUE_KEY_COUNT if header.unique_key else max(min(header.count_max, _COUNT_MAX), 1)
        store, limits = self._state.store, self._state.limits
        query = KeyQuery(
            checked_stored_topic(header.topic),
            header.key,
            header.begin_timestamp_ms,
            header.end_timestamp_ms,
            limit,
            entries_max=limits[KEY_QUERY_ENTRIES],
            records_max=limits[KEY_QUERY_RECORDS],
            bytes_max=limits[KEY_QUERY_BYTES],
        )
        result = await in_slices(store.query_steps(query))
        answer = QueryMessageResponse(
            index_timestamp_ms=result.newest_timestamp_ms,
            index_physical_offset=store.dispatched_to,
        )
        records: list[bytes] = []
        room_bytes = _ANSWER_BYTES_MAX
        for record in result.records:
            room_bytes -= len(record)
            if room_bytes < 0 and records:
                break
            records.append(record)
        stopped = None
        if result.stopped_by:
            stopped = f"incomplete: {result.reason}"
            limits.reach(_LIMITS[result.stopped_by])
        if records:
            body = b"".join(records)
            return response_to(request, ResponseCode.SUCCESS, stopped, answer.to_ext_fields(), body)
        remark = stopped or "no message with that key in that time range"
        return response_to(request, ResponseCode.QUERY_NOT_FOUND, remark, answer.to_ext_fields())

    def view(self, _: Connection, request: Command) -> Answer:
        header = ViewMessageRequest.from_ext_fields(request.ext_fields)
        message = self._state.store.read_at(header.physical_offset)
        if message is None:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {header.physical_offset}"
            )
        return response_to(request, ResponseCode.SUCCESS, body=encode_message(message))
