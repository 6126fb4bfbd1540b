"""`orbitlog dump checkpoint`: prints the positions up to which log, queues and index were flushed."""

from __future__ import annotations

from pathlib import Path

import click

from orbitlog.cli.dump import dump_options as options
from orbitlog.cli.dump.dump_target import checkpoint_target
from orbitlog.cli.output.display_text import local_time, zone_name
from orbitlog.cli.output.json_rows import Output, output_options
from orbitlog.cli.store_options import report_damage, warn
from orbitlog.errors import FormatError
from orbitlog.formats.derived.checkpoint import CHECKPOINT, CHECKPOINT_BYTES, Checkpoint, decode_checkpoint
from orbitlog.storefiles.mapped_view import mapped_view

_JSON_NAMES = {
    "physicMsgTimestamp": "physic_msg_timestamp_ms",
    "logicsMsgTimestamp": "logics_msg_timestamp_ms",
    "indexMsgTimestamp": "index_msg_timestamp_ms",
    "masterFlushedOffset": "master_flushed_physical_offset",
    "confirmPhyOffset": "confirm_physical_offset",
    "logicsPhysicalOffset": "logics_physical_offset",
}
assert list(_JSON_NAMES.values()) == [field.name for field in CHECKPOINT.fields]


@click.command("checkpoint", help="Show a checkpoint. PATH: a store or its checkpoint file.")
@options.path_argument
@output_options
def command(path: Path, output: Output) -> None:
    output.check(list(_JSON_NAMES))
    file = checkpoint_target(path)
    if file is None:
        warn(f"{path} has no checkpoint; a broker scans the whole log at start")
        return
    with mapped_view(file) as view:
        size_bytes = len(view)
        try:
            checkpoint = decode_checkpoint(view)
        except FormatError as error:
            report_damage([f"{file}: {error}"])
            return
    values: dict[str, int] = {name: getattr(checkpoint, field) for name, field in _JSON_NAMES.items()}
    if output.is_table:
        _write_lines(values, checkpoint)
    else:
        output.write(list(_JSON_NAMES), values)
    if size_bytes != CHECKPOINT_BYTES:
        report_damage([f"{file}: the file has {size_bytes} bytes, a checkpoint has {CHECKPOINT_BYTES}"])


def _write_lines(values: dict[str, int], checkpoint: Checkpoint) -> None:
    meanings = {field.name: field.meaning for field in CHECKPOINT.fields}
    for name, value in values.items():
        shown = f"{local_time(value)} {zone_name()}" if name.endswith("Timestamp") and value else str(value)
        click.echo(f"{name:<21} {shown:<28} {meanings[_JSON_NAMES[name]]}".rstrip())
    since = checkpoint.min_timestamp_ms
    start = f"messages stored after {local_time(since)} {zone_name()}" if since else "the whole log"
    click.echo(f"After a crash a broker scans {start}.")
