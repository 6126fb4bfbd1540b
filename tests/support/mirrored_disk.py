"""A disk that does everything twice: to real files, which code under test reads, and to a `CrashDisk`.

The doctor reads stores with plain file calls and maps, and writes through `Disk`. So its writes are mirrored, and
`crash` gives what a power cut could have left of the real files at that moment.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import RLock

from orbitlog.storefiles.disk import Bytes, PlainFile, RealDisk
from orbitlog.testing.crash_disk import CrashDisk

_REAL = RealDisk()


class _MirroredFile:
    def __init__(self, disk: MirroredDisk, real: PlainFile, mirror: PlainFile) -> None:
        self._disk = disk
        self._both = (mirror, real)

    def _do(self, action: Callable[[PlainFile], None]) -> None:
        with self._disk.lock:
            for file in self._both:
                action(file)

    def write(self, position: int, data: Bytes) -> None:
        self._do(lambda file: file.write(position, data))

    def resize(self, size_bytes: int) -> None:
        self._do(lambda file: file.resize(size_bytes))

    def start_writeback(self, position: int, size_bytes: int) -> None:
        """Both write when they like."""

    def set_modified(self, modified_ns: int) -> None:
        self._do(lambda file: file.set_modified(modified_ns))

    def sync(self) -> None:
        with self._disk.lock:
            self._both[0].sync()  # the power of the machine that runs the tests is not cut

    def close(self) -> None:
        self._do(lambda file: file.close())


class MirroredDisk(RealDisk):
    """The files below `root` and a `CrashDisk` with the same files, all of them durable at first."""

    def __init__(self, root: Path) -> None:
        self.lock = RLock()  # staging syncs in threads
        self.mirror = CrashDisk()
        files = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
        self.mirror = CrashDisk.of_files(files)
        for path in (root, *root.rglob("*")):
            if path.is_dir():
                self.mirror.make_directory(path)
        self.mirror.steps = 0

    def make_directory(self, path: Path, *, durable: bool = True) -> list[Path]:
        with self.lock:
            self.mirror.make_directory(path, durable=durable)
            return _REAL.make_directory(path, durable=False)

    def replace_file(self, path: Path, data: bytes) -> None:
        with self.lock:
            self.mirror.replace_file(path, data)
            _REAL.replace_file(path, data)

    def remove_file(self, path: Path) -> None:
        with self.lock:
            self.mirror.remove_file(path)
            _REAL.remove_file(path)

    def create_plain(self, path: Path) -> PlainFile:
        with self.lock:
            mirror = self.mirror.create_plain(path)
            return _MirroredFile(self, _REAL.create_plain(path), mirror)

    def open_plain(self, path: Path) -> PlainFile:
        with self.lock:
            mirror = self.mirror.open_plain(path)
            return _MirroredFile(self, _REAL.open_plain(path), mirror)

    def move(self, path: Path, target: Path) -> None:
        with self.lock:
            self.mirror.move(path, target)
            _REAL.move(path, target)

    def link_file(self, path: Path, target: Path) -> None:
        with self.lock:
            self.mirror.link_file(path, target)
            _REAL.link_file(path, target)

    def remove_directory(self, path: Path) -> None:
        with self.lock:
            self.mirror.remove_directory(path)
            _REAL.remove_directory(path)

    def remove_tree(self, path: Path) -> None:
        with self.lock:
            self.mirror.remove_tree(path)
            _REAL.remove_tree(path)

    def sync_directory(self, path: Path) -> None:
        with self.lock:
            self.mirror.sync_directory(path)


def write_image(image: CrashDisk, root: Path, target: Path) -> None:
    """Write the files and directories of an image below `root` as real ones below `target`."""
    for path in sorted(image.directories()):
        if path.is_relative_to(root):
            (target / path.relative_to(root)).mkdir(parents=True, exist_ok=True)
    for path, content in image.files().items():
        if path.is_relative_to(root):
            (target / path.relative_to(root)).write_bytes(content)
