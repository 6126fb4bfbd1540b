"""Which stores are read, and the name that each has in offsets and rows.

A store's files do not tell the name of their broker, and offsets need one: it is given as `name=path`, or it is the
name of the directory (that of its parent where it is called `store`, as Java's default is).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from orbitlog.errors import OrbitlogError

STORES_MAX = 1024
_NAMED = re.compile(r"([A-Za-z0-9_.-]+)=(.+)", re.DOTALL)
_ORDINARY_NAME = "store"
_NO_NAME = re.compile(r"[^A-Za-z0-9_.-]+")


class OptionError(OrbitlogError):
    """An option of a data source or job that cannot work; the sentence says which and what to write."""


@dataclass(frozen=True, slots=True)
class NamedStore:
    """One store; paths are texts because they travel to workers."""

    broker_name: str
    root: str


def parse_store_paths(text: str) -> tuple[NamedStore, ...]:
    """Read one path, several with commas between, or a JSON list (for paths that hold a comma)."""
    items = _json_list(text) if text.lstrip().startswith("[") else [part.strip() for part in text.split(",")]
    items = [item for item in items if item]
    if not items:
        raise OptionError("storePath is empty; give the directory that holds commitlog/, a broker's storePathRootDir")
    return name_stores(items)


def name_stores(items: list[str]) -> tuple[NamedStore, ...]:
    """Give every store a name; two of the same name are refused."""
    if len(items) > STORES_MAX:
        raise OptionError(f"storePath names {len(items)} stores; at most {STORES_MAX} are read at once")
    stores = tuple(_named(item) for item in items)
    twice = [name for name, count in Counter(store.broker_name for store in stores).items() if count > 1]
    if twice:
        raise OptionError(
            f"two stores would be called {twice[0]!r}; name each, as in storePath=broker-a=PATH,broker-b=PATH"
        )
    return stores


def _named(item: str) -> NamedStore:
    match = _NAMED.fullmatch(item)
    if match:
        return NamedStore(match[1], str(Path(match[2]).expanduser().absolute()))
    path = Path(item).expanduser().absolute()
    name = path.parent.name if path.name == _ORDINARY_NAME else path.name
    return NamedStore(_NO_NAME.sub("-", name).strip("-") or _ORDINARY_NAME, str(path))


def _json_list(text: str) -> list[str]:
    try:
        items = json.loads(text)
    except ValueError as error:
        raise OptionError(f'storePath looks like a JSON list and is none ({error}); write ["PATH", "PATH"]') from None
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        raise OptionError('storePath must be a JSON list of texts; write ["PATH", "PATH"]')
    return items
