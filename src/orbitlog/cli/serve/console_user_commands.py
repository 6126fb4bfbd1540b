"""`orbitlog console user`: users of the web console, in a file below its data directory."""

from __future__ import annotations

from pathlib import Path

import click

from orbitlog.cli.output.json_rows import Output, output_options
from orbitlog.cli.output.row_output import show_rows
from orbitlog.cli.output.stream_table import Column
from orbitlog.cli.password_input import read_password

_ROLES = ("viewer", "operator", "admin")
_COLUMNS = (Column("user"), Column("role"))


@click.group("user", help="List, add and remove users of the console.")
def user_commands() -> None:
    """The group."""


@user_commands.command("list", help="List users and their roles.")
@output_options
@click.pass_obj
def list_users(directory: Path, *, output: Output) -> None:
    from orbitlog.console.session.console_users import UserFile

    users = UserFile(directory).users()
    show_rows(_COLUMNS, [{"user": name, "role": user.role.word} for name, user in sorted(users.items())], output)


@user_commands.command("add", help="Add a user, or replace one; the password is read from a prompt or standard input.")
@click.argument("name")
@click.option("--role", type=click.Choice(_ROLES), required=True, help="What the user may do.")
@click.option("--password-stdin", is_flag=True, help="Read the password from standard input instead of a prompt.")
@output_options
@click.pass_obj
def add_user(directory: Path, *, name: str, role: str, password_stdin: bool, output: Output) -> None:
    from orbitlog.console.session.console_roles import role_of
    from orbitlog.console.session.console_users import UserFile

    UserFile(directory).put(name, role_of(role), read_password(from_input=password_stdin))
    show_rows(_COLUMNS, [{"user": name, "role": role}], output)


@user_commands.command("remove", help="Remove a user.")
@click.argument("name")
@output_options
@click.pass_obj
def remove_user(directory: Path, *, name: str, output: Output) -> None:
    from orbitlog.console.session.console_users import UserFile

    UserFile(directory).remove(name)
    show_rows((Column("user"), Column("removed")), [{"user": name, "removed": True}], output)
