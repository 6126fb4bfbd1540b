"""`orbitlog mqadmin`: Apache's admin tool by its verbs and flags, for scripts that move over.

It prints what Apache's prints, to the column, and ends as it does: 1 where the flags make no sense, 0 otherwise, also
where the cluster refused; `--strict` ends such a command with 1. What Apache's tool has and this does not ends with 2.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import click

from orbitlog.cli.main import Problem, WrongUse
from orbitlog.cli.mqadmin.verb_flags import HELP, NAME_SERVER, BadFlags, FlagValues, parse_flags, usage
from orbitlog.cli.mqadmin.verb_table import VERBS, Verb, find_verb
from orbitlog.errors import BrokerRefused, OrbitlogError

if TYPE_CHECKING:
    from orbitlog.cli.contexts import Cluster
    from orbitlog.client.admin.administration import Administration
    from orbitlog.client.rocketmq import RocketMQ


def _complete_verbs(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in VERBS if name.startswith(incomplete)]


@click.command(
    "mqadmin",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    help="""Apache's admin tool by its verbs and flags: the same columns, for scripts that move over.

    `orbitlog mqadmin` lists the verbs, `orbitlog mqadmin help VERB` the flags of one. As with Apache's tool, a verb
    that the cluster refuses says so on the standard error output and ends with 0; with --strict it ends with 1.""",
)
@click.option("--strict", is_flag=True, help="End with 1 where the cluster refuses.")
@click.option("--context", "context_name", metavar="NAME", help="A cluster by its name in `orbitlog context list`.")
@click.argument("verb", required=False, shell_complete=_complete_verbs)
@click.argument("words", metavar="[FLAGS]...", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def command(
    context: click.Context, *, strict: bool, context_name: str | None, verb: str | None, words: tuple[str, ...]
) -> None:
    if verb is None:
        _list_verbs()
        return
    if verb == "help" and len(words) == 1:
        asked = _known(words[0])
        click.echo(usage(asked.name, asked.help, asked.flags), nl=False)
        return
    found = _known(verb)
    try:
        given = parse_flags(words, found.flags)
    except BadFlags as error:
        click.echo(str(error), err=True)
        click.echo(usage(found.name, found.help, found.flags), nl=False)
        context.exit(1)
    if HELP.short in given:
        click.echo(usage(found.name, found.help, found.flags), nl=False)
        return
    complaint = _complaint_of(found, given, context_name)
    if complaint is not None:
        click.echo(f"orbitlog: {found.name} failed: {complaint}", err=True)
        if strict:
            context.exit(1)


def _list_verbs() -> None:
    click.echo("The verbs of mqadmin that there are here:")
    for verb in VERBS.values():
        click.echo(f"   {verb.name:<24} {verb.help}")
    click.echo("\nSee `orbitlog mqadmin help VERB` for the flags of one.")


def _known(name: str) -> Verb:
    found = find_verb(name)
    if found is not None:
        return found
    from orbitlog.cli.mqadmin.unsupported_verbs import NOT_OFFERED

    reason = next((reason for known, reason in NOT_OFFERED.items() if known.lower() == name.lower()), None)
    if reason is not None:
        raise WrongUse(f"mqadmin {name} is not offered here: {reason}")
    import difflib

    near = difflib.get_close_matches(name, VERBS, n=1)
    hint = f"did you mean {near[0]}?" if near else "`orbitlog mqadmin` lists those that there are"
    raise WrongUse(f"mqadmin has no verb {name}; {hint}")


def _complaint_of(verb: Verb, given: FlagValues, context_name: str | None) -> str | None:
    """Run a verb; return what went wrong with it, under the code that Apache's tool would name."""
    from orbitlog.cli.contexts import choose_cluster

    cluster = choose_cluster(given.get(NAME_SERVER.short), context_name)
    try:
        _run(verb, given, cluster)
    except BrokerRefused as error:
        return f"CODE: {error.code}  DESC: {error.remark.splitlines()[0] if error.remark else 'refused'}"
    except Problem as error:
        cause = error.__cause__
        if isinstance(cause, BrokerRefused):
            return f"CODE: {cause.code}  DESC: {cause.remark}"
        return error.format_message()
    except (OrbitlogError, ValueError) as error:
        return str(error)
    return None


def _run(verb: Verb, given: FlagValues, cluster: Cluster) -> None:
    from orbitlog.cli.cluster_connection import run_with_admin, run_with_client
    from orbitlog.cli.light_asyncio import load_asyncio

    load_asyncio()
    module, _, name = verb.function.partition(":")
    work = getattr(importlib.import_module(module), name)

    async def with_client(mq: RocketMQ) -> None:
        from orbitlog.cli.mqadmin.verb_session import VerbSession

        await work(VerbSession(mq.admin, mq), given)

    async def with_admin(admin: Administration) -> None:
        from orbitlog.cli.mqadmin.verb_session import VerbSession

        await work(VerbSession(admin), given)

    if verb.is_client:
        run_with_client(cluster, with_client)
    else:
        run_with_admin(cluster, with_admin)
