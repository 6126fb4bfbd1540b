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
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from orbitlog.cli.main import Problem, WrongUse
from orbitlog.settings.atomic_file import replace_file
from orbitlog.settings.user_directories import user_directory

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
    tls: str = ""
    """How servers are verified: `full`, `ca` (not by host name) or `none`; empty without TLS."""
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    key_password: str = field(default="", repr=False)
    security_token: str = field(default="", repr=False)


TLS_CHECKS = ("full", "ca", "none")
_JSON_NAMES = {
    "nameServers": "address",
    "accessKey": "access_key",
    "secretKey": "secret_key",
    "namespace": "namespace",
    "tls": "tls",
    "caFile": "ca_file",
    "certFile": "cert_file",
    "keyFile": "key_file",
    "keyPassword": "key_password",
    "securityToken": "security_token",
}
_TLS_VARIABLES = {
    "ORBITLOG_TLS": "tls",
    "ORBITLOG_TLS_CA": "ca_file",
    "ORBITLOG_TLS_CERT": "cert_file",
    "ORBITLOG_TLS_KEY": "key_file",
    "ORBITLOG_TLS_KEY_PASSWORD": "key_password",
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
    return user_directory("XDG_CONFIG_HOME", environment) / "contexts.json"


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
    return check_tls_choice(Cluster(**{_JSON_NAMES[key]: value for key, value in fields.items() if key in _JSON_NAMES}))


def check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise WrongUse(f"{name!r} is not a valid context name: letters, digits and . _ -, at most 64 characters")
    return name


def choose_cluster(address: str | None, context_name: str | None, *, uses_tls: bool = False) -> Cluster:
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
            cluster = replace(cluster, address=given)
    cluster = _with_environment(cluster)
    return replace(cluster, tls="full") if uses_tls and not cluster.tls else cluster


def _with_environment(cluster: Cluster) -> Cluster:
    access_key, secret_key = os.environ.get("ORBITLOG_ACCESS_KEY"), os.environ.get("ORBITLOG_SECRET_KEY")
    if access_key and secret_key:
        # A token of the context belongs to its own access key.
        token = os.environ.get("ORBITLOG_SECURITY_TOKEN", "")
        cluster = replace(cluster, access_key=access_key, secret_key=secret_key, security_token=token)
    tls = {attribute: os.environ[name] for name, attribute in _TLS_VARIABLES.items() if os.environ.get(name)}
    return check_tls_choice(replace(cluster, **tls)) if tls else cluster


def check_tls_choice(cluster: Cluster) -> Cluster:
    """Return a cluster with TLS on if it has a file for it; raise `WrongUse` if its TLS settings are invalid."""
    if cluster.tls and cluster.tls not in TLS_CHECKS:
        raise WrongUse(f"TLS check {cluster.tls!r} is not one of {', '.join(TLS_CHECKS)}")
    if bool(cluster.cert_file) != bool(cluster.key_file):
        raise WrongUse("a client certificate and its key must be given together (--cert-file, --key-file)")
    if not cluster.tls and (cluster.ca_file or cluster.cert_file):
        return replace(cluster, tls="full")
    return cluster
