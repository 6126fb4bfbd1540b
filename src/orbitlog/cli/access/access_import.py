"""`orbitlog access import`: turns accounts of `plain_acl.yml` into users and policies. Mirrors `AuthMigrator`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from orbitlog.access.access_file import load_access_file, save_access_file
from orbitlog.access.access_model import Account, Action, BadPolicy, PolicyEntry, Resource
from orbitlog.access.plain_account_files import load_plain_accounts
from orbitlog.access.user_records import NORMAL, SUBJECT_PREFIX, SUPER, Acl, User, parse_policies, parse_user
from orbitlog.cli.access.user_file_option import user_file, user_file_options
from orbitlog.cli.main import Problem
from orbitlog.cli.output.json_rows import Output, output_options
from orbitlog.cli.output.row_output import show_rows
from orbitlog.cli.output.stream_table import Column

_COLUMNS = (Column("username"), Column("userType"), Column("result"), Column("note"))


@click.command(
    "import",
    help="""Turn the accounts below HOME/conf into users and policies.

    Users that exist are not changed. White addresses have no counterpart and are reported, as are accounts whose
    default permission would also apply to names with a permission of their own. Nothing is imported if one of the
    accounts cannot be a user.""",
)
@click.argument("home", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--dry-run", is_flag=True, help="Report only; write nothing.")
@user_file_options
@output_options
def command(*, home: Path, dry_run: bool, file: Path | None, store: Path | None, output: Output) -> None:
    path = user_file(file, store)
    table = load_access_file(path)
    plain = load_plain_accounts(home)
    rows: list[dict[str, Any]] = []
    for name, account in plain.accounts.items():
        user_type = SUPER if account.is_super else NORMAL
        if name in table.users:
            rows.append({"username": name, "userType": table.users[name].user_type, "result": "exists", "note": None})
            continue
        table.users[name], acl = _user_of(account)
        if acl is not None:
            table.acls[acl.subject] = acl
        note = "; ".join(_notes(account, plain.global_white_addresses)) or None
        rows.append({"username": name, "userType": user_type, "result": "imported", "note": note})
    if not dry_run:
        save_access_file(path, table)
    show_rows(_COLUMNS, rows, output)


def _user_of(account: Account) -> tuple[User, Acl | None]:
    """Return an account as a user with its policies; raise `Problem` if the file could not be read with it."""
    subject = SUBJECT_PREFIX + account.name
    user = User(account.name, account.secret, SUPER if account.is_super else NORMAL)
    try:
        acl = Acl(subject, tuple(filter(_has_counterpart, account.custom)), account.default)
        parse_user(user.to_file())
        parse_policies(acl.to_json())
    except BadPolicy as error:
        raise Problem(f"account {account.name} cannot be a user: {error}; change it in its file") from None
    return user, None if account.is_super else acl


def _has_counterpart(entry: PolicyEntry) -> bool:
    """Return whether the resource of an entry is one in 2.0: there `*` is every name, in 1.0 it is a character."""
    return Resource.parse(str(entry.resource)) == entry.resource


def _notes(account: Account, white: tuple[str, ...]) -> Iterator[str]:
    """Yield what the user may do differently from the account."""
    if account.white_address.strip():
        yield f"white address {account.white_address} is not imported"
    if white:
        yield "global white addresses are not imported"
    if account.manages_accounts and not account.is_super:
        yield "an administrator with permissions of its own no longer manages accounts"
    for entry in account.custom:
        if not _has_counterpart(entry):
            yield f"the permission for {entry.resource.name} is not imported: no topic or group has this name"
            continue
        added = _default_actions(account, entry) & ~entry.actions
        if added:
            yield f"the default permission also applies to {entry.resource}"
            return


def _default_actions(account: Account, entry: PolicyEntry) -> Action:
    """Return the actions that the default policy allows on the resource of an entry."""
    if not entry.is_allowed:
        return Action(0)
    allowed = Action(0)
    for default in account.default:
        if default.is_allowed and default.resource.kind is entry.resource.kind:
            allowed |= default.actions
    return allowed
