"""JSON columns: splits bodies that are JSON objects into columns of a user's schema, `id bigint, price double`.

If every field of a body fits the schema, `body` is null because the columns contain everything. A body that is not a
JSON object, or has a field of another type, is kept, so that no data is lost; the columns then hold the fields that
fit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson
import pyarrow as pa

from orbitlog.formats.java import INT_MAX, INT_MIN, LONG_MAX, LONG_MIN
from orbitlog.pipeline.sources.broker_stores import OptionError
from orbitlog.pipeline.sources.message_columns import MESSAGE_COLUMNS

_FIELD = re.compile(r"\s*`?([A-Za-z_][A-Za-z0-9_]*)`?\s*:?\s+([A-Za-z]+)\s*")
_FIELDS_MAX = 1000
_MISFIT = object()  # a value of another type; None is a valid value


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
    """The columns that bodies are split into: names and kinds."""

    fields: tuple[tuple[str, str], ...]

    def lacks(self, earlier: JsonColumns) -> list[str]:
        """Return the columns of an earlier schema that this one leaves out or gives another type."""
        kinds = {field.name: field.type for field in self.arrow_fields}
        return [field.name for field in earlier.arrow_fields if kinds.get(field.name) != field.type]

    @property
    def arrow_fields(self) -> list[pa.Field]:
        return [pa.field(name, _KINDS[kind][0]) for name, kind in self.fields]

    def split_bodies(self, bodies: pa.Array) -> tuple[list[pa.Array], pa.Array]:
        """Return the columns, and the bodies that they do not represent completely (null for the others)."""
        columns: list[list[Any]] = [[] for _ in self.fields]
        kept: list[bytes | None] = []
        names = {name for name, _ in self.fields}
        for body in bodies.to_pylist():
            value = _json_object(body)
            fits = value is not None and names.issuperset(value)
            for column, (name, kind) in zip(columns, self.fields, strict=True):
                field = None if value is None else value.get(name)
                fitted = None if field is None else _KINDS[kind][1](field)
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
    """Parse `name type, name type`; raise `OptionError` if a type is unknown or a name is taken."""
    fields: list[tuple[str, str]] = []
    parts = text.split(",")
    if len(parts) > _FIELDS_MAX:
        raise OptionError(f"the schema has {len(parts)} columns; the maximum is {_FIELDS_MAX}")
    taken = {name.lower() for name in MESSAGE_COLUMNS} | {"dt"}
    for part in parts:
        match = _FIELD.fullmatch(part)
        if match is None or match[2].lower() not in _KINDS:
            kinds = ", ".join(_KINDS)
            raise OptionError(f"{part.strip()!r} is not a valid column; write `name type` with one of {kinds}")
        if match[1].lower() in taken:
            raise OptionError(f"column {match[1]!r} already exists; rename the field or leave it out")
        taken.add(match[1].lower())
        fields.append((match[1], match[2].lower()))
    return JsonColumns(tuple(fields))
