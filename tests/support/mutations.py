"""Mutated requests: plausible fields of each request code, some of them invalid, and bodies with damaged JSON.

The names of fields come from the header classes: their docstrings contain the codes. Codes up to 32,767 are also sent
with binary headers. Pieces of requests are encoded once and combined, so that a generator is faster than the server
under attack.
"""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Iterator
from pathlib import Path

import orjson

import orbitlog.wire
from orbitlog.wire.codes import RequestCode
from tests.support.raw_peer import framed

PIECES_PER_CODE = 64
BINARY_SHARE = 0.25
BINARY_CODE_MAX = 32_767
_FIELD = re.compile(r'= \w+\("(\w+)"')
_CODES = re.compile(r"\((\d+(?:(?:, | to )\d+)*)\b")  # (14), (14, 29, 30) or (3001 to 3004)
_BINARY_START, _BINARY_LENGTH, _BINARY_KEY = struct.Struct(">hbhii"), struct.Struct(">i"), struct.Struct(">h")
_INVALID = ("", "-1", "9" * 30, "x" * 300, "\x00", "%RETRY%g", "NaN", "1e9", "a;b;c", "..", "/", "2147483648", "é" * 9)
_PLAUSIBLE = {
    **dict.fromkeys(("topic", "b", "defaultTopic", "c", "lmqTopic"), "TBW102"),
    **dict.fromkeys(("group", "consumerGroup", "producerGroup", "a", "consumeGroup"), "g"),
    **dict.fromkeys(("queueId", "e", "offset", "queueOffset", "commitOffset", "sysFlag", "f", "initMode"), "0"),
    **dict.fromkeys(("pollTime", "suspendTimeoutMillis", "bornTime", "order"), "0"),
    **{"subscription": "*", "i": "KEYS\x01k\x02", "properties": "KEYS\x01k\x02", "maxMsgNums": "8", "perm": "6"},
    **{"readQueueNums": "4", "writeQueueNums": "4", "brokerName": "broker-a", "clusterName": "DefaultCluster"},
    **{"brokerAddr": "127.0.0.1:1", "brokerId": "0", "clientId": "c", "clientID": "c", "topicFilterType": "SINGLE_TAG"},
    **{"cluster": "DefaultCluster", "masterBrokerId": "0", "masterEpoch": "1", "syncStateSetEpoch": "1"},
    **{"username": "u", "subject": "User:u", "accessKey": "key", "secretKey": "12345678", "filename": "plain_acl.yml"},
    **{"topicSysFlag": "0", "isForce": "true", "invisibleTime": "1000", "extraInfo": "0 1 1000 0 0 broker-a 0 0"},
}
_JSON = {
    **{"clientID": "c", "clientId": "c", "consumerGroup": "g", "group": "g", "topic": "TBW102", "namespace": ""},
    "producerDataSet": [{"groupName": "p"}],
    "consumerDataSet": [
        {
            **{"groupName": "g", "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING"},
            **{"consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "unitMode": False},
            "subscriptionDataSet": [{"topic": "TBW102", "subString": "*", "tagsSet": [], "subVersion": 1}],
        }
    ],
    "mqSet": [{"brokerName": "broker-a", "queueId": 0, "topic": "TBW102"}],
    "topicConfigList": [{"topicName": "T", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "order": False}],
    "groupConfigList": [{"groupName": "g", "consumeEnable": True}],
    "offsetTable": {"TBW102@g": {"0": 1}},
    "topicConfigSerializeWrapper": {"topicConfigTable": {}, "dataVersion": {"counter": 1, "timestamp": 1}},
    "acks": [{"c": "g", "t": "TBW102", "r": "0", "so": 0, "q": 0, "i": 1000, "pt": 0, "it": 1000, "b": "AQ=="}],
}
_BODIES = (b"", b"{}", b"[]", b"\0" * 64, b'{"a":{"$ref":"$"}}', b"x" * 600, b"flushDiskType=ASYNC_FLUSH\n", b"null")


def names_by_code() -> dict[int, list[str]]:
    """Return the names of the fields of each request code."""
    names: dict[int, list[str]] = {}
    for path in sorted(Path(orbitlog.wire.__file__).parent.rglob("*_headers.py")):
        for text in path.read_text().split("\nclass ")[1:]:
            for codes in _CODES.findall(text.split('"""')[1]):
                for code in _numbers(codes):
                    names.setdefault(code, []).extend(_FIELD.findall(text))
    return names


def chosen_codes(text: str) -> list[int]:
    """Return the request codes of a list such as `18,314-329`, or all if it is empty."""
    known = [int(code) for code in RequestCode]
    if not text:
        return known
    ends = [part.partition("-")[::2] for part in text.split(",")]
    chosen = sorted({code for first, last in ends for code in range(int(first), int(last or first) + 1)})
    if unknown := sorted(set(chosen) - set(known)):
        raise ValueError(f"{unknown} are not request codes")
    return chosen


def _numbers(codes: str) -> Iterator[int]:
    """Yield the codes of `14, 29` and of `3001 to 3004`."""
    for part in codes.split(", "):
        first, _, last = part.partition(" to ")
        yield from range(int(first), int(last or first) + 1)


class Mutations:
    """Mutated requests of one code; the same seed yields the same requests."""

    def __init__(self, code: int, seed: int) -> None:
        self.code = code
        self._chance = random.Random(code * 1_000_003 + seed)
        names = _NAMES.get(code) or list(_PLAUSIBLE)
        self._fields = [self._field_piece(names) for _ in range(PIECES_PER_CODE)]
        self._binary_fields = [_binary_fields(orjson.loads(piece)) for piece in self._fields]
        self._bodies = [self._body() for _ in range(PIECES_PER_CODE)]

    def frames(self, count: int, first_opaque: int = 1) -> Iterator[bytes]:
        """Yield frames with ascending opaque numbers: their header is well-formed, so each must be answered."""
        chance = self._chance
        for opaque in range(first_opaque, first_opaque + count):
            body = chance.choice(self._bodies)
            if body and chance.random() < 0.5:
                body = _flipped(chance, body)
            if self.code <= BINARY_CODE_MAX and chance.random() < BINARY_SHARE:
                yield framed(self._binary_header(opaque), body, serialization=1)
                continue
            header = b'{"code":%d,"opaque":%d,"flag":0,"extFields":%b}' % (
                *(self.code, opaque),
                chance.choice(self._fields),
            )
            yield framed(header, body)

    def _binary_header(self, opaque: int) -> bytes:
        fields = self._chance.choice(self._binary_fields)
        start = _BINARY_START.pack(self.code, 0, 479, opaque, 0)
        return start + _BINARY_LENGTH.pack(0) + _BINARY_LENGTH.pack(len(fields)) + fields

    def damaged(self, opaque: int) -> bytes:
        """Return a frame with a flipped bit or without its end: it is answered, or ends its connection."""
        (frame,) = self.frames(1, opaque)
        if self._chance.random() < 0.7:
            return _flipped(self._chance, frame)
        return frame[: self._chance.randrange(1, len(frame))]

    def _field_piece(self, names: list[str]) -> bytes:
        chance = self._chance
        fields = {name: _PLAUSIBLE.get(name, "1") for name in names}
        for name in chance.sample(names, min(len(names), chance.randrange(4))):
            if chance.random() < 0.2:
                fields.pop(name, None)
            else:
                fields[name] = chance.choice(_INVALID)
        return orjson.dumps(fields)

    def _body(self) -> bytes:
        chance = self._chance
        if chance.random() < 0.3:
            return chance.choice(_BODIES)
        whole: dict[str, object] = dict(_JSON)
        for name in chance.sample(list(whole), 3):
            whole[name] = chance.choice((None, 1, "x", [], {}, [None], {"1": None}, [[1]], -(2**63), True))
        for name in chance.sample(list(whole), 3):
            del whole[name]
        return orjson.dumps(whole)


def _binary_fields(fields: dict[str, str]) -> bytes:
    encoded = b""
    for name, value in fields.items():
        key, text = name.encode(), value.encode()
        encoded += _BINARY_KEY.pack(len(key)) + key + _BINARY_LENGTH.pack(len(text)) + text
    return encoded


def _flipped(chance: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


_NAMES = names_by_code()
