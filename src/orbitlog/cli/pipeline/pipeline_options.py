"""Options of `orbitlog pipeline` commands: stores by name, CommitLog directories, and clusters."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import click

from orbitlog.cli.contexts import Cluster, choose_cluster
from orbitlog.cli.name_completion import complete_contexts

Command = TypeVar("Command", bound=Callable[..., object])


def log_path_options(command: Command) -> Command:
    """Add --config and --set, which give the directories of the CommitLog."""
    config = click.option(
        "--config",
        "config_path",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Java's broker.conf, read for storePathCommitLog.",
    )
    assignments = click.option(
        "--set",
        "assignments",
        multiple=True,
        metavar="KEY=VALUE",
        help="storePathCommitLog, readOnlyCommitLogStorePaths or storePathDLedgerCommitLog; overrides --config.",
    )
    return config(assignments(command))


def name_given_stores(stores: Iterable[str], config_path: Path | None, assignments: Iterable[str]) -> Any:
    """Return the stores with their names and CommitLog directories."""
    from orbitlog.pipeline.sources.broker_stores import name_stores, with_log_paths
    from orbitlog.settings.setting import SettingError
    from orbitlog.settings.store_settings import LOG_PATH_SETTINGS, load_settings

    try:
        texts = load_settings(config_path, assignments).texts
    except SettingError as error:
        raise click.UsageError(str(error)) from error
    given = {key: text for key, text in texts.items() if key in LOG_PATH_SETTINGS}
    return with_log_paths(name_stores(list(stores)), None, given)


def stop_event() -> threading.Event:
    """Return an event that TERM and INT set. Call it after Spark has started.

    PySpark installs a handler of INT that cancels running jobs; this one replaces it, so that the current batch is
    completed first.
    """
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop


def parse_time(_: click.Context, parameter: click.Parameter, text: str | None) -> int | None:
    """Parse a time: milliseconds, or ISO 8601 (UTC unless it has a zone)."""
    if text is None:
        return None
    if text.isascii() and text.isdecimal() and len(text) < 16:
        return int(text)
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is neither milliseconds nor a time such as 2026-01-31T12:00", param=parameter
        ) from None
    aware = instant if instant.tzinfo is not None else instant.replace(tzinfo=UTC)
    return int(aware.timestamp() * 1000)


def cluster_options(command: Command) -> Command:
    """Add --name-server, --context and --tls; the command receives them as `address`, `context_name`, `uses_tls`."""
    address = click.option(
        "-n",
        "--name-server",
        "address",
        metavar="HOST:PORT,...",
        help="Name servers of a cluster; access keys come from --context or ORBITLOG_ACCESS_KEY, ..._SECRET_KEY.",
    )
    context = click.option(
        "--context",
        "context_name",
        metavar="NAME",
        shell_complete=complete_contexts,
        help="Cluster by its name in `orbitlog context list`.",
    )
    tls = click.option("--tls", "uses_tls", is_flag=True, help="Connect to the cluster with TLS.")
    return address(context(tls(command)))


def chosen_cluster(address: str | None, context_name: str | None, *, uses_tls: bool) -> Any:
    """Return the options of the cluster that is given, None if none is."""
    if address is None and context_name is None:
        if uses_tls:
            raise click.UsageError("--tls is given without --name-server or --context")
        return None
    from orbitlog.pipeline.network.network_options import parse_cluster_options
    from orbitlog.pipeline.sources.broker_stores import OptionError
    from orbitlog.pipeline.sources.source_options import TOPIC_OPTIONS, OptionReader

    options = source_options_of(choose_cluster(address, context_name, uses_tls=uses_tls))
    try:
        return parse_cluster_options(OptionReader(options, TOPIC_OPTIONS))
    except OptionError as error:
        raise click.UsageError(str(error)) from error


def source_options_of(cluster: Cluster) -> dict[str, str]:
    """Return a cluster of the command line as options of the data source."""
    checks = {"full": "true", "ca": "ca", "none": "none"}
    given = {
        "nameServer": cluster.address,
        "accessKey": cluster.access_key,
        "secretKey": cluster.secret_key,
        "securityToken": cluster.security_token,
        "tls": checks.get(cluster.tls),
        "tlsCaFile": cluster.ca_file,
        "tlsCertFile": cluster.cert_file,
        "tlsKeyFile": cluster.key_file,
        "tlsKeyPassword": cluster.key_password,
    }
    return {name: value for name, value in given.items() if value}
