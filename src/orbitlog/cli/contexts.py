"""Contexts: named clusters with their addresses and credentials, in a file that only its owner can read.

`$XDG_CONFIG_HOME/orbitlog/contexts.json`, by default below ~/.config:

    {"current": "shop", "contexts": {"shop": {"nameServers": "10.0.0.1:9876", "accessKey": "...", "secretKey": "..."}}}

A command uses the first of these that is given: -n, --context, ORBITLOG_CONTEXT, ORBITLOG_NAME_SERVER or
NAMESRV_ADDR, the context in use, 127.0.0.1:9876. The credentials of the context in use are not sent to an address from
-n or the environment: they belong to another cluster.
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
    """Address and credentials of a cluster."""

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
    """All contexts, and the name of the one in use."""

    path: Path
    table: dict[str, Cluster]
    current: str | None = None

    def get(self, name: str) -> Cluster:
        if name not in self.table:
            available = ", ".join(sorted(self.table)) or "none"
            raise WrongUse(f"unknown context {name!r} (available: {available}); add it with `orbitlog context add`")
        return self.table[name]

    def save(self) -> None:
        """Replace the file; it is created with mode 0600, so other users can never read it."""
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
    # The XDG specification requires that relative paths are ignored.
    base = Path(home) if Path(home).is_absolute() else Path.home() / ".config"
    return base / "orbitlog" / "contexts.json"


def load_contexts(path: Path | None = None) -> Contexts:
    """Read the file; return no contexts if it does not exist."""
    path = contexts_path() if path is None else path
    try:
        if path.stat().st_size > _FILE_BYTES_MAX:
            raise Problem(f"{path}: too large for a contexts file (maximum {_FILE_BYTES_MAX} bytes)")
        content: Any = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Contexts(path, {})
    except ValueError as error:
        raise Problem(f"{path}: not a valid contexts file: {error}") from None
    table = content.get("contexts") if isinstance(content, dict) else None
    if not isinstance(table, dict):
        raise Problem(f'{path}: not a valid contexts file: no object "contexts"')
    current = content.get("current")
    return Contexts(path, {name: _cluster(path, name, fields) for name, fields in table.items()}, current or None)


def _cluster(path: Path, name: str, fields: object) -> Cluster:
    if not isinstance(fields, dict) or not all(isinstance(value, str) for value in fields.values()):
        raise Problem(f"{path}: context {name!r} must be an object of strings")
    return Cluster(**{_JSON_NAMES[key]: value for key, value in fields.items() if key in _JSON_NAMES})


def check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise WrongUse(f"{name!r} is not a valid context name: letters, digits and . _ -, at most 64 characters")
    return name


def choose_cluster(address: str | None, context_name: str | None) -> Cluster:
    """Return the cluster that the command line, the environment or the context in use selects."""
    named = context_name or os.environ.get("ORBITLOG_CONTEXT") or None
    given = address or None
    if given is None and named is None:
        given = next((os.environ[name] for name in _ADDRESS_VARIABLES if os.environ.get(name)), None)
    if given is not None and named is None:
        cluster = Cluster(given)
    else:
        contexts = load_contexts()
        name = named or contexts.current
        cluster = contexts.get(name) if name is not None else Cluster()
        if given is not None:
            cluster = Cluster(given, cluster.access_key, cluster.secret_key, cluster.namespace)
    return _with_environment(cluster)


def _with_environment(cluster: Cluster) -> Cluster:
    access_key, secret_key = os.environ.get("ORBITLOG_ACCESS_KEY"), os.environ.get("ORBITLOG_SECRET_KEY")
    if access_key and secret_key:
        return Cluster(cluster.address, access_key, secret_key, cluster.namespace)
    return cluster
