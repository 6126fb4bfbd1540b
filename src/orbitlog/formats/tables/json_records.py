"""Java beans in JSON: frozen dataclasses whose fields declare Java's names.

A record declares each field once, with its Java name, its codec and the default of the Java class:

    @json_record
    class TopicConfig(JsonRecord):
        read_queue_count: int = field(default=16, metadata=java("readQueueNums", INT))

Reading accepts what fastjson accepts for that type (a number in quotes is a number) and ignores order. Unknown
fields stay in `unknown` and are written back, so that a newer broker finds them when the store returns to it;
declared fields take precedence. Writing sorts by Java name, as fastjson does, and omits fields that the chosen
`Compat` does not have. A null means "not given" in both directions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields, replace
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar, dataclass_transform

from orbitlog.errors import BadField
from orbitlog.formats.compat import Compat
from orbitlog.formats.java import INT_MAX, INT_MIN, LONG_MAX, LONG_MIN
from orbitlog.formats.tables.fastjson_writer import PrettyWriter, write_compact
from orbitlog.formats.tables.loose_json import Json, read_json

T = TypeVar("T")
K = TypeVar("K")
R = TypeVar("R", bound="JsonRecord")

_DIGITS = re.compile(r"-?[0-9]{1,19}")
_METADATA = "java"


@dataclass(frozen=True, slots=True)
class Codec(Generic[T]):
    """Both directions between JSON and a value; `decode` is given the path of the value for its errors."""

    decode: Callable[[Json, str], T]
    encode: Callable[[T, Compat], Json]


@dataclass(frozen=True, slots=True)
class Key(Generic[K]):
    """Both directions between a key of a JSON map and a value."""

    decode: Callable[[str | int, str], K]
    encode: Callable[[K], str | int]


def _integer(low: int, high: int) -> Callable[[Json, str], int]:
    def decode(value: Json, path: str) -> int:
        if isinstance(value, str) and _DIGITS.fullmatch(value):
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise BadField(f"{_shown(value)} is not a number between {low} and {high}", field=path)
        return value

    return decode


def _decode_bool(value: Json, path: str) -> bool:
    if value in ("true", "false"):
        return value == "true"
    if not isinstance(value, bool):
        raise BadField(f"{_shown(value)} is neither true nor false", field=path)
    return value


def _decode_text(value: Json, path: str) -> str:
    if not isinstance(value, str):
        raise BadField(f"{_shown(value)} is not text", field=path)
    return value


def _same(value: Json, _: Compat) -> Json:
    return value


def _shown(value: Json) -> str:
    return f"a {type(value).__name__}" if isinstance(value, dict | list) else repr(value)[:40]


INT = Codec(_integer(INT_MIN, INT_MAX), _same)
LONG = Codec(_integer(LONG_MIN, LONG_MAX), _same)
BOOL = Codec(_decode_bool, _same)
TEXT = Codec(_decode_text, _same)

TEXT_KEY: Key[str] = Key(lambda key, _: str(key), lambda key: key)
INT_KEY: Key[int] = Key(_integer(INT_MIN, INT_MAX), lambda key: key)
LONG_KEY: Key[int] = Key(_integer(LONG_MIN, LONG_MAX), lambda key: key)


def optional(codec: Codec[T]) -> Codec[T | None]:
    """A value that Java may leave null; null is never written."""
    return Codec(codec.decode, lambda value, compat: None if value is None else codec.encode(value, compat))


def list_of(codec: Codec[T]) -> Codec[tuple[T, ...]]:
    """A Java list, set or array."""

    def decode(value: Json, path: str) -> tuple[T, ...]:
        if not isinstance(value, list):
            raise BadField(f"{_shown(value)} is not a list", field=path)
        return tuple(codec.decode(item, f"{path}[{number}]") for number, item in enumerate(value))

    return Codec(decode, lambda items, compat: [codec.encode(item, compat) for item in items])


def map_of(key: Key[K], codec: Codec[T]) -> Codec[Mapping[K, T]]:
    """A Java map; its order is kept, and an entry whose value is null is dropped."""

    def decode(value: Json, path: str) -> Mapping[K, T]:
        return {
            key.decode(name, path): codec.decode(child, f"{path}.{name}")
            for name, child in _entries(value, path).items()
            if child is not None
        }

    def encode(entries: Mapping[K, T], compat: Compat) -> Json:
        return {key.encode(name): codec.encode(child, compat) for name, child in entries.items()}

    return Codec(decode, encode)


def record(kind: type[R]) -> Codec[R]:
    """A Java bean."""
    return Codec(lambda value, path: decode_record(kind, value, path), encode_record)


def _entries(value: Json, path: str) -> dict[str | int, Json]:
    if not isinstance(value, dict):
        raise BadField(f"{_shown(value)} is not a map", field=path)
    return value


@dataclass(frozen=True, slots=True)
class Computed:
    """A getter of a Java bean without a field: written from a Python property, and ignored when read."""

    property_name: str
    since_5x: bool = False


class _Init(NamedTuple):
    """How the fields of a record get their values."""

    positional: tuple[str, ...]
    defaults: tuple[tuple[str, object, Callable[[], object] | None], ...]
    compared: tuple[str, ...]


_INITS: dict[type[JsonRecord], _Init] = {}


def _init_of(kind: type[JsonRecord]) -> _Init:
    found = _INITS.get(kind)
    if found is None:
        declared = fields(kind)
        found = _INITS[kind] = _Init(
            tuple(each.name for each in declared if not each.kw_only),
            tuple(
                (each.name, each.default, None if each.default_factory is MISSING else each.default_factory)
                for each in declared
            ),
            tuple(each.name for each in declared if each.compare),
        )
    return found


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def json_record(kind: type[T]) -> type[T]:
    """Make a record of a class that derives from `JsonRecord`: a frozen dataclass with that one's methods."""
    return dataclass(init=False, repr=False, eq=False, slots=True)(kind)


