"""`orbitlog demo`: write a small store, look at it, and derive its queues and index again from the log alone."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import click

from orbitlog.cli.cmd_dump import command as dump
from orbitlog.cli.demo_messages import demo_messages
from orbitlog.cli.line_writer import LineWriter
from orbitlog.cli.show import byte_count
from orbitlog.cli.stream_table import Column, StreamTable, shows_colour
from orbitlog.errors import StoreLayoutError
from orbitlog.formats import store_tree as tree
from orbitlog.formats.derive import DeriveRules
from orbitlog.formats.index_layout import IndexLayout
from orbitlog.formats.names import SCHEDULE_TOPIC
from orbitlog.store.log_walk import LogWalk
from orbitlog.store.mapped_view import mapped_view
from orbitlog.store.offline_writer import OfflineStoreWriter
from orbitlog.store.store_files import StoreFiles, find_store_files
from orbitlog.store.store_settings import StoreGeometry

GEOMETRY = StoreGeometry(segment_bytes=64 * 1024, queue_file_bytes=100 * 20, index_layout=IndexLayout(500, 1000))
RULES = DeriveRules()
_ROWS_SHOWN = 4
_STORED_BEFORE_MS = 60_000  # the last message must not lie in the future


@dataclass(frozen=True, slots=True)
class _Figures:
    """What was written, and what deriving it again gave."""

    messages: int
    stored_bytes: int
    segments: int
    queues: int
    queue_files: int
    index_files: int
    different_files: tuple[str, ...]

    @property
    def derived_files(self) -> int:
        return self.queue_files + self.index_files


@click.command("demo", help="Write a small store, show what is in it, and derive queues and index from its log again.")
@click.option(
    "--store", "root", type=click.Path(file_okay=False, path_type=Path), help="A new or empty directory [temporary]."
)
@click.option("--json", "as_json", is_flag=True, help="Only one JSON object with the figures.")
def command(*, root: Path | None, as_json: bool) -> None:
    started_s = time.perf_counter()
    root = root or Path(tempfile.mkdtemp(prefix="orbitlog-demo-"), "store")
    _write(root)
    if not as_json:
        _show(root)
    figures = _compare(find_store_files(root))
    seconds = time.perf_counter() - started_s
    if as_json:
        click.echo(json.dumps(_as_object(root, figures, seconds), separators=(",", ":")))
    else:
        _write_summary(root, figures, seconds)
    if figures.different_files:
        click.get_current_context().exit(1)


def _write(root: Path) -> None:
    try:
        writer = OfflineStoreWriter(root, GEOMETRY, RULES)
    except StoreLayoutError as error:
        raise click.UsageError(str(error)) from error
    with writer:
        for message in demo_messages(int(time.time() * 1000) - _STORED_BEFORE_MS):
            writer.append(message)


def _show(root: Path) -> None:
    """Run the dump commands as a user would."""
    rows = ["--limit", str(_ROWS_SHOWN)]
    for kind, more in (
        ("commitlog", rows),
        ("consumequeue", ["--topic", SCHEDULE_TOPIC, *rows]),
        ("index", rows),
        ("checkpoint", []),
        ("config", []),
    ):
        arguments = [kind, str(root), *more]
        heading = f"$ orbitlog dump {' '.join(arguments)}"
        click.echo(click.style(heading, bold=True) if shows_colour() else heading)
        with dump.make_context("dump", arguments, parent=click.get_current_context().parent) as context:
            dump.invoke(context)
        click.echo()


def _compare(store: StoreFiles) -> _Figures:
    """Read the log back and derive everything again: plain Python wrote the files, the kernels check them."""
    # Loading numba takes a moment that no other command should pay.
    from orbitlog.kernels.derivation import Derivation

    walk = LogWalk(store.segments, GEOMETRY.segment_bytes)
    sizes = [size_bytes for _, size_bytes in walk.records()]
    assert not walk.damage, walk.damage
    derived = Derivation(RULES, queue_file_bytes=GEOMETRY.queue_file_bytes, index_layout=GEOMETRY.index_layout)
    for segment in store.segments:
        with mapped_view(segment.path) as view:
            derived.add(bytes(view), segment.base)
    assert derived.message_count == len(sizes)
    expected = {
        store.root / tree.queue_directory(topic, queue_id) / tree.offset_file_name(base): bytes(content)
        for (topic, queue_id), files in derived.queues.items()
        for base, content in files.items()
    }
    index_files = zip(store.index_files, derived.index_files, strict=True)
    expected |= {file.path: bytes(content) for file, content in index_files}
    queue_files = [file.path for files in store.queues.values() for file in files]
    assert len(expected) == len(queue_files) + len(store.index_files)
    return _Figures(
        messages=len(sizes),
        stored_bytes=sum(sizes),
        segments=len(store.segments),
        queues=len(store.queues),
        queue_files=len(queue_files),
        index_files=len(store.index_files),
        different_files=tuple(str(path) for path, content in expected.items() if path.read_bytes() != content),
    )


def _as_object(root: Path, figures: _Figures, seconds: float) -> dict[str, object]:
    return {
        "store": str(root),
        "messages": figures.messages,
        "storedBytes": figures.stored_bytes,
        "segments": figures.segments,
        "queues": figures.queues,
        "queueFiles": figures.queue_files,
        "indexFiles": figures.index_files,
        "derivedFilesCompared": figures.derived_files,
        "derivedFilesDifferent": list(figures.different_files),
        "seconds": round(seconds, 3),
    }


def _write_summary(root: Path, figures: _Figures, seconds: float) -> None:
    stored = f"{figures.messages} messages, {byte_count(figures.stored_bytes)} in {figures.segments} segments"
    files = f"{figures.queue_files} files of {figures.queues} queues, {figures.index_files} index files"
    same = figures.derived_files - len(figures.different_files)
    with LineWriter() as writer:
        table = StreamTable(writer, (Column("shown", style="green"), Column("result", width_max=200)))
        table.row(("written", stored))
        table.row(("read back", "every record where it says it lies, every body with its CRC"))
        table.row(("derived", files))
        table.row(
            ("derived again by the kernels", f"{same} of {figures.derived_files} files are the same, byte for byte")
        )
        table.row(("time", f"{seconds:.1f} s"))
        table.row(("files", str(root)))
        table.finish()
        writer.line("")
        writer.line("Try next:")
        for arguments in ("commitlog {} --topic Orders", "commitlog {} --json --limit 3", "index {} --headers"):
            writer.line(f"  {_program()} dump {arguments.format(root)}")


def _program() -> str:
    """Name this command as it can be typed: by its path where it is in none of the shell's directories."""
    return "orbitlog" if shutil.which("orbitlog") else sys.argv[0]
