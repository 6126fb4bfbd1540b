"""`orbitlog dump config`: prints the broker's tables in config/: topics, groups, offsets and others.

Of a file and its backup, the one that a broker would load is printed; if that is the backup, stderr reports it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click

from orbitlog.cli.dump import dump_options as options
from orbitlog.cli.dump.config_file_tables import write_config
from orbitlog.cli.dump.dump_target import config_target
from orbitlog.cli.output.json_rows import Output, output_options
from orbitlog.cli.store_options import report_damage, warn
from orbitlog.errors import FormatError, StoreLinkError
from orbitlog.formats.derived.timer_checkpoint import TIMER_CHECKPOINT_FILE
from orbitlog.formats.java import utf8_decode, utf8_encode
from orbitlog.formats.store_tree import BACKUP_SUFFIX
from orbitlog.formats.tables.config_files import CONFIG_CODECS, ConfigSource, ConfigValue, choose_config, config_codec
from orbitlog.formats.tables.loose_json import Json, read_json
from orbitlog.storefiles.config_reading import stored_table
from orbitlog.storefiles.confined.regular_files import read_regular_or_none

_FIELDS = ("file", "usedBackup", "content")
_UNREAD_SUFFIXES = (".tmp", ".lock")


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A loaded file; `value` is its typed form if it is a table of a broker."""

    name: str
    content: Json
    value: ConfigValue | None
    used_backup: bool = False


@click.command("config", help="Show the broker's tables. PATH: a store, its config directory, or one file.")
@options.path_argument
@output_options
def command(path: Path, output: Output) -> None:
    problems: list[str] = []
    with output.writer(_FIELDS) as writer:
        for main, backup in config_target(path):
            try:
                # A link that was given itself is the operator's; one that was found in the store is not followed.
                loaded = _load(main.resolve() if main == path else main, backup, name=main.name)
            except (FormatError, StoreLinkError) as error:
                problems.append(f"{main}: {error}")
                continue
            if loaded is None:
                continue
            if loaded.used_backup:
                warn(f"{main} is missing, empty or damaged; its backup {main.name}{BACKUP_SUFFIX} is shown")
            if output.is_table:
                write_config(loaded.name, loaded.content, loaded.value, writer)
            else:
                shown = dict(zip(_FIELDS, (loaded.name, loaded.used_backup, loaded.content), strict=True))
                writer.line(json.dumps(shown, separators=(",", ":")))
    report_damage(problems)


def _load(main: Path, backup: Path | None, *, name: str) -> _Loaded | None:
    """Load a file or its backup; return None if both are empty, or the file is not a table."""
    main_bytes = stored_table(main) or read_regular_or_none(main)
    backup_bytes = read_regular_or_none(backup) if backup is not None else None
    is_known = name.removesuffix(BACKUP_SUFFIX) in CONFIG_CODECS
    if name == TIMER_CHECKPOINT_FILE:
        data, used_backup = main_bytes or backup_bytes, not main_bytes
    elif not is_known and name.endswith(_UNREAD_SUFFIXES):
        return None
    else:
        # Known files are parsed by their codec: a broker loads the backup also for valid JSON of another shape.
        chosen = choose_config(main_bytes, backup_bytes, partial(_read_table, name) if is_known else read_json)
        used_backup = chosen is not None and chosen.source is ConfigSource.BACKUP
        data = backup_bytes if used_backup else main_bytes
    if not data:
        return None
    if not is_known:
        return _Loaded(name, read_json(utf8_decode(data)), None, used_backup)
    codec = config_codec(name)
    return _Loaded(name, codec.to_json(data), codec.decode(data), used_backup)


def _read_table(name: str, text: str) -> Json:
    return config_codec(name).to_json(utf8_encode(text))
