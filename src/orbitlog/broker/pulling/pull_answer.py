"""Pull response: encodes the response to a pull in one step; a message that fifty groups wait for is sent fifty times.

The bytes equal those of `encode_command`, as a test proves; requests in the binary serialization use that one.
"""

from __future__ import annotations

from orbitlog.store.reads.queue_reader import GetResult
from orbitlog.wire.codes import ResponseCode
from orbitlog.wire.command import LANGUAGE, PROTOCOL_VERSION, Command, Serialization, encode_command, response_to
from orbitlog.wire.consume_headers import PullMessageResponse
from orbitlog.wire.frame_start import TOTAL_BYTES, pack_frame_start

_JSON = int(Serialization.JSON)
_TEMPLATE = (
    f'{{"code":%d,"language":"{LANGUAGE}","version":{PROTOCOL_VERSION},"opaque":%d,"flag":1,"remark":"%b","extFields":'
    '{"suggestWhichBrokerId":"0","nextBeginOffset":"%d","minOffset":"%d","maxOffset":"%d","topicSysFlag":"%d",'
    '"groupSysFlag":"%d"}}'
).encode()


def pull_frame(
    request: Command, code: ResponseCode, result: GetResult, body: bytes, sys_flags: tuple[int, int]
) -> bytes:
    """Return the response with the messages read, or why there are none; `sys_flags` are topic's and group's."""
    if request.serialization == _JSON:
        header = _TEMPLATE % (
            code,
            request.opaque,
            result.status.value.encode(),
            result.next_offset,
            result.min_offset,
            result.max_offset,
            *sys_flags,
        )
        size = len(header)
        return b"".join((pack_frame_start(TOTAL_BYTES + size + len(body), size), header, body))
    response_header = PullMessageResponse(
        suggested_broker_id=0,
        next_queue_offset=result.next_offset,
        min_queue_offset=result.min_offset,
        max_queue_offset=result.max_offset,
        topic_sys_flag=sys_flags[0],
        group_sys_flag=sys_flags[1],
    )
    return encode_command(response_to(request, code, result.status.value, response_header.to_ext_fields(), body))
