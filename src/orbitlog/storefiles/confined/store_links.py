"""Links in a store: refuses to write to a store in which a link could direct a write to another place.

A directory with the name of a segment, queue file or index file is refused as well: it hides the file that belongs
there, and recovery would meet it when it has already changed others.

A path that an operator names may be a link: the root, and each directory of `storePathCommitLog`. Other entries
came with the store, and a store may come from a stranger.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from orbitlog.errors import StoreLayoutError, StoreLinkError
from orbitlog.formats import store_tree as tree
from orbitlog.settings.store_settings import COMMITLOG_PATHS
from orbitlog.storefiles.store_paths import StorePaths

_NOT_OPENED = frozenset(("lost+found",))


def refuse_links(paths: StorePaths, *others: Path) -> None:
    """Raise `StoreLinkError` if an entry below the store's directories, or below one of `others`, is a link.

    Hidden directories are left out: they belong to the doctor, which keeps links that it quarantined, or to file
    systems and tools.
    """
    named = frozenset(directory.absolute() for directory in paths.log_directories) if paths.is_configured else ()
    for start in (paths.root, *(paths.log_directories if paths.is_configured else ()), *others):
        for link in find_links(start, named):
            raise StoreLinkError(_sentence(link, paths.root))
    for directory in _in_place_of_files(paths):
        raise StoreLayoutError(
            f"store not opened for writing: {directory} is a directory with the name of a file of the store; put the"
            " file in its place, or run `orbitlog doctor check`"
        )


def _in_place_of_files(paths: StorePaths) -> Iterator[Path]:
    """Yield directories that have the name of a segment, a queue file or an index file."""
    for directory in (*paths.log_directories, paths.root / tree.TIMER_LOG):
        yield from _directories(directory, tree.parse_offset_file_name)
    yield from _directories(paths.root / tree.INDEX, tree.parse_index_file_name)
    for topic in _directories(paths.root / tree.CONSUMEQUEUE):
        for queue in _directories(topic):
            yield from _directories(queue, tree.parse_offset_file_name)


def _directories(directory: Path, parse: Callable[[str], object] | None = None) -> Iterator[Path]:
    """Yield the directories in one that exists, all or those with a name that `parse` knows."""
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False) and (parse is None or parse(entry.name) is not None):
                    yield Path(entry.path)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return  # a directory without permission to list it is not opened either


def find_links(start: Path, named: Collection[Path] = ()) -> Iterator[Path]:
    """Yield the links below a directory, apart from `named` ones; no link is followed."""
    waiting = [os.fspath(start)]
    while waiting:
        directory = waiting.pop()
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    # By the type in the directory itself: no system call for each entry.
                    if entry.is_symlink():
                        if Path(entry.path).absolute() not in named:
                            yield Path(entry.path)
                    elif entry.is_dir(follow_symlinks=False) and not _is_left_out(entry.name):
                        waiting.append(entry.path)
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            continue  # without permission to list it, nothing in it is opened either


def _is_left_out(name: str) -> bool:
    return name in _NOT_OPENED or name.startswith(".")


def _sentence(link: Path, root: Path) -> str:
    target = link.parent / link.readlink()
    advice = "move the files here, or mount their disk at this path"
    if link == root / tree.COMMITLOG:
        advice = f"set {COMMITLOG_PATHS.key}={target} if the log belongs there, or {advice}"
    return f"{link} is a link to {target}, and links inside a store are not followed: {advice}"