@json_record
class JsonRecord:
    """A Java bean; `unknown` holds fields that the class does not declare.

    The methods of a frozen dataclass are defined here once: generating them for each of a hundred classes took a third
    of the broker's start-up time.
    """

    COMPUTED: ClassVar[Mapping[str, Computed]] = {}

    unknown: Mapping[str | int, Json] = field(default_factory=dict, kw_only=True, repr=False)

    def __init__(self, *values: object, **named: object) -> None:
        init = _init_of(type(self))
        if len(values) > len(init.positional):
            raise TypeError(f"{type(self).__name__} takes {len(init.positional)} values by their place")
        given = dict(zip(init.positional, values, strict=False))
        if twice := given.keys() & named.keys():
            raise TypeError(f"{type(self).__name__} was given {', '.join(sorted(twice))} twice")
        given |= named
        for name, default, make in init.defaults:
            if name in given:
                value = given.pop(name)
            elif make is not None:
                value = make()
            elif default is MISSING:
                raise TypeError(f"{type(self).__name__} needs {name}")
            else:
                value = default
            object.__setattr__(self, name, value)
        if given:
            raise TypeError(f"{type(self).__name__} has no {', '.join(sorted(given))}")

    def _compared(self) -> tuple[object, ...]:
        return tuple(getattr(self, name) for name in _init_of(type(self)).compared)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, JsonRecord) or type(self) is not type(other):
            return NotImplemented
        return self._compared() == other._compared()

    def __hash__(self) -> int:
        return hash(self._compared())

    def __repr__(self) -> str:
        shown = ", ".join(f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr)
        return f"{type(self).__qualname__}({shown})"

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete field {name!r}")

    def __getstate__(self) -> list[object]:
        return [getattr(self, each.name) for each in fields(self)]

    def __setstate__(self, state: list[object]) -> None:
        for each, value in zip(fields(self), state, strict=True):
            object.__setattr__(self, each.name, value)


@dataclass(frozen=True, slots=True)
class _JavaField:
    name: str
    codec: Codec[Any]
    since_5x: bool


