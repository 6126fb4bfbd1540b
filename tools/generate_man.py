"""Man page generator: writes orbitlog(1), a page for each command, and orbitlog.conf(5) from the code.

The pages are in src/man, from where the wheel installs them as share/man. `--check` reports pages that are out of date
instead of writing them. They have no date: the same sources give the same bytes.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click

import orbitlog
from orbitlog.broker.runtime.broker_settings import BROKER_SETTINGS
from orbitlog.cli.main import cli
from orbitlog.nameserver.nameserver_settings import NAMESERVER_SETTINGS
from orbitlog.settings.setting import Setting
from orbitlog.settings.store_settings import SETTINGS

ROOT = Path(__file__).resolve().parent.parent
MAN = ROOT / "src" / "man"
_CONTROL = re.compile(r"^([.'])", re.MULTILINE)


def escaped(text: str) -> str:
    """Return text as roff shows it: backslashes and hyphens as such, no line that is a request."""
    return _CONTROL.sub(r"\\&\1", text.replace("\\", "\\e").replace("-", "\\-"))


def paragraphs(text: str) -> Iterator[str]:
    """Yield the paragraphs of a help text; click keeps the lines of those after a backspace."""
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        lines = [line.strip() for line in paragraph.splitlines()]
        is_verbatim = lines[0] == "\b"
        lines = lines[1:] if is_verbatim else [" ".join(lines)]
        yield ".PP\n" + (".nf\n" if is_verbatim else "") + escaped("\n".join(lines)) + ("\n.fi" if is_verbatim else "")


def title(name: str, section: int, summary: str) -> str:
    head = f'.TH "{escaped(name.upper())}" "{section}" "" "orbitlog {orbitlog.__version__}" "Orbitlog"'
    return f'.\\" Written by make man; do not edit.\n{head}\n.SH NAME\n{escaped(name)} \\- {escaped(summary)}'


def options_of(command: click.Command, context: click.Context) -> Iterator[str]:
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and record[1]:  # arguments are in the synopsis
            yield f".TP\n.B {escaped(record[0])}\n{escaped(' '.join(record[1].split()))}"


def synopsis(name: str, command: click.Command, context: click.Context) -> str:
    return f".B {escaped(name)}\n{escaped(' '.join(command.collect_usage_pieces(context)))}"


def command_parts(name: str, command: click.Command) -> Iterator[str]:
    """Yield one command, and the commands below it, as subsections."""
    context = click.Context(command, info_name=name)
    yield f".SS {escaped(name)}\n{synopsis(name, command, context)}"
    yield from paragraphs(command.help or "")
    yield from options_of(command, context)
    yield from parts_below(name, command, context)


def parts_below(name: str, command: click.Command, context: click.Context) -> Iterator[str]:
    if isinstance(command, click.Group):
        for child_name in command.list_commands(context):
            child = command.get_command(context, child_name)
            if child is not None and not child.hidden:
                yield from command_parts(f"{name} {child_name}", child)


def summary_of(command: click.Command) -> str:
    return " ".join((command.help or "").partition("\n\n")[0].split()).rstrip(".")


def command_page(name: str, command: click.Command) -> str:
    context = click.Context(command, info_name=name)
    parts = [title(name.replace(" ", "-"), 1, summary_of(command)), ".SH SYNOPSIS", synopsis(name, command, context)]
    parts += [".SH DESCRIPTION", *paragraphs(command.help or ""), ".SH OPTIONS", *options_of(command, context)]
    below = list(parts_below(name, command, context))
    parts += [".SH COMMANDS", *below] if below else []
    return "\n".join([*parts, *ending(".BR orbitlog (1),\n.BR orbitlog.conf (5)")])


def main_page() -> str:
    context = click.Context(cli, info_name="orbitlog")
    rows = [f".TP\n.BR orbitlog\\-{escaped(name)} (1)\n{escaped(entry.help)}" for name, entry in cli.table.items()]
    parts = [title("orbitlog", 1, summary_of(cli)), ".SH SYNOPSIS", synopsis("orbitlog", cli, context)]
    parts += [".SH DESCRIPTION", *paragraphs(cli.help or ""), ".SH OPTIONS", *options_of(cli, context)]
    parts += [".SH COMMANDS", *rows, ".SH EXIT STATUS"]
    for status, meaning in ((0, "done"), (1, "a problem was found"), (2, "usage error"), (130, "interrupted")):
        parts.append(f".TP\n.B {status}\n{meaning}")
    return "\n".join([*parts, *ending(".BR orbitlog.conf (5)")])


def settings_page() -> str:
    what = "settings of brokers and name servers"
    parts = [title("orbitlog.conf", 5, what), ".SH DESCRIPTION"]
    parts += paragraphs(
        "A file of Java properties, one KEY=VALUE a line: Java's broker.conf and namesrv.conf. Commands take it with"
        " --config or -c, and single keys with --set KEY=VALUE."
    )
    groups: tuple[tuple[str, Iterable[Setting[Any]]], ...] = (
        ("STORE", SETTINGS.values()),
        ("BROKER", BROKER_SETTINGS.values()),
        ("NAME SERVER", NAMESERVER_SETTINGS.values()),
    )
    for heading, settings in groups:
        parts.append(f".SH {heading}")
        parts += [f".TP\n.B {escaped(setting.key)}\n{escaped(setting.help)}" for setting in settings]
    return "\n".join([*parts, *ending(".BR orbitlog (1)")])


def ending(references: str) -> list[str]:
    return [".SH SEE ALSO", references, ""]


def man_pages() -> dict[str, str]:
    """Return every page by its path below share/man."""
    context = click.Context(cli, info_name="orbitlog")
    found = {"man1/orbitlog.1": main_page(), "man5/orbitlog.conf.5": settings_page()}
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        found[f"man1/orbitlog-{name}.1"] = command_page(f"orbitlog {name}", command)
    return found


def main(arguments: list[str]) -> int:
    wanted = man_pages()
    stored = {path.relative_to(MAN).as_posix(): path.read_text() for path in MAN.glob("man?/*")}
    stale = sorted(name for name in wanted.keys() | stored.keys() if wanted.get(name) != stored.get(name))
    if "--check" in arguments:
        print("".join(f"man page out of date: {name}; run `make docs`\n" for name in stale), end="", file=sys.stderr)
        return 1 if stale else 0
    for name in stale:
        path = MAN / name
        if name in wanted:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(wanted[name])
        else:
            path.unlink()
    print(f"man: wrote {len(stale)} of {len(wanted)} pages")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
