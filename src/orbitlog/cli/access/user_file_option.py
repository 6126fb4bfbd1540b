"""Options that name the file with users and policies, and the change of that file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from orbitlog.access.access_file import ACCESS_FILE, load_access_file, save_access_file
from orbitlog.access.user_table import UserTable
from orbitlog.cli.main import Problem, WrongUse
from orbitlog.cli.output.json_rows import Output
from orbitlog.errors import RequestRefused
from orbitlog.formats import store_tree as tree

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


def user_file_options(function: F) -> F:
    """Add --file and --store; `user_file` turns them into a path."""
    path = click.Path(dir_okay=False, path_type=Path)
    function = click.option("--file", "file", type=path, help="File with users and policies (accessFile).")(function)
    directory = click.Path(file_okay=False, path_type=Path)
    return click.option("--store", "store", type=directory, help="Store of the broker: its config/access.json.")(
        function
    )


def user_file(file: Path | None, store: Path | None) -> Path:
    """Return the file that the options name; raise `WrongUse` unless exactly one is given."""
    if (file is None) == (store is None):
        raise WrongUse("give either --file or --store")
    if file is not None:
        return file
    assert store is not None
    if not store.is_dir():
        raise WrongUse(f"{store} is not a directory; start the broker once, or give --file")
    path = store / tree.CONFIG / ACCESS_FILE
    for link in (path.parent, path):  # a store may come from a stranger: its links could lead to any file of the user
        if link.is_symlink():
            raise WrongUse(f"{link} is a link, which is not followed; name its target with --file")
    return path


def change_file(path: Path, change: Callable[[UserTable], T]) -> T:
    """Apply a change to the users of a file, and save it; raise `Problem` if the change is refused."""
    table = load_access_file(path)
    try:
        result = change(table)
    except RequestRefused as error:
        raise Problem(error.remark) from error
    save_access_file(path, table)
    return result


def show_change(output: Output, sentence: str, **names: str | None) -> None:
    """Print what was changed: a sentence, or one JSON object with the names that it concerns."""
    if output.is_table:
        click.echo(sentence)
        return
    row = {"done": sentence, **names}
    output.check(list(row))
    output.write(list(row), row)