def java(name: str, codec: Codec[T], *, since_5x: bool = False) -> dict[str, object]:
    """Return the metadata of a field that Java calls `name`."""
    return {_METADATA: _JavaField(name, codec, since_5x)}


@dataclass(frozen=True, slots=True)
class _Declared:
    name: str
    required: bool
    java: _JavaField


_DECLARED: dict[type[JsonRecord], dict[str, _Declared]] = {}


def _declared(kind: type[JsonRecord]) -> dict[str, _Declared]:
    if kind not in _DECLARED:
        _DECLARED[kind] = {
            spelled.name: _Declared(each.name, each.default is MISSING and each.default_factory is MISSING, spelled)
            for each in fields(kind)
            if (spelled := each.metadata.get(_METADATA)) is not None
        }
    return _DECLARED[kind]


def decode_record(kind: type[R], value: Json, path: str) -> R:
    """Read a bean; `path` names its place in the file, for errors."""
    declared = _declared(kind)
    given: dict[str, object] = {}
    unknown: dict[str | int, Json] = {}
    for name, child in _entries(value, path).items():
        known = declared.get(name) if isinstance(name, str) else None
        if known is not None:
            if child is not None:
                given[known.name] = known.java.codec.decode(child, f"{path}.{name}")
        elif name not in kind.COMPUTED:
            unknown[name] = child
    for java_name, known in declared.items():
        if known.required and known.name not in given:
            raise BadField("is missing", field=f"{path}.{java_name}")
    return kind(**given, unknown=unknown)


def encode_record(bean: JsonRecord, compat: Compat) -> dict[str | int, Json]:
    """Write a bean with its fields in Java's order."""
    written = dict(bean.unknown)
    for java_name, known in _declared(type(bean)).items():
        if compat.config_has_5x_fields or not known.java.since_5x:
            written[java_name] = known.java.codec.encode(getattr(bean, known.name), compat)
    for java_name, computed in bean.COMPUTED.items():
        if compat.config_has_5x_fields or not computed.since_5x:
            written[java_name] = getattr(bean, computed.property_name)
    return dict(sorted(written.items(), key=lambda entry: str(entry[0])))


class RecordMap(NamedTuple):
    """A map of beans that is not encoded yet."""

    records: Mapping[str, JsonRecord]


def table_members(bean: JsonRecord, compat: Compat) -> Iterator[tuple[str | int, Json | RecordMap]]:
    """Yield the members of a bean in Java's order, maps of beans as `RecordMap`.

    The caller encodes their beans one at a time: a tree of a hundred thousand would cause long collections of garbage.
    """
    tables = {
        java_name: (known.name, RecordMap(value))
        for java_name, known in _declared(type(bean)).items()
        if isinstance(value := getattr(bean, known.name), Mapping) and _has_beans(value)
    }
    head = replace(bean, **{name: {} for name, _ in tables.values()}) if tables else bean
    for name, value in encode_record(head, compat).items():
        yield name, tables[str(name)][1] if name in tables else value


def _has_beans(values: Mapping[Any, Any]) -> bool:
    key, value = next(iter(values.items()), (None, None))
    return isinstance(key, str) and isinstance(value, JsonRecord)


@dataclass(frozen=True, slots=True)
class JsonFile(Generic[R]):
    """A config file that holds one bean; it has no newline at its end."""

    name: str
    kind: type[R]
    pretty: bool = True

    def decode(self, text: str) -> R:
        return decode_record(self.kind, read_json(text), self.name)

    def encode(self, bean: R, compat: Compat) -> str:
        if not self.pretty:
            return write_compact(encode_record(bean, compat), int_keys_on_own_line=compat.int_keys_on_own_line)
        writer = PrettyWriter(int_keys_on_own_line=compat.int_keys_on_own_line)

        def text_of(value: Json | RecordMap) -> str:
            if not isinstance(value, RecordMap):
                return writer.value(value, 1)
            beans = value.records.items()
            return writer.map(((key, writer.value(encode_record(child, compat), 2)) for key, child in beans), 1)

        members = table_members(bean, compat)
        return writer.map(((name, text_of(value)) for name, value in members if value is not None), 0)
