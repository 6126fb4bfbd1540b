"""`orbitlog mqadmin`: runs verbs of Apache's admin tool with its flags, for scripts that migrate.

Output is column for column that of Apache's tool, and so are exit codes: 1 for invalid flags, 0 otherwise, even if the
cluster refused; `--strict` exits with 1 then. A verb of Apache's tool that is not supported exits with 2.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING

import click

from orbitlog.cli.main import Problem, WrongUse
from orbitlog.cli.mqadmin.verb_flags import HELP, NAME_SERVER, BadFlags, FlagValues, parse_flags, usage
from orbitlog.cli.mqadmin.verb_record import Verb
from orbitlog.cli.mqadmin.verb_table import VERBS, find_verb
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
    help="""Run a verb of Apache's mqadmin with its flags; prints the same columns, for scripts that migrate.

    `orbitlog mqadmin` lists the verbs, `orbitlog mqadmin help VERB` the flags of one. As in Apache's tool, a verb that
    the cluster refuses prints the error on stderr and exits with 0; with --strict it exits with 1.""",
)
@click.option("--strict", is_flag=True, help="Exit with 1 if the cluster refuses.")
@click.option("--context", "context_name", metavar="NAME", help="Cluster by its name in `orbitlog context list`.")
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
        wanted = _verb_named(words[0])
        click.echo(usage(wanted.name, wanted.help, wanted.flags), nl=False)
        return
    chosen = _verb_named(verb)
    try:
        given = parse_flags(words, chosen.flags)
    except BadFlags as error:
        click.echo(str(error), err=True)
        click.echo(usage(chosen.name, chosen.help, chosen.flags), nl=False)
        context.exit(1)
    if HELP.short in given:
        click.echo(usage(chosen.name, chosen.help, chosen.flags), nl=False)
        return
    failure = _failure_of(chosen, given, context_name)
    if failure is not None:
        from orbitlog.cli.output.terminal import error_text

        click.echo(f"orbitlog: {chosen.name} failed: {error_text(failure)}", err=True)
        if strict:
            context.exit(1)


def _list_verbs() -> None:
    click.echo("Supported verbs of mqadmin:")
    for verb in VERBS.values():
        click.echo(f"   {verb.name:<24} {verb.help}")
    click.echo("\nSee `orbitlog mqadmin help VERB` for the flags of one.")


def _verb_named(name: str) -> Verb:
    """Return a verb; raise `WrongUse` with the nearest alternative if it is not supported."""
    verb = find_verb(name)
    if verb is not None:
        return verb
    from orbitlog.cli.mqadmin.unsupported_verbs import UNSUPPORTED

    reason = next((reason for unsupported, reason in UNSUPPORTED.items() if unsupported.lower() == name.lower()), None)
    if reason is not None:
        raise WrongUse(f"mqadmin {name} is not supported: {reason}")
    import difflib

    near = difflib.get_close_matches(name, VERBS, n=1)
    hint = f"did you mean {near[0]}?" if near else "list the verbs with `orbitlog mqadmin`"
    raise WrongUse(f"unknown verb {name} of mqadmin; {hint}")


def _failure_of(verb: Verb, given: FlagValues, context_name: str | None) -> str | None:
    """Run a verb; return its error with the code that Apache's tool prints, or None."""
    from orbitlog.cli.contexts import choose_cluster

    try:
        cluster = _with_java_options(choose_cluster(given.get(NAME_SERVER.short), context_name))
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


def _with_java_options(cluster: Cluster) -> Cluster:
    """Return the cluster with the TLS settings of `JAVA_OPT_EXT`, which scripts set for Apache's tool."""
    options = os.environ.get("JAVA_OPT_EXT", "")
    if "-Dtls." not in options or cluster.tls:
        return cluster
    from orbitlog.cli.mqadmin.java_tls import with_java_tls

    return with_java_tls(cluster, options)


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
