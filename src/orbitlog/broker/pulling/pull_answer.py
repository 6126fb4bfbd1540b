"""Pull response: encodes the response to a pull in one step; a message that fifty groups wait for is sent fifty times.

The bytes equal those of `encode_command`, as a test proves; requests in the binary serialization use that one.
"""

from __future__ import annotations

from typing import NamedTuple

from orbitlog.store.reads.queue_reader import GetResult
from orbitlog.wire.codes import ResponseCode
from orbitlog.wire.command import LANGUAGE, PROTOCOL_VERSION, Command, Serialization, encode_command, response_to
from orbitlog.wire.consume_headers import PullMessageResponse
from orbitlog.wire.frame_start import TOTAL_BYTES, pack_frame_start

_JSON = int(Serialization.JSON)
_TEMPLATE = (
    f'{{"code":%d,"language":"{LANGUAGE}","version":{PROTOCOL_VERSION},"opaque":%d,"flag":1,"remark":"%b","extFields":'
    '{"suggestWhichBrokerId":"%d","nextBeginOffset":"%d","minOffset":"%d","maxOffset":"%d","topicSysFlag":"%d",'
    '"groupSysFlag":"%d"}}'
).encode()


class PullHints(NamedTuple):
    """What a response states about topic, group and the broker to pull from next."""

    topic_sys_flag: int
    group_sys_flag: int
    suggested_broker_id: int = 0


def pull_frame(request: Command, code: ResponseCode, result: GetResult, body: bytes, hints: PullHints) -> bytes:
    """Return the response with the messages read, or why there are none."""
    if request.serialization == _JSON:
        header = _TEMPLATE % (
            code,
            request.opaque,
            result.status.value.encode(),
            hints.suggested_broker_id,
            result.next_offset,
            result.min_offset,
            result.max_offset,
            hints.topic_sys_flag,
            hints.group_sys_flag,
        )
        size = len(header)
        return b"".join((pack_frame_start(TOTAL_BYTES + size + len(body), size), header, body))
    response_header = PullMessageResponse(
        suggested_broker_id=hints.suggested_broker_id,
        next_queue_offset=result.next_offset,
        min_queue_offset=result.min_offset,
        max_queue_offset=result.max_offset,
        topic_sys_flag=hints.topic_sys_flag,
        group_sys_flag=hints.group_sys_flag,
    )
    return encode_command(response_to(request, code, result.status.value, response_header.to_ext_fields(), body))
