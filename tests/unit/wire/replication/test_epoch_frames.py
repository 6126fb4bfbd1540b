"""AutoSwitch frames against bytes that Apache brokers 5.5.0 exchanged, cut at every byte."""

from __future__ import annotations

import random

import pytest

from orbitlog.errors import WireError
from orbitlog.formats.derived.epoch_file import EpochEntry
from orbitlog.wire.replication.epoch_frames import (
    BODY_BYTES_MAX,
    ENTRIES_MAX,
    EpochReport,
    EpochTransfer,
    Handshake,
    HandshakeAnswer,
    MasterFrameDecoder,
    SlaveFrameDecoder,
    TransferHead,
    encode_epoch_report,
    encode_epoch_transfer_head,
    encode_handshake,
    encode_handshake_answer,
)

# An empty slave 2 joins master 1, which wrote 558 bytes in epoch 1.
SLAVE_550 = bytes.fromhex(
    "00000001 0000 0000 000000000000000200000002 000000000000000000000002 000000000000022e00000002 00000000000002e8"
)
SLAVE_FRAMES = [Handshake(2), EpochReport(0), EpochReport(558), EpochReport(744)]
JOIN_ANSWER = HandshakeAnswer(558, 1, (EpochEntry(1, 0),))
MASTER_550 = (
    bytes.fromhex("00000001 0000000c 000000000000022e 00000001 00000001 0000000000000000")
    + bytes.fromhex("00000002 00000000 0000000000000000 00000001 0000000000000000 000000000000022e")
    + bytes.fromhex("00000002 000000ba 000000000000022e 00000001 0000000000000000 000000000000022e")
    + b"r" * 186
)
MASTER_FRAMES = [
    JOIN_ANSWER,
    EpochTransfer(TransferHead(0, 0, 1, 0, 558), b""),
    EpochTransfer(TransferHead(186, 558, 1, 0, 558), b"r" * 186),
]
# Broker 1 returns to master 2, which began epoch 5 at 930.
RETURN_ANSWER = bytes.fromhex(
    "00000001 00000018 0000000000000522 00000005 00000001 0000000000000000 00000005 00000000000003a2"
)


def test_frames_of_an_apache_slave_are_decoded_at_any_cut() -> None:
    for cut in range(len(SLAVE_550) + 1):
        decoder = SlaveFrameDecoder()
        assert [*decoder.receive_data(SLAVE_550[:cut]), *decoder.receive_data(SLAVE_550[cut:])] == SLAVE_FRAMES


def test_frames_of_an_apache_master_are_decoded_at_any_cut() -> None:
    for cut in range(len(MASTER_550) + 1):
        decoder = MasterFrameDecoder()
        assert [*decoder.receive_data(MASTER_550[:cut]), *decoder.receive_data(MASTER_550[cut:])] == MASTER_FRAMES
        assert decoder.kept_bytes == 0


def test_encoded_frames_equal_the_captured_bytes() -> None:
    reports = b"".join(encode_epoch_report(frame.physical_offset) for frame in SLAVE_FRAMES[1:])  # type: ignore[union-attr]
    assert encode_handshake(Handshake(2)) + reports == SLAVE_550
    heads = [encode_epoch_transfer_head(frame.head) + frame.body for frame in MASTER_FRAMES[1:]]  # type: ignore[union-attr]
    assert encode_handshake_answer(JOIN_ANSWER) + b"".join(heads) == MASTER_550
    returned = HandshakeAnswer(1314, 5, (EpochEntry(1, 0), EpochEntry(5, 930)))
    assert encode_handshake_answer(returned) == RETURN_ANSWER
    assert list(MasterFrameDecoder().receive_data(RETURN_ANSWER)) == [returned]


def test_learner_and_last_file_are_flags_of_the_handshake() -> None:
    handshake = Handshake(7, is_learner=True, syncs_from_last_file=True)
    assert encode_handshake(handshake) == bytes.fromhex("00000001 0001 0001 0000000000000007")
    assert list(SlaveFrameDecoder().receive_data(encode_handshake(handshake))) == [handshake]


