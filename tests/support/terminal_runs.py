"""Runs commands on terminals: one process with all commands imported forks a child with a terminal for each.

    python -m tests.support.terminal_runs FILE

FILE has a JSON list of commands, each a list of words. Prints a JSON list: what the terminal of each was
sent, and whether the command ended by itself.
"""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click

from orbitlog.cli.main import cli, prepare_streams

SECONDS_MAX = 12.0
ENDLESS_SECONDS = 3.0
"""For commands that run until they are interrupted."""


def leaves(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield every command of the command line with the words that call it."""
    if not isinstance(command, click.Group):
        yield path, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from leaves(found, (*path, name))


def shown_on_terminal(words: list[str], seconds: float) -> tuple[str, bool]:
    """Run a command in a child; return what its terminal was sent, and whether it ended within the time limit."""
    process_id, terminal = pty.fork()
    if process_id == 0:
        _become(words)
    output, ends, has_ended = b"", time.monotonic() + seconds, False
    while (left := ends - time.monotonic()) > 0:
        if not select.select([terminal], [], [], left)[0]:
            break
        try:
            data = os.read(terminal, 65536)
        except OSError:  # Linux reports the end of a terminal as an error
            has_ended = True
            break
        output += data
    os.kill(process_id, signal.SIGKILL)
    os.waitpid(process_id, 0)
    os.close(terminal)
    return output.decode("utf-8", "backslashreplace").replace("\r\n", "\n"), has_ended


def _become(words: list[str]) -> None:
    """Run a command as `orbitlog` does; never returns."""
    code = 0
    try:
        sys.stdin = os.fdopen(0, "r", closefd=False)
        sys.stdout = os.fdopen(1, "w", closefd=False)
        sys.stderr = os.fdopen(2, "w", closefd=False, buffering=1)
        prepare_streams()
        cli.main(words, prog_name="orbitlog")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:  # noqa: BLE001 - as the interpreter prints it
        import traceback

        traceback.print_exc()
        code = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main(path: Path) -> None:
    list(leaves(cli))  # imports every command once
    runs = json.loads(path.read_text())
    json.dump([shown_on_terminal(run["words"], run["seconds"]) for run in runs], sys.stdout)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
