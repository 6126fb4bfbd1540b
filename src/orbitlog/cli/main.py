"""The `orbitlog` command: its table of commands, and what the user sees when something goes wrong.

Every mistake of the user and every problem in the data ends as one sentence on stderr. Exit 0 = done, 1 = a problem
was found, 2 = wrong use, 130 = interrupted. A reader that closes the pipe early has what it wanted: exit 0.
"""

from __future__ import annotations

import contextlib
import gc
import io
import os
import sys
from typing import Any

import click

from orbitlog.cli.lazy_group import LazyCommand, LazyGroup
from orbitlog.errors import OrbitlogError

INTERRUPTED = 130
_COLLECT_AFTER_OBJECTS = 50_000


class Problem(click.ClickException):
    """A problem that ends the command: one sentence, exit 1."""

    exit_code = 1

    def show(self, file: Any = None) -> None:
        click.echo(f"orbitlog: {self.format_message()}", file=file, err=True)


class WrongUse(Problem):
    """The command was called in a way that cannot work: one sentence, exit 2."""

    exit_code = 2


class OrbitlogGroup(LazyGroup):
    """The outermost group: it turns errors into sentences and exit codes."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.UsageError as error:
            raise _as_sentence(error) from error

    def invoke(self, ctx: click.Context) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except click.UsageError as error:
            raise _as_sentence(error) from error
        except OrbitlogError as error:
            raise Problem(str(error)) from error
        except BrokenPipeError:
            _forget_output()
            raise click.exceptions.Exit(0) from None
        except OSError as error:
            raise Problem(_describe(error)) from error
        except KeyboardInterrupt:
            raise click.exceptions.Exit(INTERRUPTED) from None
        return result


def _as_sentence(error: click.UsageError) -> click.ClickException:
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        return error
    sentence = error.format_message().strip().rstrip(".")
    if "`orbitlog " in sentence:
        return WrongUse(sentence)  # it already says what to do
    path = error.ctx.command_path if error.ctx is not None else "orbitlog"
    return WrongUse(f"{sentence}; see `{path} --help`")


def _describe(error: OSError) -> str:
    if error.filename is None:
        return str(error)
    return f"{error.filename}: {(error.strerror or str(error)).lower()}"


def _forget_output() -> None:
    """Leave nothing for the interpreter to flush into the closed pipe when it exits."""
    with contextlib.suppress(OSError, io.UnsupportedOperation):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    from importlib.metadata import PackageNotFoundError, version

    try:
        click.echo(f"orbitlog {version('orbitlog')}")
    except PackageNotFoundError:
        click.echo("orbitlog, run from its sources without being installed")
    ctx.exit()


COMMANDS = {
    "up": LazyCommand(
        "orbitlog.cli.serve.cmd_up",
        "Serve: a name server and a broker in one process, until interrupted.",
        is_server=True,
    ),
    "broker": LazyCommand(
        "orbitlog.cli.serve.cmd_broker", "Serve a store to clients, registered with name servers.", is_server=True
    ),
    "send": LazyCommand("orbitlog.cli.cluster.cmd_send", "Send messages to a topic of a running cluster."),
    "tail": LazyCommand("orbitlog.cli.cluster.cmd_tail", "Show the messages of TOPIC as they come, until interrupted."),
    "topic": LazyCommand(
        "orbitlog.cli.cluster.cmd_topic", "List, show, make, change and delete the topics of a running cluster."
    ),
    "group": LazyCommand(
        "orbitlog.cli.cluster.cmd_group",
        "List consumer groups of a running cluster, show how far they are, make and move them.",
    ),
    "offsets": LazyCommand(
        "orbitlog.cli.cluster.cmd_offsets", "Show how far consumer groups are in each queue, and move them."
    ),
    "message": LazyCommand(
        "orbitlog.cli.cluster.cmd_message",
        "Find messages of a running cluster: by id, by key; those that wait; one message's life. Send and watch.",
    ),
    "dlq": LazyCommand(
        "orbitlog.cli.cluster.cmd_dlq", "Look at dead letters of a running cluster, and send them again."
    ),
    "transactions": LazyCommand(
        "orbitlog.cli.cluster.cmd_transactions",
        "List transactions that are not ended, with their age and how often they were asked about.",
    ),
    "cluster": LazyCommand(
        "orbitlog.cli.cluster.cmd_cluster", "Show the brokers of a running cluster, and whether all is well with them."
    ),
    "config": LazyCommand(
        "orbitlog.cli.cluster.cmd_config", "Show and change the settings of running brokers; check a broker.conf."
    ),
    "context": LazyCommand(
        "orbitlog.cli.cmd_context", "Name clusters, keep their credentials, and choose the one that commands ask."
    ),
    "mqadmin": LazyCommand(
        "orbitlog.cli.mqadmin.cmd_mqadmin",
        "Apache's admin tool by its verbs and flags: the same columns, for scripts that move over.",
    ),
    "bench": LazyCommand("orbitlog.cli.cluster.cmd_bench", "Load a cluster with messages, and measure how fast it is."),
    "dump": LazyCommand("orbitlog.cli.dump.cmd_dump", "Look at the files of a store; needs no server."),
    "doctor": LazyCommand("orbitlog.cli.doctor.cmd_doctor", "Find out what is wrong with a store, and mend it."),
    "nameserver": LazyCommand(
        "orbitlog.cli.serve.cmd_nameserver", "Serve routes: brokers register, clients ask.", is_server=True
    ),
    "pipeline": LazyCommand("orbitlog.cli.pipeline.cmd_pipeline", "Jobs on Spark over whole stores."),
    "completion": LazyCommand(
        "orbitlog.cli.cmd_completion", "Print the completion script of a shell, to be put into its start file."
    ),
    "demo": LazyCommand("orbitlog.cli.tour.cmd_demo", "Show the whole system at work, in about a minute."),
}

cli = OrbitlogGroup(
    "orbitlog",
    table=COMMANDS,
    help="Apache RocketMQ's message system in Python: store, protocols and a pipeline on Spark.",
)
cli.params.append(
    click.Option(
        ["--version"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_print_version,
        help="Show the version and exit.",
    )
)


def main() -> None:
    """Run the command line; never returns."""
    # Imports make objects that stay: looking through them for garbage again and again is a tenth of the start-up.
    gc.set_threshold(_COLLECT_AFTER_OBJECTS)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Names and bodies come from files: whatever the terminal cannot show is escaped, never an error.
            stream.reconfigure(errors="backslashreplace")
    cli.main(prog_name="orbitlog")
