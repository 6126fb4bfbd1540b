"""The batch kernel encodes the same records as plain Python, and refuses the same batches."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitlog.formats.hosts import Host
from orbitlog.formats.records.batch import BatchMember, encode_batch
from orbitlog.formats.records.batch_records import encode_records
from orbitlog.formats.records.message import Message, make_message
from orbitlog.kernels.arrays import np
from orbitlog.kernels.batch_encode import BatchEncoder, put_records

ADDED = b"CLUSTER\x01DefaultCluster\x02"
HOST = Host(bytes((127, 0, 0, 1)), 10911)
ENCODER = BatchEncoder()
NAMES = [
    b"",
    b"KEYS\x01k",
    b"KEYS\x01k\x02",
    b"A\x01b\x02",
    b"K\x01\x00",
    b"DELAY\x013\x02",
    b"xINNER_NUM\x013",
    b"DELA",
]
PLAIN = NAMES[:4]


def batch_of(body: bytes) -> Message:
    return make_message("Orders", body, born_host=HOST, store_host=HOST, queue_id=3, born_timestamp_ms=5)


def lists_of(properties: list[bytes]) -> st.SearchStrategy[list[BatchMember]]:
    flags = st.integers(-(2**31), 2**31 - 1)
    member = st.builds(BatchMember, st.binary(max_size=200), st.sampled_from(properties), flags)
    return st.lists(member, min_size=1, max_size=6)


def check(body: bytes, added: bytes) -> None:
    batch = batch_of(body)
    assert ENCODER.encode_records(batch, added, 7, 1000, 9) == encode_records(batch, added, 7, 1000, 9)


def encoded_bytes(body: bytes, added: bytes, room: int = 100_000) -> int:
    """Return how many bytes the kernel itself makes, without who stands in for it."""
    shared = np.frombuffer(bytes(88) + b"\x06Orders" + added, np.uint8)
    made = np.empty(room, np.uint8)
    return int(put_records(np.frombuffer(body, np.uint8), shared, len(added), 0, 0, made, np.empty(8, np.int64))[0])


@given(lists_of(PLAIN), st.sampled_from([b"", ADDED]))
def test_plain_members(members: list[BatchMember], added: bytes) -> None:
    check(encode_batch(members), added)
    if all(member.body for member in members):
        assert encoded_bytes(encode_batch(members), added) > 0


@given(lists_of(NAMES), st.sampled_from([b"", ADDED]))
def test_members_of_all_kinds(members: list[BatchMember], added: bytes) -> None:
    check(encode_batch(members), added)


@given(lists_of(PLAIN), st.data())
def test_damaged_members(members: list[BatchMember], data: st.DataObject) -> None:
    body = bytearray(encode_batch(members))
    body[data.draw(st.integers(0, len(body) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    check(bytes(body[: data.draw(st.integers(1, len(body)))]), ADDED)


@pytest.mark.parametrize("unusual", [b"K\x01\x00", b"DELAY\x013\x02", b"INNER_NUM\x013", b"\x00", b"K" * 32_760])
def test_what_is_unusual_is_left_to_plain_python(unusual: bytes) -> None:
    body = encode_batch([BatchMember(b"one", b"KEYS\x01k\x02"), BatchMember(b"two", unusual)])
    assert encoded_bytes(body, ADDED) < 0


def test_more_room_is_made_for_a_large_batch() -> None:
    body = encode_batch([BatchMember(b"x" * 50_000, b"KEYS\x01k\x02")] * 4)
    check(body, ADDED)
    assert encoded_bytes(body, ADDED, room=100_000) < 0 < encoded_bytes(body, ADDED, room=300_000)


def test_more_members_than_there_is_room_for_are_encoded_all_the_same() -> None:
    check(encode_batch([BatchMember(b"x")] * 5000), ADDED)
    check(encode_batch([BatchMember(b"x")] * 4000), ADDED)
