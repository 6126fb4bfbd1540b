"""Options of `orbitlog pipeline` commands that read data sources: stores by name, and CommitLog directories."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click

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
        help="storePathCommitLog or readOnlyCommitLogStorePaths; overrides --config.",
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
