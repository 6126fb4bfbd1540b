"""Derived files of the tour: moves them away and compares them with rebuilt ones, byte for byte."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from orbitlog.formats import store_tree as tree
from orbitlog.storefiles.store_files import find_index_files, find_queues


@dataclass(frozen=True, slots=True)
class Comparison:
    """Number and size of the compared files, and the names of those that differ."""

    files: int
    size_bytes: int
    different: tuple[str, ...]


def move_derived(store: Path, kept: Path) -> None:
    """Move queues and index of a store into another directory."""
    kept.mkdir()
    for name in (tree.CONSUMEQUEUE, tree.INDEX):
        shutil.move(store / name, kept / name)


def compare_derived(left: Path, right: Path) -> Comparison:
    """Compare queue files by name and index files by order, byte for byte."""
    left_files, right_files = _derived(left), _derived(right)
    different = [
        name
        for name in sorted(left_files.keys() | right_files.keys())
        if name not in left_files
        or name not in right_files
        or left_files[name].read_bytes() != right_files[name].read_bytes()
    ]
    sizes = [path.stat().st_size for path in left_files.values()]
    return Comparison(len(sizes), sum(sizes), tuple(different))


def _derived(root: Path) -> dict[str, Path]:
    """Return queue files by relative path, and index files, whose names are creation times, by number."""
    queues = find_queues(root / tree.CONSUMEQUEUE)
    queue_files = {str(file.path.relative_to(root)): file.path for files in queues.values() for file in files}
    index_files = find_index_files(root / tree.INDEX)
    return queue_files | {f"index file {number}": file.path for number, file in enumerate(index_files)}
