"""Options of commands that read a store's files: the store, its settings, and reports of damage on stderr."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

import click

from orbitlog.cli.main import WrongUse
from orbitlog.cli.output.terminal import error_text
from orbitlog.settings.setting import SettingError
from orbitlog.settings.store_settings import SETTINGS, StoreSettings, load_settings, similar_keys

_UNKNOWN_SHOWN_MAX = 8
_SENTENCES_MAX = 1000
_PARTS_OF_A_STORE = ("commitlog", "consumequeue", "index", "config", "checkpoint")
_ENTRIES_TRIED = 100

Command = TypeVar("Command", bound=Callable[..., object])

stores_argument = click.argument(
    "stores", metavar="STORE...", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path)
)


def _checked_store(_: click.Context, parameter: click.Parameter, path: Path) -> Path:
    """Raise a usage error with the right path if `path` is the parent or a child of a store."""
    if not path.is_dir() or any((path / name).exists() for name in _PARTS_OF_A_STORE):
        return path
    near = [path.absolute().parent, *sorted(path.iterdir())[:_ENTRIES_TRIED]]
    if stores := [str(directory) for directory in near if (directory / _PARTS_OF_A_STORE[0]).is_dir()]:
        raise click.BadParameter(f"{path} is not a store; did you mean {' or '.join(stores[:3])}?", param=parameter)
    return path


store_argument = click.argument("store", type=click.Path(exists=True, path_type=Path), callback=_checked_store)


def settings_options(command: Command) -> Command:
    """Add --config and --set."""
    keys = ", ".join(SETTINGS)
    config = click.option(
        "--config",
        "config_path",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Java's broker.conf, for file sizes that cannot be inferred from the files.",
    )
    assignments = click.option(
        "--set",
        "assignments",
        multiple=True,
        metavar="KEY=VALUE",
        help=f"One setting; overrides --config. Keys: {keys}.",
    )
    return config(assignments(command))


def read_settings(config_path: Path | None, assignments: Iterable[str]) -> StoreSettings:
    """Load settings; warn on stderr about unsupported store settings and unknown keys."""
    try:
        settings = load_settings(config_path, assignments)
    except SettingError as error:
        raise WrongUse(str(error)) from error
    for sentence in settings.warnings:
        warn(sentence)
    if settings.unknown:
        shown = ", ".join(_with_hint(key) for key in settings.unknown[:_UNKNOWN_SHOWN_MAX])
        more = len(settings.unknown) - _UNKNOWN_SHOWN_MAX
        warn(f"settings not used here: {shown}{f' and {more} more' if more > 0 else ''}")
    return settings


def _with_hint(key: str) -> str:
    similar = similar_keys(key)
    return f"{key} (did you mean {' or '.join(similar)}?)" if similar else key


def warn(sentence: str) -> None:
    """Print a sentence on stderr."""
    click.echo(f"orbitlog: {error_text(sentence)}", err=True)


def report_damage(sentences: list[str]) -> None:
    """Print each sentence on stderr and exit with 1; do nothing without sentences."""
    for sentence in sentences[:_SENTENCES_MAX]:
        warn(sentence)
    if len(sentences) > _SENTENCES_MAX:
        warn(f"{len(sentences) - _SENTENCES_MAX} more findings are not listed")
    if sentences:
        click.get_current_context().exit(1)
