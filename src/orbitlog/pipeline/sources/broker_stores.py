"""Broker stores: the stores that a query reads, each with the broker name that offsets and rows carry.

A store's files do not record the name of their broker, and offsets need one. It is given as `name=path`; otherwise it
is the name of the directory, or of its parent if the directory is called `store` (Java's default).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from orbitlog.errors import OrbitlogError
from orbitlog.settings.store_settings import LOG_PATH_SETTINGS, StoreSettings, check_setting, load_settings
from orbitlog.storefiles.store_paths import StorePaths

STORES_MAX = 1024
_NAMED = re.compile(r"([A-Za-z0-9_.-]+)=(.+)", re.DOTALL)
_DEFAULT_DIRECTORY = "store"
_INVALID_IN_NAME = re.compile(r"[^A-Za-z0-9_.-]+")


class OptionError(OrbitlogError):
    """An option of a data source or job is invalid; the message names it and a valid form."""


class TopicNotFound(OptionError):
    """No broker of a cluster serves a topic that is subscribed by name."""


@dataclass(frozen=True, slots=True)
class BrokerStore:
    """One store; paths are text because they are sent to workers as JSON."""

    broker_name: str
    root: str
    log_settings: tuple[tuple[str, str], ...] = ()
    """Values of storePathCommitLog and the other settings of `LOG_PATH_SETTINGS`, if given."""

    @property
    def paths(self) -> StorePaths:
        return StorePaths.of(Path(self.root), StoreSettings(dict(self.log_settings)))


def parse_store_paths(text: str) -> tuple[BrokerStore, ...]:
    """Parse one path, several separated by commas, or a JSON list (for paths that contain a comma)."""
    items = _json_list(text) if text.lstrip().startswith("[") else [part.strip() for part in text.split(",")]
    items = [item for item in items if item]
    if not items:
        raise OptionError("storePath is empty; give the directory that holds commitlog/, a broker's storePathRootDir")
    return name_stores(items)


def name_stores(items: list[str]) -> tuple[BrokerStore, ...]:
    """Return the stores with their names; raise `OptionError` if two have the same name."""
    if len(items) > STORES_MAX:
        raise OptionError(f"storePath names {len(items)} stores; the maximum is {STORES_MAX}")
    stores = tuple(_named(item) for item in items)
    duplicates = [name for name, count in Counter(store.broker_name for store in stores).items() if count > 1]
    if duplicates:
        raise OptionError(
            f"two stores have the name {duplicates[0]!r}; name each, as in storePath=broker-a=PATH,broker-b=PATH"
        )
    return stores


def _named(item: str) -> BrokerStore:
    match = _NAMED.fullmatch(item)
    if match:
        return BrokerStore(match[1], str(Path(match[2]).expanduser().absolute()))
    path = Path(item).expanduser().absolute()
    name = path.parent.name if path.name == _DEFAULT_DIRECTORY else path.name
    return BrokerStore(_INVALID_IN_NAME.sub("-", name).strip("-") or _DEFAULT_DIRECTORY, str(path))


def _json_list(text: str) -> list[str]:
    try:
        items = json.loads(text)
    except ValueError as error:
        raise OptionError(
            f'storePath starts like a JSON list, but is invalid JSON ({error}); write ["PATH", "PATH"]'
        ) from None
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        raise OptionError('storePath must be a JSON list of strings; write ["PATH", "PATH"]')
    return items


def with_log_paths(
    stores: tuple[BrokerStore, ...], config: str | None, given: Mapping[str, str]
) -> tuple[BrokerStore, ...]:
    """Return the stores with the CommitLog directories that options give.

    `config` is the path of a broker.conf. `given` holds values of Java's settings by key, which override it. Each value
    is a text, or for several stores a JSON object with one text per broker name.
    """
    by_store: dict[str, dict[str, str]] = {store.broker_name: {} for store in stores}
    for name, path in _by_broker("config", config, stores).items():
        texts = load_settings(Path(path).expanduser(), ()).texts
        by_store[name] |= {key: text for key, text in texts.items() if key in LOG_PATH_SETTINGS}
    for key, value in given.items():
        for name, text in _by_broker(key, value, stores).items():
            check_setting(key, text, f"option {key}")
            by_store[name][key] = text
    return tuple(replace(store, log_settings=tuple(sorted(by_store[store.broker_name].items()))) for store in stores)


def log_path_options(stores: Sequence[BrokerStore]) -> dict[str, str]:
    """Return the options from which `with_log_paths` restores these stores."""
    options: dict[str, str] = {}
    for key in LOG_PATH_SETTINGS:
        texts = {
            store.broker_name: dict(store.log_settings)[key] for store in stores if key in dict(store.log_settings)
        }
        if texts:
            options[key] = json.dumps(texts)
    return options


def _by_broker(option: str, value: str | None, stores: tuple[BrokerStore, ...]) -> dict[str, str]:
    if value is None:
        return {}
    if not value.lstrip().startswith("{"):
        if len(stores) > 1:
            raise OptionError(f'{option} is given for {len(stores)} stores; write {{"{stores[0].broker_name}":"PATH"}}')
        return {stores[0].broker_name: value}
    try:
        texts = json.loads(value)
    except ValueError as error:
        raise OptionError(f"{option} starts like JSON, but is invalid JSON ({error})") from None
    if not isinstance(texts, dict) or not all(isinstance(text, str) for text in texts.values()):
        raise OptionError(f'{option} must be a path, or JSON with a path for each broker: {{"broker-a":"PATH"}}')
    unknown = sorted(set(texts) - {store.broker_name for store in stores})
    if unknown:
        raise OptionError(f"{option} names broker {unknown[0]!r}, but no store of the query has that name")
    return texts
