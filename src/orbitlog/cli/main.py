"""The `orbitlog` command: its table of commands, and its error messages and exit codes.

Every usage error and every problem in the data is one sentence on stderr. Exit 0 = done, 1 = a problem was found,
2 = usage error, 130 = interrupted. A reader that closes the pipe early has read enough: exit 0.
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
    """A problem that ends the command with one sentence and exit 1."""

    exit_code = 1

    def show(self, file: Any = None) -> None:
        sentence = self.format_message()
        if sys.stderr.isatty():
            from orbitlog.cli.output.terminal import error_text  # as in `prepare_streams`

            sentence = error_text(sentence)
        click.echo(f"orbitlog: {sentence}", file=file, err=True)


class WrongUse(Problem):
    """A usage error, which ends the command with one sentence and exit 2."""

    exit_code = 2


class OrbitlogGroup(LazyGroup):
    """The outermost group, which turns errors into sentences and exit codes."""

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
        except ModuleNotFoundError as error:
            raise _as_advice(error, ctx.invoked_subcommand) from error
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
    path = error.ctx.command_path if error.ctx is not None else "orbitlog"
    return WrongUse(f"{sentence}; see `{path} --help`")


def _as_advice(error: ModuleNotFoundError, command: str | None) -> Exception:
    """Return the problem that names the missing extra; the error itself if it is a defect."""
    from orbitlog.cli.missing_extras import describe_missing

    advice = describe_missing(error, command)
    return Problem(advice) if advice is not None else error


def _describe(error: OSError) -> str:
    if error.filename is None:
        return str(error)
    return f"{error.filename}: {(error.strerror or str(error)).lower()}"


def _forget_output() -> None:
    """Redirect stdout to /dev/null: flushing it into the closed pipe at exit would fail."""
    with contextlib.suppress(OSError, io.UnsupportedOperation):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    from importlib.metadata import PackageNotFoundError, version

    try:
        click.echo(f"orbitlog {version('orbitlog')}")
    except PackageNotFoundError:
        click.echo("orbitlog, run from source without being installed")
    ctx.exit()


COMMANDS = {
    "up": LazyCommand(
        "orbitlog.cli.serve.cmd_up",
        "Run a name server and a broker in one process until interrupted.",
        is_server=True,
    ),
    "broker": LazyCommand(
        "orbitlog.cli.serve.cmd_broker",
        "Run a broker: serve a store to clients and register with name servers.",
        is_server=True,
    ),
    "mirror": LazyCommand(
        "orbitlog.cli.serve.cmd_mirror",
        "Follow a broker of a running cluster, Apache's or Orbitlog's; serve the copy, and take over on command.",
        is_server=True,
    ),
    "send": LazyCommand("orbitlog.cli.cluster.cmd_send", "Send messages to a topic of a running cluster."),
    "tail": LazyCommand(
        "orbitlog.cli.cluster.cmd_tail", "Print the messages of TOPIC as they arrive, until interrupted."
    ),
    "topic": LazyCommand(
        "orbitlog.cli.cluster.cmd_topic", "List, show, create, change and delete topics of a running cluster."
    ),
    "group": LazyCommand(
        "orbitlog.cli.cluster.cmd_group",
        "List, show, create, change and delete consumer groups of a running cluster; reset their offsets.",
    ),
    "offsets": LazyCommand(
        "orbitlog.cli.cluster.cmd_offsets", "Show the offsets and lag of consumer groups by queue, and reset offsets."
    ),
    "message": LazyCommand(
        "orbitlog.cli.cluster.cmd_message",
        "Find messages of a running cluster by id or key; list and cancel delayed ones; show traces; send and tail.",
    ),
    "dlq": LazyCommand("orbitlog.cli.cluster.cmd_dlq", "List, show and replay dead letters of a running cluster."),
    "transactions": LazyCommand(
        "orbitlog.cli.cluster.cmd_transactions",
        "List pending transactions with their age and number of checks.",
    ),
    "cluster": LazyCommand(
        "orbitlog.cli.cluster.cmd_cluster", "List the brokers of a running cluster and check their health."
    ),
    "replica": LazyCommand(
        "orbitlog.cli.cluster.cmd_replica",
        "Show replica groups with automatic failover, hand a group over, and force an election.",
    ),
    "config": LazyCommand(
        "orbitlog.cli.cluster.cmd_config", "Show and change settings of running brokers; check a broker.conf."
    ),
    "context": LazyCommand(
        "orbitlog.cli.cmd_context", "Name clusters, store their credentials, and choose the default cluster."
    ),
    "access": LazyCommand(
        "orbitlog.cli.access.cmd_access", "Manage users and policies of access control, and explain decisions."
    ),
    "mqadmin": LazyCommand(
        "orbitlog.cli.mqadmin.cmd_mqadmin",
        "Run a verb of Apache's mqadmin with its flags; prints the same columns, for scripts that migrate.",
    ),
    "top": LazyCommand(
        "orbitlog.cli.cluster.cmd_top", "Show rates, lag, memory and slow requests of a cluster, refreshed each second."
    ),
    "exporter": LazyCommand(
        "orbitlog.cli.cluster.cmd_exporter",
        "Serve metrics of a running cluster under the names of rocketmq-exporter.",
    ),
    "bench": LazyCommand("orbitlog.cli.cluster.cmd_bench", "Measure the throughput and latency of a cluster."),
    "dump": LazyCommand("orbitlog.cli.dump.cmd_dump", "Print the files of a store; needs no server."),
    "doctor": LazyCommand("orbitlog.cli.doctor.cmd_doctor", "Check, explain and repair a store."),
    "nameserver": LazyCommand(
        "orbitlog.cli.serve.cmd_nameserver",
        "Run a name server: brokers register routes, clients look them up.",
        is_server=True,
    ),
    "console": LazyCommand(
        "orbitlog.cli.serve.cmd_console",
        "Serve the web console until interrupted: clusters, and stores without a broker.",
    ),
    "probe": LazyCommand("orbitlog.cli.cmd_probe", "Check whether a server is alive or ready, for containers."),
    "pipeline": LazyCommand("orbitlog.cli.pipeline.cmd_pipeline", "Run Spark jobs over whole stores."),
    "completion": LazyCommand(
        "orbitlog.cli.cmd_completion", "Print the completion script of a shell, for its startup file."
    ),
    "demo": LazyCommand("orbitlog.cli.tour.cmd_demo", "Demonstrate the whole system in about a minute."),
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
    # Objects from imports live until exit: collecting garbage among them takes a tenth of the start-up time.
    gc.set_threshold(_COLLECT_AFTER_OBJECTS)
    prepare_streams()
    cli.main(prog_name="orbitlog")


def prepare_streams() -> None:
    """Make stdout and stderr safe for text from outside."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Names and bodies come from files: characters that the terminal cannot encode are escaped instead of an
            # error.
            stream.reconfigure(errors="backslashreplace")
    if sys.stdout.isatty() or sys.stderr.isatty():
        from orbitlog.cli.output.terminal import protect_terminal  # scripts, which have no terminal, start without it

        protect_terminal()
