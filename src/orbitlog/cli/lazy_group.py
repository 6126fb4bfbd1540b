"""Lazy command group: imports a command when it is called, so that `--help` imports none.

The table of a group names the module and the help of each command; a test compares the help with the command's own.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class LazyCommand(NamedTuple):
    """The module of a command, which defines it as `command`, and its line in `--help`."""

    module: str
    help: str
    is_server: bool = False

    def load(self) -> click.Command:
        if not self.is_server:
            return self._load()
        from orbitlog.cli.light_dataclasses import compile_dataclass_methods_lazily

        with compile_dataclass_methods_lazily():
            return self._load()

    def _load(self) -> click.Command:
        command = importlib.import_module(self.module).command
        assert isinstance(command, click.Command)
        return command


class LazyGroup(click.Group):
    """A group over a table of `LazyCommand`s, listed in the table's order."""

    def __init__(self, name: str, *, table: Mapping[str, LazyCommand], help: str) -> None:
        super().__init__(name, help=help)
        self.table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.table:
            return None
        return self.table[cmd_name].load()

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in self.table.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete from the table; click would import every command for its help."""
        from click.shell_completion import CompletionItem

        names = [name for name in self.table if name.startswith(incomplete)]
        items = [CompletionItem(name, help=self.table[name].help) for name in names]
        return items + click.Command.shell_complete(self, ctx, incomplete)
