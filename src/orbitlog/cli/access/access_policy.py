"""`orbitlog access policy`: lists, adds and removes policy entries of users."""

from __future__ import annotations

from pathlib import Path

import click

from orbitlog.access.access_file import load_access_file
from orbitlog.access.user_records import ALLOW, CUSTOM, DEFAULT, DENY_WORD, SUBJECT_PREFIX, entry_to_json
from orbitlog.access.user_table import UserTable
from orbitlog.cli.access.user_file_option import change_file, show_change, user_file, user_file_options
from orbitlog.cli.main import Problem
from orbitlog.cli.output.json_rows import Output, output_options
from orbitlog.cli.output.row_output import show_rows
from orbitlog.cli.output.stream_table import Column

_COLUMNS = (
    *(Column("subject"), Column("policyType"), Column("resource"), Column("actions"), Column("sourceIps")),
    Column("decision"),
)


@click.group("policy", help="List, add and remove policy entries of users.")
def command() -> None:
    """The group."""


@command.command("list", help="List policy entries, of one user or of all.")
@click.argument("name", required=False)
@user_file_options
@output_options
def list_policies(*, name: str | None, file: Path | None, store: Path | None, output: Output) -> None:
    rows = []
    for subject, acl in sorted(load_access_file(user_file(file, store)).acls.items()):
        if name is not None and subject != SUBJECT_PREFIX + name:
            continue
        for policy_type, entries in acl.policies():
            for entry in entries:
                shown = {"sourceIps": [], **entry_to_json(entry)}
                rows.append({"subject": subject, "policyType": policy_type, **shown})
    show_rows(_COLUMNS, rows, output)


_sources = click.option(
    "--from", "sources", multiple=True, metavar="ADDRESS", help="Only for this address or network; may be repeated."
)


def _add_command(word: str, decision: str, help_text: str) -> None:
    """Add the command that puts entries with one decision."""

    @command.command(word, help=help_text)
    @click.argument("name")
    @click.argument("resource")
    @click.argument("actions")
    @_sources
    @user_file_options
    @output_options
    def put(
        *,
        name: str,
        resource: str,
        actions: str,
        sources: tuple[str, ...],
        file: Path | None,
        store: Path | None,
        output: Output,
    ) -> None:
        entry = {"resource": resource, "actions": actions.split(","), "decision": decision, "sourceIps": list(sources)}
        policies = {"policies": [{"policyType": CUSTOM, "entries": [entry]}]}
        change_file(user_file(file, store), lambda table: table.put_acl(SUBJECT_PREFIX + name, policies))
        sentence = f"{decision} {actions} on {resource} is a policy of user {name}"
        show_change(output, sentence, username=name, resource=resource)


_add_command("allow", ALLOW, "Allow ACTIONS, such as Pub,Sub, on RESOURCE, such as Topic:Orders or Group:*.")
_add_command("deny", DENY_WORD, "Deny ACTIONS, such as All, on RESOURCE.")


@command.command("remove", help="Remove the entries of RESOURCE, or without it all policies of a user.")
@click.argument("name")
@click.argument("resource", required=False)
@user_file_options
@output_options
def remove(*, name: str, resource: str | None, file: Path | None, store: Path | None, output: Output) -> None:
    change_file(user_file(file, store), lambda table: _remove(table, name, resource))
    sentence = f"policies of user {name} are removed" if resource is None else f"{resource}: entry of {name} removed"
    show_change(output, sentence, username=name, resource=resource)


def _remove(table: UserTable, name: str, resource: str | None) -> None:
    """Remove the entries of a resource, or all; raise `Problem` without any."""
    subject = SUBJECT_PREFIX + name
    before = table.find_acl(subject)
    if resource is None:
        table.delete_acl(subject, None, None)
        return
    for policy_type in (CUSTOM, DEFAULT):
        if table.find_acl(subject) is not None:
            table.delete_acl(subject, policy_type, resource)
    if table.find_acl(subject) == before:
        raise Problem(f"user {name} has no policy entry of {resource}; `orbitlog access policy list {name}` lists them")
