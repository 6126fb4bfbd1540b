"""Frame decoder: each frame is received whole, byte by byte, and followed by others."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitlog.errors import WireError
from orbitlog.wire.command import LANGUAGES, Command, Serialization, encode_command
from orbitlog.wire.command_decoding import WireLimits
from orbitlog.wire.frames import FrameDecoder

TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
INT32 = st.integers(-(2**31), 2**31 - 1)
# What the binary form can carry: short codes and versions, and no empty remark or name.
COMMANDS = st.builds(
    Command,
    code=st.integers(-(2**15), 2**15 - 1),
    opaque=INT32,
    flag=INT32,
    ext_fields=st.dictionaries(TEXT.filter(bool), TEXT, max_size=5),
    body=st.binary(max_size=50),
    remark=st.none() | TEXT.filter(bool),
    version=st.integers(0, 2**15 - 1),
    language=st.sampled_from(LANGUAGES),
    serialization=st.sampled_from(Serialization),
)
SEND = Command(310, 7, ext_fields={"a": "group", "b": "topic", "i": "KEYS\x01k\x02"}, body=b"hello")
BINARY = Command(11, -3, 2, {"topic": "T", "queueId": "0"}, b"x", "why", serialization=Serialization.BINARY)


def json_frame(header: bytes, body: bytes = b"") -> bytes:
    return (4 + len(header) + len(body)).to_bytes(4) + len(header).to_bytes(4) + header + body


@given(COMMANDS)
def test_encoded_commands_are_decoded(command: Command) -> None:
    assert FrameDecoder().receive_data(encode_command(command)) == [command]


@given(st.lists(COMMANDS, max_size=4), st.integers(1, 40))
def test_any_cut_gives_the_same_commands(commands: list[Command], step: int) -> None:
    data = b"".join(map(encode_command, commands))
    decoder = FrameDecoder()
    read = [
        command for start in range(0, len(data), step) for command in decoder.receive_data(data[start : start + step])
    ]
    assert read == commands
    assert decoder.kept_bytes == 0


def test_incomplete_frame_is_buffered() -> None:
    data = encode_command(SEND) + encode_command(BINARY)
    decoder = FrameDecoder()
    assert decoder.receive_data(data[:-1]) == [SEND]
    assert decoder.kept_bytes == len(encode_command(BINARY)) - 1
    assert decoder.receive_data(b"") == []
    assert decoder.receive_data(data[-1:] + data[:3]) == [BINARY]
    assert decoder.receive_data(data[3:]) == [SEND, BINARY]


HEADERS_READ = [
    (b'{"code":1}', Command(1, version=0, language="JAVA")),
    (b'{"code":1,"extFields":null,"flag":0,"opaque":3,"remark":null}\n', Command(1, 3, version=0, language="JAVA")),
    (b'{"code":"105","opaque":"-9","version":"49"}', Command(105, -9, version=49, language="JAVA")),
    (b'{"code":1,"language":9}', Command(1, version=0, language="GO")),
    (b'{"code":1,"language":99}', Command(1, version=0, language="OTHER")),
    (b'{"code":1,"language":"KLINGON","newField":[{}]}', Command(1, version=0, language="KLINGON")),
    (b'{code:1,language:"GO",extFields:{a:1,}}', Command(1, ext_fields={"a": "1"}, version=0, language="GO")),
    (
        b'{"code":310,"extFields":{"e":3,"g":1700000000000,"k":false,"m":true,"x":null,"y":1.5,"z":"s"}}',
        Command(
            310,
            ext_fields={"e": "3", "g": "1700000000000", "k": "false", "m": "true", "y": "1.5", "z": "s"},
            version=0,
            language="JAVA",
        ),
    ),
    (b'{"code":1,"remark":"\xff"}', Command(1, remark="\ufffd", version=0, language="JAVA")),
    (rb'{"code":1,"remark":"\ud800"}', Command(1, remark="?", version=0, language="JAVA")),
    (b'{"code":1,"remark":7}', Command(1, version=0, language="JAVA")),
]


@pytest.mark.parametrize(("header", "command"), HEADERS_READ)
def test_json_headers_of_all_clients_are_decoded(header: bytes, command: Command) -> None:
    assert FrameDecoder().receive_data(json_frame(header)) == [command]


BAD_FRAMES = {
    "nothing but zeros": bytes(8),
    "no header": bytes.fromhex("0000000400000000"),
    "a header longer than the frame": bytes.fromhex("0000000500000002") + b"{",
    "a negative length": bytes.fromhex("ffffffff00000002"),
    "one byte too many": (16 * 1024 * 1024 - 3).to_bytes(4) + bytes(4),
    "a header of eleven megabytes": bytes.fromhex("00ffff0000b00000"),
    "an unknown serialization": bytes.fromhex("0000000602000002") + b"{}",
    "HTTP": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "TLS": bytes.fromhex("16030100c8010000c40303"),
    "no JSON": json_frame(b"hello"),
    "JSON, but a list": json_frame(b"[]"),
    "an object without a code": json_frame(b"{}"),
    "a code that is true": json_frame(b'{"code":true}'),
    "a code that is a word": json_frame(b'{"code":"ten"}'),
    "a code of 33 bits": json_frame(b'{"code":4294967296}'),
    "a code of a hundred digits": json_frame(b'{"code":"' + b"9" * 100 + b'"}'),
    "an opaque of 33 bits": json_frame(b'{"code":1,"opaque":-4294967296}'),
    "a flag that is a list": json_frame(b'{"code":1,"flag":[]}'),
    "extension fields that are a list": json_frame(b'{"code":1,"extFields":[1]}'),
    "an extension field that is an object": json_frame(b'{"code":1,"extFields":{"a":{}}}'),
    "deep nesting": json_frame(b'{"code":1,"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "deep nesting, loosely": json_frame(b"{code:1,a:" + b"[" * 100_000),
    "too many fields": json_frame(b'{"code":1,"extFields":{' + b",".join(b'"%d":""' % n for n in range(1025)) + b"}}"),
    "a binary header cut short": bytes.fromhex("0000000601000002") + b"\0\1",
    "a binary remark longer than all": bytes.fromhex(
        "00000019 01000015 0069 00 0000 00000001 00000000 7fffffff 00000000"
    ),
    "a negative binary remark": bytes.fromhex("00000019 01000015 0069 00 0000 00000001 00000000 ffffffff 00000000"),
    "binary fields longer than all": bytes.fromhex(
        "00000019 01000015 0069 00 0000 00000001 00000000 00000000 7fffffff"
    ),
    "a binary key over the end": bytes.fromhex(
        "0000001b 01000017 0069 00 0000 00000001 00000000 00000000 00000002 0005"
    ),
}


@pytest.mark.parametrize("data", BAD_FRAMES.values(), ids=BAD_FRAMES)
def test_invalid_bytes_raise_one_error(data: bytes) -> None:
    decoder = FrameDecoder()
    with pytest.raises(WireError) as first:
        decoder.receive_data(data)
    with pytest.raises(WireError) as again:
        decoder.receive_data(encode_command(SEND))
    assert again.value is first.value is decoder.failure


def test_commands_before_invalid_bytes_are_returned() -> None:
    decoder = FrameDecoder()
    assert decoder.receive_data(encode_command(SEND) + b"garbage that is long enough") == [SEND]
    assert decoder.failure is not None
    with pytest.raises(WireError):
        decoder.receive_data(b"")


def test_lengths_are_checked_before_the_bytes_arrive() -> None:
    decoder = FrameDecoder(1000)
    with pytest.raises(WireError, match="frame of 1001 bytes exceeds the maximum of 1000"):
        decoder.receive_data((997).to_bytes(4) + bytes(4))
    assert FrameDecoder(1000).receive_data((996).to_bytes(4) + (100).to_bytes(4)) == []


@pytest.mark.parametrize(
    ("data", "problem"),
    [(b"POST /x HTTP/1.1", "the peer speaks HTTP"), (b"\x16\x03\x01\0\0\0\0\0", "the peer speaks TLS")],
)
def test_other_protocol_is_named_in_the_error(data: bytes, problem: str) -> None:
    with pytest.raises(WireError, match=problem):
        FrameDecoder().receive_data(data)


def test_given_limits_are_enforced() -> None:
    limits = WireLimits(header_bytes_max=50, ext_fields_max=2)
    with pytest.raises(WireError, match="maximum of 50"):
        FrameDecoder(limits=limits).receive_data(encode_command(SEND))
    for serialization in Serialization:
        fields = Command(1, ext_fields=dict.fromkeys("abc", ""), serialization=serialization)
        with pytest.raises(WireError, match="ext fields"):
            FrameDecoder(limits=WireLimits(ext_fields_max=2)).receive_data(encode_command(fields))


@pytest.mark.parametrize("command", [SEND, BINARY], ids=["json", "binary"])
def test_flipped_or_truncated_bytes_raise_only_wire_errors(command: Command) -> None:
    frame = encode_command(command)
    for position in range(len(frame)):
        assert FrameDecoder().receive_data(frame[:position]) == []
        for mask in (0x01, 0x20, 0x80, 0xFF):
            damaged = bytearray(frame)
            damaged[position] ^= mask
            assert _reads_or_refuses(bytes(damaged))


def test_malformed_frames_raise_only_wire_errors() -> None:
    chance = random.Random(20240601)
    frames = [encode_command(SEND), encode_command(BINARY)]
    refused = 0
    for _ in range(50_000):
        damaged = bytearray(chance.choice(frames))
        for _ in range(chance.randrange(1, 4)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        if chance.random() < 0.3:
            del damaged[chance.randrange(len(damaged)) :]
        refused += not _reads_or_refuses(bytes(damaged), refusal=False)
    assert refused > 5_000


def _reads_or_refuses(data: bytes, *, refusal: bool = True) -> bool:
    """Anything but a `WireError` is the failure that this looks for."""
    try:
        FrameDecoder().receive_data(data)
    except WireError:
        return refusal
    return True
