"""Named contexts: which clusters there are, where, and who asks; kept in a file that only its owner may read.

`$XDG_CONFIG_HOME/orbitlog/contexts.json`, by default below ~/.config:

    {"current": "shop", "contexts": {"shop": {"nameServers": "10.0.0.1:9876", "accessKey": "...", "secretKey": "..."}}}

Which cluster a command asks, the first that is given: -n, --context, ORBITLOG_CONTEXT, ORBITLOG_NAME_SERVER or
NAMESRV_ADDR, the context in use, 127.0.0.1:9876. An address from -n or the environment is asked without the
credentials of the context in use: they are for another cluster.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orbitlog.cli.main import Problem, WrongUse
from orbitlog.settings.atomic_file import replace_file

DEFAULT_ADDRESS = "127.0.0.1:9876"
_FILE_BYTES_MAX = 1 << 20
_NAME = re.compile(r"[\w.-]{1,64}", re.ASCII)
_ADDRESS_VARIABLES = ("ORBITLOG_NAME_SERVER", "NAMESRV_ADDR")


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where a cluster is, and who asks it."""

    address: str = DEFAULT_ADDRESS
    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)
    namespace: str = ""


_JSON_NAMES = {
    "nameServers": "address",
    "accessKey": "access_key",
    "secretKey": "secret_key",
    "namespace": "namespace",
}


@dataclass(slots=True)
class Contexts:
    """The table of contexts, and which of them is in use."""

    path: Path
    table: dict[str, Cluster]
    current: str | None = None

    def get(self, name: str) -> Cluster:
        if name not in self.table:
            known = ", ".join(sorted(self.table)) or "none"
            raise WrongUse(f"there is no context {name!r} (there are: {known}); `orbitlog context add` makes one")
        return self.table[name]

    def save(self) -> None:
        """Replace the file; it is never readable by others, not even for a moment."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        table = {name: _as_json(cluster) for name, cluster in sorted(self.table.items())}
        text = json.dumps({"current": self.current, "contexts": table}, indent=2) + "\n"
        replace_file(self.path, text.encode(), mode=0o600)


def _as_json(cluster: Cluster) -> dict[str, str]:
    values = {name: getattr(cluster, attribute) for name, attribute in _JSON_NAMES.items()}
    return {name: value for name, value in values.items() if value}


def contexts_path(environment: Mapping[str, str] | None = None) -> Path:
    given = os.environ if environment is None else environment
    home = given.get("XDG_CONFIG_HOME") or ""
    # The specification: a path that is not absolute is to be ignored.
    base = Path(home) if Path(home).is_absolute() else Path.home() / ".config"
    return base / "orbitlog" / "contexts.json"


def load_contexts(path: Path | None = None) -> Contexts:
    """Read the file; no file is an empty table."""
    path = contexts_path() if path is None else path
    try:
        if path.stat().st_size > _FILE_BYTES_MAX:
            raise Problem(f"{path}: too large for a file of contexts")
        told: Any = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Contexts(path, {})
    except ValueError as error:
        raise Problem(f"{path}: this is no file of contexts: {error}") from None
    table = told.get("contexts") if isinstance(told, dict) else None
    if not isinstance(table, dict):
        raise Problem(f'{path}: this is no file of contexts: nothing under "contexts"')
    current = told.get("current")
    return Contexts(path, {name: _cluster(path, name, facts) for name, facts in table.items()}, current or None)


def _cluster(path: Path, name: str, facts: object) -> Cluster:
    if not isinstance(facts, dict) or not all(isinstance(value, str) for value in facts.values()):
        raise Problem(f"{path}: context {name!r} is not made of names and texts")
    return Cluster(**{_JSON_NAMES[key]: value for key, value in facts.items() if key in _JSON_NAMES})


def check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise WrongUse(f"{name!r} is no name of a context: letters, digits and . _ -, at most 64")
    return name


def choose_cluster(address: str | None, context_name: str | None) -> Cluster:
    """Return the cluster that is meant, by what was given on the command line and in the environment."""
    named = context_name or os.environ.get("ORBITLOG_CONTEXT") or None
    asked = address or None
    if asked is None and named is None:
        asked = next((os.environ[name] for name in _ADDRESS_VARIABLES if os.environ.get(name)), None)
    if asked is not None and named is None:
        cluster = Cluster(asked)
    else:
        contexts = load_contexts()
        name = named or contexts.current
        cluster = contexts.get(name) if name is not None else Cluster()
        if asked is not None:
            cluster = Cluster(asked, cluster.access_key, cluster.secret_key, cluster.namespace)
    return _with_environment(cluster)


def _with_environment(cluster: Cluster) -> Cluster:
    access_key, secret_key = os.environ.get("ORBITLOG_ACCESS_KEY"), os.environ.get("ORBITLOG_SECRET_KEY")
    if access_key and secret_key:
        return Cluster(cluster.address, access_key, secret_key, cluster.namespace)
    return cluster
