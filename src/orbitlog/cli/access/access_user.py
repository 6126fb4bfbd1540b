"""`orbitlog access user`: lists, adds, changes and removes users. Passwords are never printed."""

from __future__ import annotations

from pathlib import Path

import click

from orbitlog.access.access_file import load_access_file
from orbitlog.access.access_settings import LIMIT_MAX, LIMIT_NAMES, NO_LIMITS, QuotaLimits
from orbitlog.access.user_records import DISABLED, ENABLED, NORMAL, SUPER
from orbitlog.cli.access.user_file_option import change_file, show_change, user_file, user_file_options
from orbitlog.cli.main import WrongUse
from orbitlog.cli.output.json_rows import Output, output_options
from orbitlog.cli.output.row_output import show_rows
from orbitlog.cli.output.stream_table import Column
from orbitlog.cli.password_input import read_password

_QUOTA_COLUMNS = (Column("username"), *map(Column, LIMIT_NAMES))
_COLUMNS = (Column("username"), Column("userType"), Column("userStatus"), Column("policies"))


@click.group("user", help="List, add, change and remove users.")
def command() -> None:
    """The group."""


password_option = click.option(
    "--password-stdin", is_flag=True, help="Read the password from standard input instead of a prompt."
)


@command.command("list", help="List users, without their passwords.")
@user_file_options
@output_options
def list_users(*, file: Path | None, store: Path | None, output: Output) -> None:
    table = load_access_file(user_file(file, store))
    rows = []
    for user in table.find_users(None):
        acl = table.acls.get(f"User:{user.username}")
        count = 0 if acl is None else len(acl.custom) + len(acl.default)
        shown = {"username": user.username, "userType": user.user_type, "userStatus": user.status}
        rows.append({**shown, "policies": count})
    show_rows(_COLUMNS, rows, output)


@command.command("add", help="Add a user.")
@click.argument("name")
@click.option("--super", "is_super", is_flag=True, help="A super user, which may do everything.")
@password_option
@user_file_options
@output_options
def add_user(
    *, name: str, is_super: bool, password_stdin: bool, file: Path | None, store: Path | None, output: Output
) -> None:
    path = user_file(file, store)
    fields = {"password": read_password(from_input=password_stdin), "userType": SUPER if is_super else NORMAL}
    change_file(path, lambda table: table.create_user(name, fields))
    show_change(output, f"user {name} is added to {path}", username=name)


@command.command("passwd", help="Change the password of a user.")
@click.argument("name")
@password_option
@user_file_options
@output_options
def change_password(*, name: str, password_stdin: bool, file: Path | None, store: Path | None, output: Output) -> None:
    path = user_file(file, store)
    password = read_password(from_input=password_stdin)
    change_file(path, lambda table: table.update_user(name, {"password": password}))
    show_change(output, f"the password of user {name} is changed", username=name)


def _add_status_command(word: str, status: str, help_text: str) -> None:
    """Add the command that gives a user one status."""

    @command.command(word, help=help_text)
    @click.argument("name")
    @user_file_options
    @output_options
    def set_status(*, name: str, file: Path | None, store: Path | None, output: Output) -> None:
        change_file(user_file(file, store), lambda table: table.update_user(name, {"userStatus": status}))
        show_change(output, f"user {name} is {word}d", username=name)


_add_status_command("enable", ENABLED, "Enable a user.")
_add_status_command("disable", DISABLED, "Disable a user; its requests are refused until it is enabled.")


@command.command(
    "quota",
    help="""Set quotas of a user, or show them if none is given; 0 is unlimited.

    Without a quota of its own a user has the default of the broker (userMessagesPerSecondMax and similar keys).""",
)
@click.argument("name")
@click.option("--messages", type=click.IntRange(0, LIMIT_MAX), help="Messages a second.")
@click.option("--bytes", "size_bytes", type=click.IntRange(0, LIMIT_MAX), help="Bytes of message bodies a second.")
@click.option("--connections", type=click.IntRange(0, LIMIT_MAX), help="Open connections.")
@click.option("--topics", type=click.IntRange(0, LIMIT_MAX), help="Topics that the user has created.")
@user_file_options
@output_options
def quota(
    *,
    name: str,
    messages: int | None,
    size_bytes: int | None,
    connections: int | None,
    topics: int | None,
    file: Path | None,
    store: Path | None,
    output: Output,
) -> None:
    path = user_file(file, store)
    limits = QuotaLimits(messages, size_bytes, connections, topics)
    if limits != NO_LIMITS:
        change_file(path, lambda table: table.set_limits(name, limits))
    user = load_access_file(path).users.get(name)
    if user is None:
        raise WrongUse(f"user {name} does not exist in {path}")
    row = dict.fromkeys(LIMIT_NAMES) | user.limits.to_json()
    show_rows(_QUOTA_COLUMNS, [{"username": name, **row}], output)


@command.command("remove", help="Remove a user and its policies.")
@click.argument("name")
@user_file_options
@output_options
def remove_user(*, name: str, file: Path | None, store: Path | None, output: Output) -> None:
    path = user_file(file, store)
    if name not in load_access_file(path).users:
        raise WrongUse(f"user {name} does not exist in {path}")
    change_file(path, lambda table: table.delete_user(name))
    show_change(output, f"user {name} is removed", username=name)
