"""CommitLog record layout: magics, fixed fields, limits; from these come codec, templates, kernels and documentation.

A record is a fixed prefix (88 bytes with two IPv4 hosts, 12 more for each IPv6 host), the body, the topic and the
properties. Mirrors Java `MessageExtEncoder`.
"""

from __future__ import annotations

from orbitlog.formats.hosts import IPV4_HOST_BYTES, IPV6_HOST_BYTES
from orbitlog.formats.layout import Field, Layout
from orbitlog.formats.records import flags

MAGIC_V1 = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB

TOPIC_BYTES_MAX_V1 = 127
TOPIC_BYTES_MAX_V2 = 255
BODY_CRC_MASK = 0x7FFFFFFF


def _prefix_layout(title: str, born_host: str, store_host: str) -> Layout:
    return Layout(
        title,
        Field("total_size", "i32", "bytes of the whole record, this field included"),
        Field("magic", "u32", f"0x{MAGIC_V1:08X} (V1) or 0x{MAGIC_V2:08X} (V2: two bytes of topic length)"),
        Field("body_crc", "i32", "CRC-32 of the body as stored, top bit cleared; 0 for an empty body"),
        Field("queue_id", "i32", "queue within the topic"),
        Field("flag", "i32", "the application's own flag, opaque"),
        Field("queue_offset", "i64", "number of the message's unit in its ConsumeQueue"),
        Field("physical_offset", "i64", "where in the log this record starts"),
        Field("sys_flag", "i32", "compression, transaction state, host address sizes"),
        Field("born_timestamp_ms", "i64", "the producer's clock"),
        Field("born_host_raw", born_host, "the producer's address, then its port as i32"),
        Field("store_timestamp_ms", "i64", "the broker's clock"),
        Field("store_host_raw", store_host, "the broker's address, then its port as i32"),
        Field("reconsume_times", "i32", "how often it was sent back for another try"),
        Field("prepared_transaction_offset", "i64", "physical offset of the half message, for a committed one"),
        Field("body_length", "i32", "bytes of body; body, topic and properties follow"),
    )


_IPV4, _IPV6 = f"{IPV4_HOST_BYTES}s", f"{IPV6_HOST_BYTES}s"
RECORD_PREFIX = _prefix_layout("CommitLog record, fixed prefix (both hosts IPv4)", _IPV4, _IPV4)
RECORD_TAIL = Layout(
    "CommitLog record, lengths after the body",
    Field("topic_length", "i8", "bytes of topic, at most 127; i16 in a V2 record; then the topic in UTF-8"),
    Field("properties_length", "i16", "bytes of properties; then the properties"),
)
IPV6_BITS = flags.BORN_HOST_IPV6 | flags.STORE_HOST_IPV6
# Keyed by the two host bits of sysFlag.
RECORD_PREFIXES = {
    0: RECORD_PREFIX,
    flags.BORN_HOST_IPV6: _prefix_layout("CommitLog record, fixed prefix (born host IPv6)", _IPV6, _IPV4),
    flags.STORE_HOST_IPV6: _prefix_layout("CommitLog record, fixed prefix (store host IPv6)", _IPV4, _IPV6),
    IPV6_BITS: _prefix_layout("CommitLog record, fixed prefix (both hosts IPv6)", _IPV6, _IPV6),
}
# Size, magic and physical offset: their positions do not depend on the sizes of the hosts.
RECORD_START = RECORD_PREFIX.partial("total_size", "magic", "physical_offset")

RECORD_BYTES_MIN = RECORD_PREFIX.size_bytes + RECORD_TAIL.size_bytes
assert RECORD_PREFIX.size_bytes == 88
assert RECORD_BYTES_MIN == 91
