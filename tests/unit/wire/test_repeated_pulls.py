"""Pulls read by a pattern are the commands that the plain decoder makes of them."""

from __future__ import annotations

import json

import pytest

from orbitlog.errors import OrbitlogError, WireError
from orbitlog.wire import repeated_pulls
from orbitlog.wire.command import Command
from orbitlog.wire.command_decoding import WireLimits, decode_json_header
from orbitlog.wire.consume_headers import PullMessageRequest
from orbitlog.wire.frames import FrameDecoder
from orbitlog.wire.repeated_pulls import RepeatedPulls

LIMITS = WireLimits()
FIELDS = {
    "queueId": "3",
    "maxMsgNums": "32",
    "sysFlag": "3",
    "suspendTimeoutMillis": "15000",
    "commitOffset": "12",
    "topic": "Orders",
    "queueOffset": "12",
    "expressionType": "TAG",
    "subVersion": "1731700000000",
    "consumerGroup": "G",
}


def text(opaque: object = 1, **fields: object) -> bytes:
    """A header as the Java client writes it."""
    ext_fields = FIELDS | {name: str(value) for name, value in fields.items()}
    header = {"code": 11, "extFields": ext_fields, "flag": 0, "language": "JAVA", "opaque": opaque}
    return json.dumps({**header, "serializeTypeCurrentRPC": "JSON", "version": 479}, separators=(",", ":")).encode()


def knowing(header: bytes) -> RepeatedPulls:
    """One that has seen pulls of this kind often."""
    pulls = RepeatedPulls()
    for _ in range(40):
        pulls.read(header, b"", LIMITS)
    return pulls


@pytest.mark.parametrize(
    "header",
    [
        text(),
        text(0, queueId=0, queueOffset=0, sysFlag=0, commitOffset=0),
        text(999_999_999, queueId=999_999_999, queueOffset=10**18 - 1, sysFlag="007", commitOffset="0012"),
    ],
)
def test_pattern_gives_the_same_command(header: bytes) -> None:
    read = knowing(text()).read(header, b"body", LIMITS)
    plain = decode_json_header(header, b"body", LIMITS)
    assert read is not None and read == plain
    assert read.header == PullMessageRequest.from_ext_fields(plain.ext_fields)
    assert plain.header is None


def test_signed_pull_is_decoded_with_its_own_signature() -> None:
    first, other = "0jiwhsaYp5ObE5GObbZH1I8/FT4=", "4NR7uax5/GAGvCdisxzQm6IeM9k="
    pulls = knowing(text(AccessKey="bob", Signature=first))
    header = text(queueOffset=13, AccessKey="bob", Signature=other)

    read = pulls.read(header, b"", LIMITS)

    assert read == decode_json_header(header, b"", LIMITS)
    for signature in ("", other[:-1], other + "=", other.replace("=", "\\u003d")):
        assert pulls.read(text(AccessKey="bob", Signature=signature), b"", LIMITS) is None
    assert pulls.read(text(AccessKey="eve", Signature=other), b"", LIMITS) is None


@pytest.mark.parametrize(
    "header",
    [
        text(2**31 - 1),
        text("1"),
        text(-1),
        text(queueId="-1"),
        text(queueOffset="-1"),
        text(queueOffset=2**63 - 1),
        text(commitOffset=""),
        text(sysFlag="3 "),
        text(topic="Others"),
        text(maxMsgNums="33"),
        text(bname="broker-a"),
        text().replace(b'"code":11', b'"code":12'),
        text().replace(b'"opaque":1', b'"opaque":01'),
        text().replace(b'"opaque":1', b'"opaque":1.0'),
        text() + b" ",
    ],
)
def test_header_with_another_difference_does_not_match(header: bytes) -> None:
    assert knowing(text()).read(header, b"", LIMITS) is None


@pytest.mark.parametrize(
    "header",
    [
        text(opaque="1"),
        text(queueId="-1"),
        text(subscription='a||"queueId":"b"', opaque2="1").replace(b'"opaque2"', b'"opaque"'),
        text(maxMsgNums="many"),
        text(subscription="x" * 5000),
        text()[:-1],
    ],
)
def test_header_without_pattern_never_matches(header: bytes) -> None:
    assert knowing(header).read(header, b"", LIMITS) is None


def test_quotes_and_regex_characters_in_a_text_match() -> None:
    header = text(subscription='a||"queueId":"7",%(.*)[')
    read = knowing(header).read(header.replace(b'"opaque":1', b'"opaque":77'), b"", LIMITS)
    assert read is not None and read.opaque == 77 and read.ext_fields["queueId"] == "3"


def test_only_the_last_patterns_are_kept() -> None:
    pulls = RepeatedPulls()
    kinds = [text(topic=f"Topic{number}") for number in range(6)]
    for header in kinds:
        for _ in range(100):  # most of them by the pattern, so that the next kind is taken up as soon
            pulls.read(header, b"", LIMITS)
    known = [pulls.read(header, b"", LIMITS) for header in kinds]
    assert [None if read is None else read.ext_fields["topic"] for read in known] == [
        None,
        None,
        "Topic2",
        "Topic3",
        "Topic4",
        "Topic5",
    ]
    turns = [pulls.read(kinds[number % 3 + 2], b"", LIMITS) for number in range(12)]
    assert [read.ext_fields["topic"] for read in turns if read is not None] == ["Topic2", "Topic3", "Topic4"] * 4


def test_many_kinds_in_turn_get_fewer_patterns(monkeypatch: pytest.MonkeyPatch) -> None:
    taken_up: list[bytes] = []
    pattern_of = repeated_pulls._pattern_of
    monkeypatch.setattr(
        repeated_pulls, "_pattern_of", lambda header, limits: taken_up.append(header) or pattern_of(header, limits)
    )
    pulls = RepeatedPulls()
    for number in range(4000):
        pulls.read(text(topic=f"Topic{number % 40}"), b"", LIMITS)
    assert len(taken_up) <= 7, "each time after twice as many as the time before"
    for number in range(6000):
        pulls.read(text(number), b"", LIMITS)
    assert pulls.read(text(), b"", LIMITS) is not None, "but not for good"


def test_flipped_bytes_give_the_command_of_the_json_decoder() -> None:
    pulls, header = knowing(text(123, queueOffset=45678)), text(123, queueOffset=45678)
    for place in range(len(header)):
        for bit in (1, 4, 16):
            flipped = bytearray(header)
            flipped[place] ^= bit
            read = pulls.read(bytes(flipped), b"", LIMITS)
            if read is not None:
                assert read == _plain(bytes(flipped))
                assert read.header == PullMessageRequest.from_ext_fields(read.ext_fields)


def _plain(header: bytes) -> Command | None:
    try:
        return decode_json_header(header, b"", LIMITS)
    except OrbitlogError:
        return None


def test_decoder_uses_patterns() -> None:
    decoder = FrameDecoder()
    commands = [decoder.decode((0, text(number, queueOffset=number), b"")) for number in range(1, 50)]
    assert [command.opaque for command in commands] == list(range(1, 50))
    assert commands[0].header is None and isinstance(commands[-1].header, PullMessageRequest)
    with pytest.raises(WireError):
        decoder.decode((0, text()[:-2], b""))
    assert decoder.failure is not None
