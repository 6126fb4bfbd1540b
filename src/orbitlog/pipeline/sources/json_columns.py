"""Bodies that are JSON objects as columns, by a schema that the user gives: `id bigint, price double, note string`.

A body whose every field fits leaves `body` empty, because the columns say it all. One that is no JSON object, or has
a field of another type, keeps its body, so that nothing is ever lost: its columns hold what fits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson
import pyarrow as pa

from orbitlog.formats.java import INT_MAX, INT_MIN, LONG_MAX, LONG_MIN
from orbitlog.pipeline.sources.message_columns import MESSAGE_COLUMNS
from orbitlog.pipeline.sources.named_stores import OptionError

_FIELD = re.compile(r"\s*`?([A-Za-z_][A-Za-z0-9_]*)`?\s*:?\s+([A-Za-z]+)\s*")
_FIELDS_MAX = 1000
_MISFIT = object()


def _text(value: Any) -> Any:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _whole(low: int, high: int) -> Callable[[Any], Any]:
    def fit(value: Any) -> Any:
        is_whole = isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
        return value if is_whole else _MISFIT

    return fit


def _real(value: Any) -> Any:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else _MISFIT


def _truth(value: Any) -> Any:
    return value if isinstance(value, bool) else _MISFIT


_KINDS: Mapping[str, tuple[pa.DataType, Callable[[Any], Any]]] = {
    "string": (pa.string(), _text),
    "int": (pa.int32(), _whole(INT_MIN, INT_MAX)),
    "integer": (pa.int32(), _whole(INT_MIN, INT_MAX)),
    "bigint": (pa.int64(), _whole(LONG_MIN, LONG_MAX)),
    "long": (pa.int64(), _whole(LONG_MIN, LONG_MAX)),
    "double": (pa.float64(), _real),
    "boolean": (pa.bool_(), _truth),
}


@dataclass(frozen=True, slots=True)
class JsonColumns:
    """The columns that bodies are taken apart into: names and kinds."""

    fields: tuple[tuple[str, str], ...]

    @property
    def arrow_fields(self) -> list[pa.Field]:
        return [pa.field(name, _KINDS[kind][0]) for name, kind in self.fields]

    def take_apart(self, bodies: pa.Array) -> tuple[list[pa.Array], pa.Array]:
        """Return the columns, and the bodies that they do not say everything about."""
        columns: list[list[Any]] = [[] for _ in self.fields]
        kept: list[bytes | None] = []
        known = {name for name, _ in self.fields}
        for body in bodies.to_pylist():
            value = _json_object(body)
            fits = value is not None and known.issuperset(value)
            for column, (name, kind) in zip(columns, self.fields, strict=True):
                found = None if value is None else value.get(name)
                fitted = None if found is None else _KINDS[kind][1](found)
                fits = fits and fitted is not _MISFIT
                column.append(None if fitted is _MISFIT else fitted)
            kept.append(None if fits else body)
        arrays = [pa.array(column, _KINDS[kind][0]) for column, (_, kind) in zip(columns, self.fields, strict=True)]
        return arrays, pa.array(kept, pa.binary())


def _json_object(body: bytes) -> dict[str, Any] | None:
    try:
        value = orjson.loads(body)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def parse_json_columns(text: str) -> JsonColumns:
    """Read `name type, name type`."""
    fields: list[tuple[str, str]] = []
    parts = text.split(",")
    if len(parts) > _FIELDS_MAX:
        raise OptionError(f"a schema of {len(parts)} columns is too wide; at most {_FIELDS_MAX} are taken")
    taken = {name.lower() for name in MESSAGE_COLUMNS} | {"dt"}
    for part in parts:
        match = _FIELD.fullmatch(part)
        if match is None or match[2].lower() not in _KINDS:
            kinds = ", ".join(_KINDS)
            raise OptionError(f"{part.strip()!r} is no column; write `name type` with one of {kinds}")
        if match[1].lower() in taken:
            raise OptionError(f"column {match[1]!r} is there already; rename the field or leave it out")
        taken.add(match[1].lower())
        fields.append((match[1], match[2].lower()))
    return JsonColumns(tuple(fields))
