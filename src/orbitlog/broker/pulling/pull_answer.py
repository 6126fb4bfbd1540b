"""The answer to a pull, written in one go: a message that fifty groups wait for leaves a broker fifty times.

The same bytes as `encode_command` writes, which a test holds it to; requests in the binary serialization go there.
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
    """Answer a pull with what was read, or why nothing was; `sys_flags` are the topic's and the group's."""
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
    told = PullMessageResponse(
        suggested_broker_id=0,
        next_queue_offset=result.next_offset,
        min_queue_offset=result.min_offset,
        max_queue_offset=result.max_offset,
        topic_sys_flag=sys_flags[0],
        group_sys_flag=sys_flags[1],
    )
    return encode_command(response_to(request, code, result.status.value, told.to_ext_fields(), body))
