"""Forms of changes, made from the types of their fields; decoding of forms and JSON bodies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import inspect

from orbitlog.console.changes.planned_change import ChangeRequest
from orbitlog.console.views.answers import ConsoleError


@dataclass(frozen=True, slots=True)
class FormField:
    """One field of a form: its kind is text, area, number, choice or flag."""

    name: str
    label: str
    kind: str
    value: str
    hint: str
    is_required: bool
    choices: tuple[str, ...] = ()
    rows: int = 0
    max_length: int | None = None


def form_fields(kind: type[ChangeRequest], given: Mapping[str, str]) -> list[FormField]:
    """Return the fields of a form with the given values, else with their defaults."""
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    return [_form_field(field, given) for field in info.fields]


def _form_field(field: inspect.Field, given: Mapping[str, str]) -> FormField:
    kind, hint, rows = field.type, "", 0
    if isinstance(kind, inspect.Metadata):
        hint = (kind.extra_json_schema or {}).get("description", "")
        rows = (kind.extra or {}).get("rows", 0)
        kind = kind.type
    default = "" if field.default in (msgspec.NODEFAULT, False) else str(field.default)
    words, length = "text", None
    choices: tuple[str, ...] = ()
    if isinstance(kind, inspect.BoolType):
        words = "flag"
    elif isinstance(kind, inspect.LiteralType):
        words, choices = "choice", tuple(str(value) for value in kind.values)
    elif isinstance(kind, inspect.IntType | inspect.FloatType):
        words = "number"
    elif isinstance(kind, inspect.StrType):
        length = kind.max_length
        words = "area" if rows else "text"
    return FormField(
        name=field.encode_name,
        label=_label(field.name),
        kind=words,
        value=given.get(field.encode_name, default),
        hint=hint,
        is_required=field.required,
        choices=choices,
        rows=rows,
        max_length=length,
    )


def _label(name: str) -> str:
    return name.replace("_", " ").capitalize()


def decode_form(kind: type[ChangeRequest], fields: Mapping[str, str]) -> ChangeRequest:
    """Return the request of a form; empty fields count as left out."""
    return _convert(kind, {name: value for name, value in fields.items() if value != ""}, is_text=True)


def decode_json(kind: type[ChangeRequest], body: bytes) -> ChangeRequest:
    """Return the request of a JSON body; an empty body has no fields."""
    try:
        value = msgspec.json.decode(body or b"{}")
    except (msgspec.DecodeError, RecursionError) as error:
        raise ConsoleError(400, f"the body is not valid JSON: {error}") from None
    return _convert(kind, value, is_text=False)


def _convert(kind: type[ChangeRequest], value: Any, *, is_text: bool) -> ChangeRequest:
    try:
        return msgspec.convert(value, kind, strict=not is_text)
    except msgspec.ValidationError as error:
        raise ConsoleError(400, f"invalid field: {error}") from None
