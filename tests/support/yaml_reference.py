"""Reference of the YAML subset: PyYAML's events, with both of its parsers, and its resolution of plain scalars.

`orbitlog.access.yaml_subset` must give the same value, or refuse the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

from orbitlog.access.yaml_scalars import Scalar
from orbitlog.access.yaml_subset import BadYaml, YamlValue

LOADERS = (yaml.SafeLoader, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
_DEPTH_MAX = 8
_NUMERIC = re.compile(r"[-+]?[.0-9][0-9_.:eE+-]*")
_STRING, _NULL, _INTEGER = "tag:yaml.org,2002:str", "tag:yaml.org,2002:null", "tag:yaml.org,2002:int"


def reference_values(data: bytes) -> list[YamlValue | str]:
    """Return the value that each parser reads, or why it refuses the text."""
    values: list[YamlValue | str] = []
    for loader in LOADERS:
        try:
            values.append(_Reader(yaml.parse(data, Loader=loader)).document())
        except (BadYaml, yaml.YAMLError, ValueError) as error:
            values.append(f"refused: {error}")
    return values


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
        if depth >= _DEPTH_MAX or self._count > 1_000_000:
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
