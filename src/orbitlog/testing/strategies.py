"""Hypothesis strategies for the values that `orbitlog.formats` encodes.

Values are small by default, so that a test can try every truncation and every flipped bit. Needs hypothesis, which only
a development install includes.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from orbitlog.formats.derived.checkpoint import Checkpoint
from orbitlog.formats.derived.index_layout import IndexEntry, IndexHeader, IndexLayout
from orbitlog.formats.derived.queue_entry import QueueEntry
from orbitlog.formats.hosts import Host
from orbitlog.formats.java import INT_MAX, INT_MIN, LONG_MAX, LONG_MIN
from orbitlog.formats.records.batch import BatchMember
from orbitlog.formats.records.message import (
    TOPIC_BYTES_MAX_V1,
    TOPIC_BYTES_MAX_V2,
    Message,
    encode_message,
    make_message,
)
from orbitlog.formats.records.message_id import OffsetMessageId
from orbitlog.formats.records.message_scan import BLANK_BYTES, encode_blank
from orbitlog.formats.records.properties import KEYS, TAGS, UNIQ_KEY, encode_properties
from orbitlog.formats.records.unique_id import UniqueId

_TOPIC_ALPHABET = "abcXYZ019_-%|"
_SEPARATORS = "\x01\x02"


def ints() -> SearchStrategy[int]:
    """Any i32."""
    return st.integers(INT_MIN, INT_MAX)


def longs() -> SearchStrategy[int]:
    """Any i64."""
    return st.integers(LONG_MIN, LONG_MAX)


def physical_offsets() -> SearchStrategy[int]:
    """Valid physical offsets."""
    return st.integers(0, LONG_MAX)


def hosts() -> SearchStrategy[Host]:
    """IPv4 and IPv6 addresses with a valid port."""
    addresses = st.binary(min_size=4, max_size=4) | st.binary(min_size=16, max_size=16)
    return st.builds(Host, addresses, st.integers(0, 65535))


def topics(*, bytes_max: int = TOPIC_BYTES_MAX_V1) -> SearchStrategy[str]:
    """Names that a broker accepts, and any text of the right length, which only a record can contain."""
    names = st.text(_TOPIC_ALPHABET, min_size=1, max_size=min(bytes_max, 20))
    longest = st.sampled_from([bytes_max - 1, bytes_max]).map("t".__mul__)
    odd = st.text(min_size=1, max_size=bytes_max // 4)
    return names | longest | odd.filter(lambda name: name.isprintable())


def texts(*, min_size: int = 1, max_size: int = 12) -> SearchStrategy[str]:
    """Valid text of properties: no separators, and no lone surrogates, which UTF-8 cannot encode."""
    characters = st.characters(codec="utf-8", exclude_characters=_SEPARATORS)
    return st.text(characters, min_size=min_size, max_size=max_size)


def property_maps(*, max_size: int = 5) -> SearchStrategy[dict[str, str]]:
    """Properties that survive encoding: names and values are not empty."""
    names = st.sampled_from([KEYS, TAGS, UNIQ_KEY, "a", "b"]) | texts()
    return st.dictionaries(names, texts(), max_size=max_size)


@st.composite
def messages(
    draw: DrawFn, *, body_bytes_max: int = 40, physical_offset: int | None = None, version: int | None = None
) -> Message:
    """Messages of both versions, with every mix of host sizes, that encode to valid records."""
    chosen_version = version or draw(st.sampled_from([1, 1, 1, 2]))
    bytes_max = TOPIC_BYTES_MAX_V1 if chosen_version == 1 else TOPIC_BYTES_MAX_V2
    properties = draw(property_maps())
    return make_message(
        draw(topics(bytes_max=bytes_max)),
        draw(st.binary(max_size=body_bytes_max)),
        properties=encode_properties(properties, trailing_separator=draw(st.booleans())),
        born_host=draw(hosts()),
        store_host=draw(hosts()),
        sys_flag=draw(ints()),
        queue_id=draw(ints()),
        flag=draw(ints()),
        queue_offset=draw(longs()),
        physical_offset=draw(physical_offsets()) if physical_offset is None else physical_offset,
        born_timestamp_ms=draw(longs()),
        store_timestamp_ms=draw(longs()),
        reconsume_times=draw(ints()),
        prepared_transaction_offset=draw(longs()),
        version=chosen_version,
    )


@dataclass(frozen=True, slots=True)
class Segment:
    """The bytes of a segment and its messages; `blank_position`: None without a BLANK record."""

    data: bytes
    base_physical_offset: int
    messages: tuple[Message, ...]
    positions: tuple[int, ...]
    blank_position: int | None
    end_position: int


@st.composite
def segments(draw: DrawFn, *, messages_min: int = 0, messages_max: int = 5) -> Segment:
    """Segments as a broker leaves them: records, then a BLANK with padding, zeros, or the end of the bytes."""
    base = draw(st.integers(0, 2**40)) * 4096
    laid: list[Message] = []
    positions: list[int] = []
    data = b""
    for message in draw(st.lists(messages(), min_size=messages_min, max_size=messages_max)):
        laid.append(message._replace(physical_offset=base + len(data)))
        positions.append(len(data))
        data += encode_message(laid[-1])
    end = len(data)
    ending = draw(st.sampled_from(["blank", "zeros", "exact"]))
    if ending == "blank":
        padding = draw(st.binary(max_size=30))
        data += encode_blank(BLANK_BYTES + len(padding)) + padding
    elif ending == "zeros":
        data += bytes(draw(st.integers(BLANK_BYTES, 200)))
    blank_position = end if ending == "blank" else None
    return Segment(data, base, tuple(laid), tuple(positions), blank_position, end)


def queue_entries() -> SearchStrategy[QueueEntry]:
    """Valid units of a ConsumeQueue."""
    return st.builds(QueueEntry, physical_offsets(), st.integers(1, INT_MAX), longs())


def batch_members() -> SearchStrategy[BatchMember]:
    """Members of a batch, including empty bodies."""
    return st.builds(BatchMember, st.binary(max_size=30), property_maps().map(encode_properties), ints())


def checkpoints() -> SearchStrategy[Checkpoint]:
    """Checkpoints with any numbers in all their fields."""
    return st.builds(Checkpoint, *[longs()] * 6)


def offset_message_ids() -> SearchStrategy[OffsetMessageId]:
    """Offset message ids."""
    return st.builds(OffsetMessageId, hosts(), longs())


def unique_ids() -> SearchStrategy[UniqueId]:
    """Unique ids of producers."""
    addresses = st.binary(min_size=4, max_size=4) | st.binary(min_size=16, max_size=16)
    shorts = st.integers(0, 2**16 - 1)
    return st.builds(UniqueId, addresses, shorts, ints(), st.integers(0, 2**32 - 1), shorts)


def index_headers() -> SearchStrategy[IndexHeader]:
    """Valid headers of an index file."""
    counts = st.integers(0, INT_MAX), st.integers(1, INT_MAX)
    return st.builds(IndexHeader, longs(), longs(), longs(), longs(), *counts)


def index_entries() -> SearchStrategy[IndexEntry]:
    """Entries with any numbers in all their fields."""
    return st.builds(IndexEntry, ints(), longs(), ints(), ints())


def index_layouts() -> SearchStrategy[IndexLayout]:
    """Small layouts, so that slots collide and files fill up."""
    return st.builds(IndexLayout, st.integers(1, 40), st.integers(2, 30))
