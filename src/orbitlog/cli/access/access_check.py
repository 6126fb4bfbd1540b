"""`orbitlog access check`: explains whether an account may do something, and which policy entry decides."""

from __future__ import annotations

from pathlib import Path

import click

from orbitlog.access.access_decision import decide
from orbitlog.access.access_file import load_access_file
from orbitlog.access.access_model import Action, BadPolicy, Need, ResourceKind
from orbitlog.access.plain_account_files import load_plain_accounts
from orbitlog.access.request_needs import group_need, topic_need
from orbitlog.access.user_records import parse_actions
from orbitlog.cli.access.user_file_option import user_file, user_file_options
from orbitlog.cli.main import WrongUse
from orbitlog.cli.output.json_rows import Output, output_options
from orbitlog.cli.output.row_output import show_rows
from orbitlog.cli.output.stream_table import Column

_COLUMNS = (
    *(Column("account"), Column("resource"), Column("actions"), Column("address"), Column("decision")),
    Column("reason"),
)


@click.command(
    "check",
    help="""Explain whether ACCOUNT may do one of ACTIONS, such as Pub, on RESOURCE, such as Topic:Orders.

    Exits with 0 if it may, with 1 if not. Uses the rules of the broker: a retry topic stands for its group, and
    internal topics are for super users. --home reads accounts of 4.x instead of users.""",
)
@click.argument("account")
@click.argument("resource")
@click.argument("actions")
@click.option("--from", "address", default="127.0.0.1", show_default=True, help="Address of the client.")
@click.option(
    "--home",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Directory with conf/plain_acl.yml (rocketmqHome).",
)
@user_file_options
@output_options
@click.pass_context
def command(
    context: click.Context,
    *,
    account: str,
    resource: str,
    actions: str,
    address: str,
    home: Path | None,
    file: Path | None,
    store: Path | None,
    output: Output,
) -> None:
    if home is not None and (file is not None or store is not None):
        raise WrongUse("give one of --home, --file and --store")
    if home is not None:
        found = load_plain_accounts(home).accounts.get(account)
    else:
        found = load_access_file(user_file(file, store)).account(account)
    need = _need(resource, actions)
    decision = None if found is None else decide(found, (need,), address)
    is_allowed = decision is not None and decision.is_allowed
    row = {
        "account": account,
        "resource": resource,
        "actions": actions,
        "address": address,
        "decision": "allowed" if is_allowed else "refused",
        "reason": f"User:{account} is not found." if decision is None else decision.reason,
    }
    if output.is_table:
        click.echo(f"{row['decision']}: {row['reason']}")
    else:
        show_rows(_COLUMNS, [row], output)
    if not is_allowed:
        context.exit(1)


def _need(resource: str, actions: str) -> Need:
    """Return the need that the words stand for; raise `WrongUse` if they are invalid."""
    kind, separator, name = resource.partition(":")
    kinds = {word.value.lower(): word for word in ResourceKind if word is not ResourceKind.ANY}
    if not separator or kind.lower() not in kinds or not name or "*" in name:
        raise WrongUse(f"{resource!r} is not a resource such as Topic:Orders, Group:billing or Cluster:DefaultCluster")
    try:
        wanted: Action = parse_actions(actions.split(","))
    except BadPolicy as error:
        raise WrongUse(str(error).rstrip(".")) from error
    if kinds[kind.lower()] is ResourceKind.TOPIC:
        return topic_need(name, wanted, "DefaultCluster")
    return (
        group_need(name, wanted)
        if kinds[kind.lower()] is ResourceKind.GROUP
        else Need(kinds[kind.lower()], name, wanted)
    )
