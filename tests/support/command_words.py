"""Command lines in files of deploy/: whether the commands and options in them exist."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

from orbitlog.broker.runtime.broker_settings import BROKER_SETTINGS
from orbitlog.cli.main import cli
from orbitlog.nameserver.nameserver_settings import NAMESERVER_SETTINGS
from orbitlog.settings.setting import Setting
from orbitlog.settings.store_settings import SETTINGS

_PREFIXES: Mapping[str, Mapping[str, Setting[object]]] = {
    "ORBITLOG_SET_": {**SETTINGS, **BROKER_SETTINGS},
    "ORBITLOG_NAMESRV_": NAMESERVER_SETTINGS,
}


def check_words(words: Sequence[str]) -> None:
    """Parse the words after `orbitlog`; raise a `click.UsageError` for an unknown command, option or argument."""
    command: click.Command | None = cli
    context = click.Context(cli)
    rest = list(words)
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        name = rest.pop(0)
        command = command.get_command(context, name)
        if command is None:
            raise click.UsageError(f"no command {name}")
        context = click.Context(command)
    assert command is not None
    left, *_ = command.make_parser(context).parse_args(args=rest)[1:2]
    if left and not isinstance(command, click.Group):
        raise click.UsageError(f"superfluous words {left}")


def check_setting(key: str, text: str, server: str = "broker") -> None:
    """Parse one setting of a server; raise a `ValueError` if the key is unknown or the text invalid for it."""
    tables = _PREFIXES["ORBITLOG_SET_" if server == "broker" else "ORBITLOG_NAMESRV_"]
    if key not in tables:
        raise ValueError(f"{server} has no setting {key}")
    tables[key].check(text, key)


def check_environment(environment: Mapping[str, str | None]) -> None:
    """Check the settings in environment variables; None: a value that is known at run time only."""
    for name, text in environment.items():
        for prefix, server in (("ORBITLOG_SET_", "broker"), ("ORBITLOG_NAMESRV_", "nameserver")):
            key = name.removeprefix(prefix)
            if key == name:
                continue
            if text is None:
                if key not in _PREFIXES[prefix]:
                    raise ValueError(f"{server} has no setting {key}")
            else:
                check_setting(key, text, server)
