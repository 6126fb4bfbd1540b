"""HA frames against bytes that Apache brokers 4.9.7 and 5.5.0 exchanged, cut at every byte."""

from __future__ import annotations

import pytest

from orbitlog.errors import WireError
from orbitlog.wire.ha_frames import (
    TRANSFER_BODY_BYTES_MAX,
    ReportDecoder,
    Transfer,
    TransferDecoder,
    encode_report,
    encode_transfer_head,
)

# A 4.9.7 pair: the slave's request and acknowledgements, the master's heartbeat and the headers of two transfers.
REPORTS_497 = bytes.fromhex("0000000000000000 00000000000001b6 0000000000000248")
HEARTBEAT_497 = bytes.fromhex("0000000000000000 00000000")
TRANSFERS_497 = (
    HEARTBEAT_497
    + bytes.fromhex("0000000000000000 000001b6")
    + bytes(range(219)) * 2
    + bytes.fromhex("00000000000001b6 00000092")
    + b"r" * 146
)


def test_reports_of_an_apache_slave_are_decoded_at_any_cut() -> None:
    for cut in range(len(REPORTS_497) + 1):
        decoder = ReportDecoder()
        assert decoder.receive_data(REPORTS_497[:cut]) + decoder.receive_data(REPORTS_497[cut:]) == [0, 438, 584]


def test_encoded_report_equals_the_captured_bytes() -> None:
    assert b"".join(map(encode_report, (0, 438, 584))) == REPORTS_497


def test_transfers_of_an_apache_master_are_decoded_at_any_cut() -> None:
    expected = [Transfer(0, b""), Transfer(0, bytes(range(219)) * 2), Transfer(438, b"r" * 146)]
    for cut in range(len(TRANSFERS_497) + 1):
        decoder = TransferDecoder()
        got = [*decoder.receive_data(TRANSFERS_497[:cut]), *decoder.receive_data(TRANSFERS_497[cut:])]
        assert got == expected
        assert decoder.kept_bytes == 0


def test_encoded_transfer_head_equals_the_captured_bytes() -> None:
    assert encode_transfer_head(0, 0) == HEARTBEAT_497
    assert encode_transfer_head(0x1B6, 146) == bytes.fromhex("00000000000001b6 00000092")


@pytest.mark.parametrize(
    "head",
    [(-1, 0), (0, -1), (0, TRANSFER_BODY_BYTES_MAX + 1), (0, 2**31 - 1)],
    ids=["negative offset", "negative size", "one byte too many", "largest size"],
)
def test_transfer_with_an_invalid_head_raises_before_its_body_is_buffered(head: tuple[int, int]) -> None:
    decoder = TransferDecoder()
    with pytest.raises(WireError, match="not a valid header"):
        list(decoder.receive_data(encode_transfer_head(*head)))


def test_negative_report_raises() -> None:
    with pytest.raises(WireError, match="not a physical offset"):
        ReportDecoder().receive_data(encode_report(-1))


def test_transfers_before_an_invalid_head_are_yielded_first() -> None:
    decoder, got = TransferDecoder(), []
    with pytest.raises(WireError):
        for transfer in decoder.receive_data(encode_transfer_head(7, 2) + b"ab" + encode_transfer_head(9, -1)):
            got.append(transfer)
    assert got == [Transfer(7, b"ab")]
