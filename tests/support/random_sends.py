"""Random send requests: the headers of five kinds of clients, with plain, rare and invalid values."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import orjson

from tests.support.compared_paths import NOW_MS

UNIQUE = "UNIQ_KEY\x017F00000100002A9F0000000000000001\x02"
USUAL = f"KEYS\x01k\x02{UNIQUE}WAIT\x01true\x02TAGS\x01tag"
HALF = USUAL + "\x02TRAN_MSG\x01true\x02PGROUP\x01P"

# Properties that clients send, and invalid ones.
PROPERTIES = [
    *([USUAL] * 8),
    USUAL + "\x02",
    UNIQUE,
    UNIQUE[:-1],
    "WAIT\x01true",
    "",
    "UNIQ_KEY\x01\x02WAIT\x01true",
    USUAL + "\x02DELAY\x013",
    USUAL + "\x02DELAY\x01x",
    USUAL + "\x02XDELAY\x013",
    USUAL + "\x02CLUSTER\x01other",
    *([HALF] * 4),
    HALF + "\x02",
    "TRAN_MSG\x01true\x02PGROUP\x01P",
    "TRAN_MSG\x01true\x02UNIQ_KEY\x01\x02PGROUP\x01P",
    HALF + "\x02TRAN_MSG\x01false",
    USUAL + "\x02TRAN_MSG\x01TRUE",
    USUAL + "\x02TRAN_MSG\x01",
    HALF + "\x02DELAY\x013",
    HALF + "\x02POP_CK\x01x",
    HALF + "\x02INNER_NUM\x012",
    HALF + "\x02CLUSTER\x01other",
    HALF + "\x02WAIT\x01false",
    HALF + "\x02KEYS\x01again\x02UNIQ_KEY\x01other",
    HALF + "\x02REAL_TOPIC\x01Other\x02REAL_QID\x019\x02__transactionId__\x01other",
    HALF + "\x02TRAN_PREPARED_QUEUE_OFFSET\x010\x02TRANSACTION_CHECK_TIMES\x013",
    HALF + '\x02quoted\x01"a\\b"\x02umlaut\x01Ümläut 😀',
    HALF + "\x02zero\x01\0",
    HALF + "\x02empty\x01\x02odd",
    HALF + "\x02big\x01" + "x" * 32_600,
    HALF.replace("7F00", 'q"Ü'),
    USUAL + "\x02INNER_NUM\x012",
    USUAL + "\x02name\x01INNER_NUM",
    USUAL + "\x02TIMER_DELAY_SEC\x012",
    USUAL + "\x02MSG_REGION\x01here\x02TRACE_ON\x01false",
    USUAL + "\x02POP_CK\x01x",
    f"{UNIQUE}WAIT\x01false",
    USUAL + '\x02quoted\x01"a\\b"',
    USUAL + "\x02umlaut\x01Ümläut 😀",
    USUAL + "\x02zero\x01\0",
    USUAL + "\x02lines\x01a\nb\tc",
    USUAL + "\x02big\x01" + "x" * 33_000,
    USUAL + "\x02odd",
    "\x02\x02" + USUAL,
]


def java(fields: dict[str, Any], ext: dict[str, Any]) -> bytes:
    """Fields in the order of their names, numbers as text."""
    known = {"serializeTypeCurrentRPC": "JSON", "language": "JAVA", "extFields": dict(sorted(ext.items())), **fields}
    return orjson.dumps(dict(sorted(known.items())))


def go(fields: dict[str, Any], ext: dict[str, Any]) -> bytes:
    order = ("code", "language", "version", "opaque", "flag", "remark")
    known = {"language": "GO", "remark": "", **fields}
    return orjson.dumps({name: known[name] for name in order} | {"extFields": dict(sorted(ext.items()))})


def node(fields: dict[str, Any], ext: dict[str, Any]) -> bytes:
    """Numbers and booleans not as text."""
    values = {name: _bare(text) for name, text in ext.items()}
    return orjson.dumps({**fields, "language": "NODE_JS", "extFields": values})


def cpp(fields: dict[str, Any], ext: dict[str, Any]) -> bytes:
    known = {"language": "CPP", **fields, "extFields": dict(sorted(ext.items()))}
    return orjson.dumps(dict(sorted(known.items()))) + b"\n"


def python(fields: dict[str, Any], ext: dict[str, Any]) -> bytes:
    return orjson.dumps({**fields, "language": "PYTHON", "extFields": ext})


def spaced(fields: dict[str, Any], ext: dict[str, Any]) -> bytes:
    return orjson.dumps({**fields, "extFields": ext}, option=orjson.OPT_INDENT_2)


def _bare(text: Any) -> Any:
    if text in ("true", "false"):
        return text == "true"
    return int(text) if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 12 else text


Writer = Callable[[dict[str, Any], dict[str, Any]], bytes]
WRITERS: list[Writer] = [java, java, java, go, node, cpp, python, spaced]
VALUES: list[Any] = ["", "0", "1", "-1", "+1", "007", " 1", "1_0", "٣", "²", "2147483648", "9" * 19, "9" * 30]
VALUES += ["true", "x", 0, 1, 3, -1, 1.0, True, False, None, "\ud800", [], {}, "%RETRY%G", "TBW102", "Fresh"]
VALUES += ["rmq_sys_wheel_timer"]


ODD_NUMBERS: list[Any] = [0.0, False, True, "0", 2**40, -(2**40), -1, 1, 2, 3, 310.0, "310", 11, [0]]


def any_ext_fields(chance: random.Random) -> dict[str, Any]:
    ext: dict[str, Any] = {
        "a": chance.choice(["P", "P", "Q"]),
        "b": chance.choice(["Orders", "Orders", "Orders", "Ticks"]),
        "c": "TBW102",
        "d": "4",
        "e": chance.choice(["0", "1", "2", "3"]),
        "f": chance.choice(["0"] * 8 + ["1", "256", "4", "8", "16", "128"]),
        "g": chance.choice([str(NOW_MS), str(NOW_MS + 1), "1"]),
        "h": chance.choice(["0"] * 6 + ["7", "-7"]),
        "i": chance.choice(PROPERTIES),
        "j": "0",
        "k": "false",
        "m": "false",
    }
    if chance.random() < 0.5:
        return ext | {"a": "P", "b": "Orders", "f": "0", "h": "0", "n": "broker-a"}
    if chance.random() < 0.2:
        return ext | {"f": "4", "i": HALF, "n": "broker-a"}
    if chance.random() < 0.5:
        ext["n"] = "broker-a"
    if chance.random() < 0.2:
        ext["l"] = "16"
    if chance.random() < 0.25:
        name = chance.choice([*"abcdefghijklmn", "z"])
        if chance.random() < 0.3:
            ext.pop(name, None)
        else:
            ext[name] = chance.choice(VALUES)
    return ext
