"""YAML subset: reads mappings, lists and scalars from events of PyYAML, and keeps how each scalar was written.

No object is constructed from tags; anchors, aliases and tags are refused, depth and size are limited. A plain scalar
that YAML 1.1 does not read as text keeps its type, so that a caller can refuse a secret such as 01234567, which Java
reads as an octal number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import yaml

from orbitlog.errors import OrbitlogError

TEXT_BYTES_MAX = 4 * 1024 * 1024
_DEPTH_MAX = 8
_NODES_MAX = 1_000_000
# Java's YAML reads more texts as numbers than PyYAML, such as 1234e10.
_NUMERIC = re.compile(r"[-+]?[.0-9][0-9_.:eE+-]*")
_STRING, _NULL, _INTEGER = "tag:yaml.org,2002:str", "tag:yaml.org,2002:null", "tag:yaml.org,2002:int"


class BadYaml(OrbitlogError):
    """A text that is not valid YAML, or uses more of YAML than account files need."""


class Scalar(NamedTuple):
    """A value as it was written; `is_text` if YAML 1.1 reads it as text, `is_decimal` if as a plain whole number."""

    text: str
    is_text: bool
    is_decimal: bool
    line: int


YamlValue = Scalar | None | list["YamlValue"] | dict[str, "YamlValue"]


def read_yaml(data: bytes) -> YamlValue:
    """Return the value of one document, None if it is empty; raise `BadYaml` with the line."""
    if len(data) > TEXT_BYTES_MAX:
        raise BadYaml(f"{len(data)} bytes exceed the maximum of {TEXT_BYTES_MAX}")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    # One event at a time: the limits below must stop a text before all of its events are in memory.
    try:
        return _Reader(yaml.parse(data, Loader=loader)).document()
    except (yaml.YAMLError, ValueError) as error:
        raise BadYaml(f"not valid YAML: {' '.join(str(error).split())[:255]}") from None


class _Reader:
    def __init__(self, events: Iterator[Any]) -> None:
        self._events = events
        self._resolve = yaml.SafeLoader.yaml_implicit_resolvers
        self._count = 0

    def document(self) -> YamlValue:
        value: YamlValue = None
        seen = 0
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                seen += 1
                if seen > 1:
                    raise BadYaml("more than one document")
                value = self._value(next(self._events), 0)
        return value

    def _value(self, event: Any, depth: int) -> YamlValue:
        line = event.start_mark.line + 1
        self._count += 1
        if isinstance(event, yaml.AliasEvent):
            raise BadYaml(f"line {line}: aliases are not supported; put a value that starts with * in quotes")
        if event.anchor is not None or (event.tag is not None and event.tag != "!"):
            raise BadYaml(f"line {line}: anchors and tags are not supported")
        if depth >= _DEPTH_MAX or self._count > _NODES_MAX:
            raise BadYaml(f"line {line}: nested deeper than {_DEPTH_MAX} levels, or too many values")
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event, line)
        if isinstance(event, yaml.SequenceStartEvent):
            return list(self._items(yaml.SequenceEndEvent, depth))
        return self._mapping(depth)

    def _items(self, end: type, depth: int) -> Iterator[YamlValue]:
        for event in self._events:
            if isinstance(event, end):
                return
            yield self._value(event, depth + 1)

    def _mapping(self, depth: int) -> dict[str, YamlValue]:
        table: dict[str, YamlValue] = {}
        for event in self._events:
            if isinstance(event, yaml.MappingEndEvent):
                break
            key = self._value(event, depth + 1)
            if not isinstance(key, Scalar):
                raise BadYaml(f"line {event.start_mark.line + 1}: a key is not text")
            if key.text in table:
                raise BadYaml(f"line {key.line}: {key.text[:40]} is given twice")
            table[key.text] = self._value(next(self._events), depth + 1)
        return table

    def _scalar(self, event: Any, line: int) -> Scalar | None:
        text = event.value
        if event.style:  # quoted or a block; a plain scalar has no style
            return Scalar(text, True, False, line)
        tag = _STRING
        for candidate, pattern in (*self._resolve.get(text[:1], ()), *self._resolve.get(None, ())):
            if pattern.match(text):
                tag = candidate
                break
        if tag == _NULL:
            return None
        # By its digits: Python refuses to convert thousands of them.
        is_decimal = tag == _INTEGER and text.isdigit() and (text == "0" or not text.startswith("0"))
        return Scalar(text, tag == _STRING and not _NUMERIC.fullmatch(text), is_decimal, line)