@pytest.mark.parametrize(
    "data",
    [
        "00000002 0000000000000000 00000000",  # a report before the handshake
        "00000001 0000 0000 ffffffffffffffff",
        "00000001 0000 0000 0000000000000002 00000001 0000000000000000",  # a second handshake
        "00000001 0000 0000 0000000000000002 00000002 ffffffffffffffff",
    ],
)
def test_invalid_frame_of_a_slave_raises(data: str) -> None:
    with pytest.raises(WireError):
        list(SlaveFrameDecoder().receive_data(bytes.fromhex(data)))


@pytest.mark.parametrize(
    "data",
    [
        "00000002 0000000c 000000000000022e 00000001",
        "00000001 ffffffff 000000000000022e 00000001",
        "00000001 0000000d 000000000000022e 00000001",
        f"00000001 {12 * ENTRIES_MAX + 12:08x} 000000000000022e 00000001",
        "00000001 00000000 ffffffffffffffff 00000001",
        "00000001 0000000c 000000000000022e 00000002 00000001 0000000000000000",  # another last epoch
        "00000001 00000018 000000000000022e 00000005 00000005 0000000000000000 00000005 0000000000000009",
        "00000001 00000018 000000000000022e 00000005 00000001 0000000000000009 00000005 0000000000000009",
        "00000001 0000000c 000000000000022e 00000001 00000001 ffffffffffffffff",
    ],
)
def test_invalid_answer_raises_before_its_entries_are_buffered(data: str) -> None:
    with pytest.raises(WireError):
        list(MasterFrameDecoder().receive_data(bytes.fromhex(data)))


@pytest.mark.parametrize(
    ("state", "body_bytes", "offset"), [(1, 0, 0), (2, -1, 0), (2, BODY_BYTES_MAX + 1, 0), (2, 0, -2), (2, 1, -1)]
)
def test_invalid_transfer_head_raises_before_its_body_is_buffered(state: int, body_bytes: int, offset: int) -> None:
    decoder = MasterFrameDecoder()
    list(decoder.receive_data(RETURN_ANSWER))
    head = state.to_bytes(4, "big") + encode_epoch_transfer_head(TransferHead(body_bytes, offset, 1, 0, 0))[4:]
    with pytest.raises(WireError, match="not a valid"):
        list(decoder.receive_data(head))


def test_answer_with_more_epochs_than_a_slave_reads_raises() -> None:
    entries = tuple(EpochEntry(epoch, epoch) for epoch in range(ENTRIES_MAX + 1))
    with pytest.raises(WireError, match="at most"):
        encode_handshake_answer(HandshakeAnswer(9, ENTRIES_MAX, entries))


@pytest.mark.parametrize("seed", range(20))
def test_random_bytes_end_in_frames_or_one_typed_error(seed: int) -> None:
    source = random.Random(seed)
    for decoder in (SlaveFrameDecoder(), MasterFrameDecoder()):
        data = (SLAVE_550 if isinstance(decoder, SlaveFrameDecoder) else MASTER_550) + source.randbytes(200)
        damaged = bytearray(data)
        damaged[source.randrange(len(data))] ^= 1 << source.randrange(8)
        try:
            for position in range(0, len(damaged), 7):
                list(decoder.receive_data(bytes(damaged[position : position + 7])))
        except WireError:
            continue


def test_heartbeat_of_a_java_master_without_a_log_has_offset_minus_one() -> None:
    decoder = MasterFrameDecoder()
    list(decoder.receive_data(RETURN_ANSWER))
    heartbeat = bytes.fromhex("00000002 00000000 ffffffffffffffff 00000001 0000000000000000 0000000000000000")
    (frame,) = decoder.receive_data(heartbeat)
    assert frame == EpochTransfer(TransferHead(0, -1, 1, 0, 0), b"")
