"""Headers of one code: typed records over the text of extension fields.

A header declares each field once, with Java's name for it; a field without a default must be there:

    @dataclass(slots=True, kw_only=True, repr=False, eq=False)
    class GetMaxOffsetRequest(Header):
        topic: str = text("topic")
        queue_id: int = integer("queueId")

Text becomes numbers as `Integer.parseInt` and `Long.parseLong` have it (a sign is allowed, a space is not), and
anything but "true" is false, as with `Boolean.parseBoolean`. Fields that we do not know are nobody's concern: clients
add `bname`, `ns`, `lo` and others as they like. Mirrors Java `CommandCustomHeader` and
`RemotingCommand.decodeCommandCustomHeader`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

from orbitlog.errors import BadRequest
from orbitlog.formats.java import INT_MAX, INT_MIN, LONG_MAX, LONG_MIN

H = TypeVar("H", bound="Header")

_METADATA: Final = "wire"
_REQUIRED: Final[Any] = dataclasses.MISSING
_NUMBER_MATCH = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII).fullmatch
_DECIMAL = re.compile(r"[+-]?(?:[0-9]{1,400}\.?[0-9]{0,400}|\.[0-9]{1,400})(?:[eE][+-]?[0-9]{1,3})?", re.ASCII)


def missing(name: str) -> BadRequest:
    """A mandatory field that is not there."""
    return BadRequest(f"the custom field <{name}> is null", field=name)


def parse_int(text: str, name: str) -> int:
    """`Integer.parseInt`."""
    if len(text) < 10 and text.isdigit() and text.isascii():
        return int(text)
    return _parse_number(text, name, INT_MIN, INT_MAX, "int")


def parse_long(text: str, name: str) -> int:
    """`Long.parseLong`."""
    if len(text) < 19 and text.isdigit() and text.isascii():
        return int(text)
    return _parse_number(text, name, LONG_MIN, LONG_MAX, "long")


def parse_numbers(texts: Sequence[str], names: Sequence[str]) -> Sequence[int]:
    """`Integer.parseInt` of several at once: what nearly every request holds, small and without a sign, is quick."""
    together = "".join(texts)
    if len(together) < 10 and together.isdigit() and together.isascii() and all(texts):
        return list(map(int, texts))
    return list(map(parse_int, texts, names))


def _parse_number(text: str, name: str, low: int, high: int, kind: str) -> int:
    if _NUMBER_MATCH(text):
        value = int(text)
        if low <= value <= high:
            return value
    raise BadRequest(f"the custom field <{name}> is no {kind}: {text[:40]!r}", field=name)


def parse_bool(text: str, _: str = "") -> bool:
    """`Boolean.parseBoolean`."""
    return text == "true" or text.lower() == "true"


def _parse_double(text: str, name: str) -> float:
    if _DECIMAL.fullmatch(text):
        return float(text)
    raise BadRequest(f"the custom field <{name}> is no double: {text[:40]!r}", field=name)


def _parse_text(text: str, _: str) -> str:
    return text


class _WireField(NamedTuple):
    name: str
    parse: Callable[[str, str], Any]


def _field(name: str, parse: Callable[[str, str], Any], default: Any) -> Any:
    return dataclasses.field(default=default, metadata={_METADATA: _WireField(name, parse)})


def text(name: str, default: str | None = _REQUIRED) -> Any:
    """A field that is text."""
    return _field(name, _parse_text, default)


def integer(name: str, default: int | None = _REQUIRED) -> Any:
    """A field that Java reads as an int."""
    return _field(name, parse_int, default)


def long(name: str, default: int | None = _REQUIRED) -> Any:
    """A field that Java reads as a long."""
    return _field(name, parse_long, default)


def boolean(name: str, default: bool | None = _REQUIRED) -> Any:
    """A field that is true, or anything else."""
    return _field(name, parse_bool, default)


def double(name: str, default: float | None = _REQUIRED) -> Any:
    """A field that Java reads as a double."""
    return _field(name, _parse_double, default)


class _Declared(NamedTuple):
    attribute: str
    name: str
    parse: Callable[[str, str], Any]
    required: bool


_DECLARED: dict[type[Header], tuple[_Declared, ...]] = {}


def _declared(kind: type[Header]) -> tuple[_Declared, ...]:
    found = _DECLARED.get(kind)
    if found is None:
        found = _DECLARED[kind] = tuple(
            _Declared(each.name, spelled.name, spelled.parse, each.default is dataclasses.MISSING)
            for each in dataclasses.fields(kind)  # type: ignore[arg-type] # every header is one
            for spelled in (each.metadata[_METADATA],)
        )
    return found


class Header:
    """What every header can do.

    Comparing and showing stand here once: made anew for each of a hundred classes, they were a tenth of the time that
    a broker takes to start.
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Header) or type(self) is not type(other):
            return NotImplemented
        return self._values() == other._values()

    __hash__ = None  # type: ignore[assignment] # their values can change

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self._values())})"

    def _values(self) -> list[tuple[str, object]]:
        return [(each.attribute, getattr(self, each.attribute)) for each in _declared(type(self))]

    @classmethod
    def from_ext_fields(cls: type[H], ext_fields: Mapping[str, str]) -> H:
        """Read a header; `BadRequest` names the field that is missing or unreadable."""
        given = {}
        for attribute, name, parse, required in _declared(cls):
            value = ext_fields.get(name)
            if value is not None:
                given[attribute] = parse(value, name)
            elif required:
                raise missing(name)
        return cls(**given)

    def to_ext_fields(self) -> dict[str, str]:
        """Write a header; what is None is left out."""
        ext_fields = {}
        for attribute, name, _, _ in _declared(type(self)):
            value = getattr(self, attribute)
            if value is not None:
                ext_fields[name] = value if type(value) is str else field_text(value)
        return ext_fields


def field_text(value: object) -> str:
    """Spell a value as Java's `toString` does."""
    if value is True:
        return "true"
    return "false" if value is False else str(value)


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class NoHeader(Header):
    """The header of a code that has none."""
