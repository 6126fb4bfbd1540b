"""Records of a batch made in one go are those that are made one by one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitlog.formats.hosts import Host
from orbitlog.formats.records import flags
from orbitlog.formats.records import properties as props
from orbitlog.formats.records.batch import BatchMember, encode_batch, expand_batch
from orbitlog.formats.records.batch_records import encode_records
from orbitlog.formats.records.message import Message, encode_placed, make_message, measure_record

ADDED = b"CLUSTER\x01DefaultCluster\x02"
HOST = Host(bytes((127, 0, 0, 1)), 10911)
PROPERTIES = st.sampled_from(
    [b"", b"KEYS\x01k", b"KEYS\x01k\x02", b"TAGS\x01a\x02UNIQ_KEY\x01u\x02", "KEYS\x01é".encode()]
)
# A body that contains the name of a property that needs the slow path takes it as well.
SLOW_PATH_NAMES = [name.encode() for name in (props.DELAY, props.INNER_NUM, props.CRC32, props.INNER_MULTI_DISPATCH)]
BODIES = st.binary(min_size=1, max_size=60).filter(lambda body: not any(name in body for name in SLOW_PATH_NAMES))
MEMBERS = st.lists(
    st.builds(BatchMember, BODIES, PROPERTIES, st.integers(-(2**31), 2**31 - 1)),
    min_size=2,
    max_size=8,
)


def batch_of(body: bytes, **fields: int) -> Message:
    message = make_message("Orders", body, born_host=HOST, store_host=HOST, queue_id=3, born_timestamp_ms=5, **fields)
    return message._replace(reconsume_times=2)


def one_by_one(batch: Message, added: bytes, queue_offset: int, physical_offset: int) -> tuple[bytes, list[int]]:
    records, offsets = [], []
    for message in expand_batch(batch._replace(properties_raw=added)):
        offsets.append(physical_offset)
        records.append(encode_placed(measure_record(message), queue_offset, physical_offset, 9))
        physical_offset += len(records[-1])
        queue_offset += 1
    return b"".join(records), offsets


@settings(deadline=None)  # a busy machine may take its time
@given(MEMBERS, st.sampled_from([b"", ADDED]))
def test_the_same_bytes(members: list[BatchMember], added: bytes) -> None:
    batch = batch_of(encode_batch(members))
    records = encode_records(batch, added, 7, 1000, 9)
    assert records is not None
    assert tuple(records) == one_by_one(batch, added, 7, 1000)


ORDINARY = [BatchMember(b"one", b"KEYS\x01k\x02"), BatchMember(b"two")]


@pytest.mark.parametrize(
    "members",
    [
        ORDINARY[:1],
        [*ORDINARY, BatchMember(b"late", b"DELAY\x013\x02")],
        [*ORDINARY, BatchMember(b"inner", b"INNER_NUM\x013\x02")],
        [*ORDINARY, BatchMember(b"zero", b"KEYS\x01\x00\x02")],
        [*ORDINARY, BatchMember(b"")],
        [*ORDINARY, BatchMember(b"long", b"K\x01" + b"v" * 32_760)],
    ],
    ids=["single", "delayed", "inner", "zero", "empty", "long"],
)
def test_what_is_unusual_is_left_to_others(members: list[BatchMember]) -> None:
    assert encode_records(batch_of(encode_batch(members)), ADDED, 0, 0, 0) is None


@pytest.mark.parametrize("bits", [flags.TransactionType.COMMIT, flags.INNER_BATCH])
def test_bits_are_left_to_others(bits: int) -> None:
    assert encode_records(batch_of(encode_batch(ORDINARY), sys_flag=bits), ADDED, 0, 0, 0) is None


def test_every_cut_is_left_to_others() -> None:
    body = encode_batch(ORDINARY)
    assert encode_records(batch_of(body), ADDED, 0, 0, 0) is not None
    for size in range(len(body)):
        assert encode_records(batch_of(body[:size]), ADDED, 0, 0, 0) is None


def test_every_flipped_length_is_left_to_others_or_the_same() -> None:
    body = encode_batch(ORDINARY)
    for position in range(len(body)):
        damaged = body[:position] + bytes((body[position] ^ 0x80,)) + body[position + 1 :]
        records = encode_records(batch_of(damaged), ADDED, 0, 0, 9)
        assert records is None or tuple(records) == one_by_one(batch_of(damaged), ADDED, 0, 0)


ALIKE = st.lists(
    st.builds(
        BatchMember,
        st.binary(min_size=5, max_size=5),
        st.sampled_from([b"KEYS\x01k1\x02", b"KEYS\x01k2\x02", b"KEYS\x01k3x"]),
        st.sampled_from([-7, -7, -7, 0]),
    ),
    min_size=2,
    max_size=6,
)


@settings(deadline=None)  # a busy machine may take its time
@given(ALIKE, st.sampled_from([b"", ADDED]), st.booleans())
def test_members_of_one_size_are_the_same_bytes(members: list[BatchMember], added: bytes, bare: bool) -> None:
    if bare:
        members = [BatchMember(member.body, b"", member.flag) for member in members]
    batch = batch_of(encode_batch(members))
    records = encode_records(batch, added, 7, 1000, 9)
    assert records is not None
    assert tuple(records) == one_by_one(batch, added, 7, 1000)


@pytest.mark.parametrize("odd", [b"DELAY\x013\x02", b"KEYS\x01\x00x\x02", b"DELAY\x01k\x02"])
def test_an_unusual_member_of_the_same_size_is_left_to_others(odd: bytes) -> None:
    members = [BatchMember(b"one", b"K" * (len(odd) - 1) + b"\x02"), BatchMember(b"two", odd)]
    assert encode_records(batch_of(encode_batch(members)), ADDED, 0, 0, 0) is None
