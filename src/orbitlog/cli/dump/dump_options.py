"""Options that all `orbitlog dump` commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., object])

path_argument = click.argument("path", type=click.Path(exists=True, path_type=Path))
topic_option = click.option("--topic", help="Only this topic.")
limit_option = click.option("--limit", type=click.IntRange(min=0), help="Maximum number of rows.")


def from_option(help_text: str) -> Callable[[Command], Command]:
    """Return the option --from; its unit depends on the kind of file."""
    return click.option("--from", "start", type=click.IntRange(min=0), default=0, help=help_text)
