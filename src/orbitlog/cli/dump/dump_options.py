"""What the dump commands share: their options, settings, and how damage is reported."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

import click

from orbitlog.cli.main import WrongUse
from orbitlog.settings.setting import SettingError
from orbitlog.settings.store_settings import SETTINGS, StoreSettings, load_settings, similar_keys

_UNKNOWN_SHOWN_MAX = 8
_SENTENCES_MAX = 1000

Command = TypeVar("Command", bound=Callable[..., object])

path_argument = click.argument("path", type=click.Path(exists=True, path_type=Path))
topic_option = click.option("--topic", help="Only this topic.")
limit_option = click.option("--limit", type=click.IntRange(min=0), help="At most so many rows.")


def from_option(help_text: str) -> Callable[[Command], Command]:
    """The option --from; what its number counts differs from kind to kind."""
    return click.option("--from", "start", type=click.IntRange(min=0), default=0, help=help_text)


def settings_options(command: Command) -> Command:
    """Add --config and --set."""
    keys = ", ".join(SETTINGS)
    config = click.option(
        "--config",
        "config_path",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Java's broker.conf; where files do not tell their sizes, its settings do.",
    )
    assignments = click.option(
        "--set",
        "assignments",
        multiple=True,
        metavar="KEY=VALUE",
        help=f"One setting; wins over --config. Keys: {keys}.",
    )
    return config(assignments(command))


def read_settings(config_path: Path | None, assignments: Iterable[str]) -> StoreSettings:
    """Load the settings; warn on stderr about those that concern a store and are not supported, and unknown ones."""
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
    """Say one sentence on stderr."""
    click.echo(f"orbitlog: {sentence}", err=True)


def report_damage(sentences: list[str]) -> None:
    """Say each on stderr and end with exit code 1; go on where there are none."""
    for sentence in sentences[:_SENTENCES_MAX]:
        warn(sentence)
    if len(sentences) > _SENTENCES_MAX:
        warn(f"{len(sentences) - _SENTENCES_MAX} more damaged places are not listed")
    if sentences:
        click.get_current_context().exit(1)
