"""`orbitlog access check`: explains whether an account may send a request, and which policy entry decides."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from orbitlog.access.access_decision import Decision
from orbitlog.access.access_file import load_access_file
from orbitlog.access.access_model import Action, BadPolicy, Need, ResourceKind, action_names
from orbitlog.access.plain_account_files import load_plain_accounts
from orbitlog.access.request_guard import AccessPolicy, RequestGuard
from orbitlog.access.request_needs import ROWS, RequestParts, group_need, needs_of, topic_need
from orbitlog.access.source_addresses import source_ip, white_address
from orbitlog.access.user_records import parse_actions
from orbitlog.cli.access.user_file_option import user_file, user_file_options
from orbitlog.cli.main import WrongUse
from orbitlog.cli.output.json_rows import Output, output_options
from orbitlog.cli.output.row_output import show_rows
from orbitlog.cli.output.stream_table import Column
from orbitlog.errors import OrbitlogError
from orbitlog.wire.codes import RequestCode

_COLUMNS = (
    *(Column("account"), Column("resource"), Column("actions"), Column("address"), Column("decision")),
    Column("reason"),
)


@click.command(
    "check",
    help="""Explain whether ACCOUNT may do one of ACTIONS, such as Pub, on RESOURCE, such as Topic:Orders.

    With --request instead of RESOURCE and ACTIONS: whether it may send a request, and everything that it needs.
    Exits with 0 if it may, with 1 if not. Uses the rules of the broker: a retry topic stands for its group, and
    internal topics are for super users. --home reads accounts and white addresses of 4.x instead of users.""",
)
@click.argument("account")
@click.argument("resource", required=False)
@click.argument("actions", required=False)
@click.option("--request", "request", metavar="CODE", help="Code or name of a request, such as 310 or PULL_MESSAGE.")
@click.option("--field", "fields", multiple=True, metavar="NAME=TEXT", help="Header field of --request; repeatable.")
@click.option("--from", "address", default="127.0.0.1", show_default=True, help="Address of the client.")
@click.option("--cluster", default="DefaultCluster", show_default=True, help="Cluster of the server.")
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
    resource: str | None,
    actions: str | None,
    request: str | None,
    fields: tuple[str, ...],
    address: str,
    cluster: str,
    home: Path | None,
    file: Path | None,
    store: Path | None,
    output: Output,
) -> None:
    if home is not None and (file is not None or store is not None):
        raise WrongUse("give one of --home, --file and --store")
    _check_address(address)
    if request is not None:
        if resource is not None:
            raise WrongUse("give either RESOURCE and ACTIONS, or --request")
        needs: Sequence[Need] = _needs_of_request(request, fields, cluster)
    elif resource is None or actions is None or fields:
        raise WrongUse("give RESOURCE and ACTIONS, or --request with its --field")
    else:
        needs = (_need(resource, actions, cluster),)
    policy = _policy_of(home) if home is not None else AccessPolicy(load_access_file(user_file(file, store)).accounts())
    decisions = RequestGuard(policy, cluster=cluster).explain(account, needs, address)
    rows = [_row(account, address, decision, needs) for decision in decisions]
    if output.is_table:
        for row in rows:
            click.echo(f"{row['decision']}: {row['reason']}")
    else:
        show_rows(_COLUMNS, rows, output)
    if not all(decision.is_allowed for decision in decisions):
        context.exit(1)


def _policy_of(home: Path) -> AccessPolicy:
    plain = load_plain_accounts(home)
    white = tuple(white_address(text) for text in plain.global_white_addresses if text.strip())
    return AccessPolicy(plain.accounts, white, is_plain=True)


def _row(account: str, address: str, decision: Decision, needs: Sequence[Need]) -> dict[str, object]:
    """Return the row of a decision; one without a need is about all of them."""
    shown = needs if decision.need is None else (decision.need,)
    return {
        "account": account,
        "resource": ", ".join(map(str, shown)),
        "actions": ", ".join(dict.fromkeys(",".join(action_names(need.actions)) for need in shown)),
        "address": address,
        "decision": "allowed" if decision.is_allowed else "refused",
        "reason": decision.reason,
    }


def _check_address(address: str) -> None:
    """Raise `WrongUse` unless the text is one address."""
    try:
        source_ip(address)
    except OrbitlogError as error:
        raise WrongUse(f"--from: {error}") from error
    if "/" in address:
        raise WrongUse(f"--from: {address} is a network; give the address of a client")


def _needs_of_request(text: str, fields: Sequence[str], cluster: str) -> tuple[Need, ...]:
    """Return the needs of a request; raise `WrongUse` if they do not follow from its fields alone."""
    code = int(text) if text.isdecimal() else getattr(RequestCode, text.upper().replace("-", "_"), None)
    if code is None:
        raise WrongUse(f"{text!r} is neither a number nor the name of a request, such as PULL_MESSAGE")
    pairs = [field.partition("=") for field in fields]
    if bad := next((field for field, (_, sign, _) in zip(fields, pairs, strict=True) if not sign), None):
        raise WrongUse(f"--field {bad!r} is not NAME=TEXT")
    row = ROWS.get(code)
    if row is not None and (row.body is not None or row.message is not None):
        found = "the topics and groups in its body" if row.body is not None else "the topic of a stored message"
        raise WrongUse(f"request {text} needs permissions on {found}; give them as RESOURCE and ACTIONS")
    given = {name: value for name, _, value in pairs}
    missing = [item.field for item in (row.fields if row else ()) if not item.is_optional and not given.get(item.field)]
    if missing:
        raise WrongUse(f"request {text} names what it needs in {', '.join(missing)}; give --field {missing[0]}=...")
    return needs_of(RequestParts(code, given, b""), cluster, lambda _: None)


def _need(resource: str, actions: str, cluster: str) -> Need:
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
        return topic_need(name, wanted, cluster)
    return (
        group_need(name, wanted)
        if kinds[kind.lower()] is ResourceKind.GROUP
        else Need(kinds[kind.lower()], name, wanted)
    )
