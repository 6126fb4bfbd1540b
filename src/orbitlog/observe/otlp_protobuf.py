"""Protocol buffers of OTLP metrics: encodes the JSON form of a request as the bytes that gRPC carries.

Only the few messages of a metrics request are described here, so no code generator and no library is needed.
"""

from __future__ import annotations

import struct
from typing import Any

_VARINT, _FIXED64, _BYTES = 0, 1, 2
_PACK_FIXED = struct.Struct("<Q").pack
_PACK_SIGNED = struct.Struct("<q").pack
_PACK_DOUBLE = struct.Struct("<d").pack

# Message: JSON name of a field -> its number and type, or the name of its message; a list of one means repeated.
_MESSAGES: dict[str, dict[str, tuple[int, str | list[str]]]] = {
    "Request": {"resourceMetrics": (1, ["ResourceMetrics"])},
    "ResourceMetrics": {"resource": (1, "Resource"), "scopeMetrics": (2, ["ScopeMetrics"])},
    "Resource": {"attributes": (1, ["KeyValue"])},
    "ScopeMetrics": {"scope": (1, "Scope"), "metrics": (2, ["Metric"])},
    "Scope": {"name": (1, "text")},
    "KeyValue": {"key": (1, "text"), "value": (2, "AnyValue")},
    "AnyValue": {"stringValue": (1, "text")},
    "Metric": {
        "name": (1, "text"),
        "description": (2, "text"),
        "unit": (3, "text"),
        "gauge": (5, "Gauge"),
        "sum": (7, "Sum"),
        "histogram": (9, "Histogram"),
    },
    "Gauge": {"dataPoints": (1, ["NumberPoint"])},
    "Sum": {"dataPoints": (1, ["NumberPoint"]), "aggregationTemporality": (2, "enum"), "isMonotonic": (3, "enum")},
    "Histogram": {"dataPoints": (1, ["HistogramPoint"]), "aggregationTemporality": (2, "enum")},
    "NumberPoint": {
        "startTimeUnixNano": (2, "fixed"),
        "timeUnixNano": (3, "fixed"),
        "asDouble": (4, "double"),
        "asInt": (6, "signed"),
        "attributes": (7, ["KeyValue"]),
    },
    "HistogramPoint": {
        "startTimeUnixNano": (2, "fixed"),
        "timeUnixNano": (3, "fixed"),
        "count": (4, "fixed"),
        "sum": (5, "double"),
        "bucketCounts": (6, "packed fixed"),
        "explicitBounds": (7, "packed double"),
        "attributes": (9, ["KeyValue"]),
    },
}


def encode_request(request: dict[str, Any]) -> bytes:
    """Return a metrics request in binary form."""
    return _message("Request", request)


def _message(name: str, content: dict[str, Any]) -> bytes:
    fields = _MESSAGES[name]
    parts: list[bytes] = []
    for key, value in content.items():
        number, kind = fields[key]
        if isinstance(kind, list):
            parts += [_delimited(number, _message(kind[0], each)) for each in value]
        else:
            parts.append(_field(number, kind, value))
    return b"".join(parts)


def _field(number: int, kind: str, value: Any) -> bytes:
    match kind:
        case "text":
            return _delimited(number, value.encode())
        case "enum":
            return _varint(number << 3 | _VARINT) + _varint(int(value))
        case "fixed":
            return _varint(number << 3 | _FIXED64) + _PACK_FIXED(int(value))
        case "signed":
            return _varint(number << 3 | _FIXED64) + _PACK_SIGNED(int(value))
        case "double":
            return _varint(number << 3 | _FIXED64) + _PACK_DOUBLE(value)
        case "packed fixed":
            return _delimited(number, b"".join(_PACK_FIXED(int(each)) for each in value))
        case "packed double":
            return _delimited(number, b"".join(_PACK_DOUBLE(each) for each in value))
        case _:
            return _delimited(number, _message(kind, value))


def _delimited(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | _BYTES) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)
