"""Files of the sink, below a local directory or a URI of an Arrow file system (`s3://`, `hdfs://`, `file:`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from orbitlog.pipeline.sources.broker_stores import OptionError
from orbitlog.settings.atomic_file import replace_file


class SinkFiles:
    """Small files that are written whole; a local one has survived a power cut when `write` returns."""

    def __init__(self, location: str) -> None:
        self._location = location
        parsed = urlparse(location)
        self._local: Path | None = None
        self._remote: Any = None
        if parsed.scheme in ("", "file"):
            self._local = Path(unquote(parsed.path) if parsed.scheme else location).absolute()
            return
        from pyarrow import fs

        try:
            self._remote, self._base = fs.FileSystem.from_uri(location)
        except (OSError, ValueError) as error:
            raise OptionError(f"{location[:80]} is not a directory that Arrow can write: {error}") from None

    def write(self, name: str, data: bytes) -> None:
        """Create or replace a file."""
        if self._local is not None:
            path = self._local / name
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                replace_file(path, data)
            except OSError as error:
                raise OptionError(f"could not write {path}: {error.strerror}; all executors must see {self}") from error
            return
        from pyarrow import fs

        if not isinstance(self._remote, fs.S3FileSystem):
            self._remote.create_dir(f"{self._base}/{name}".rsplit("/", 1)[0], recursive=True)
        with self._remote.open_output_stream(f"{self._base}/{name}") as stream:
            stream.write(data)

    def read(self, name: str) -> bytes | None:
        """Return the content of a file, None if it does not exist."""
        try:
            if self._local is not None:
                return (self._local / name).read_bytes()
            with self._remote.open_input_stream(f"{self._base}/{name}") as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            return None

    def delete(self, name: str) -> None:
        """Delete a file or directory, if it exists."""
        import shutil

        if self._local is not None:
            path = self._local / name
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
            return
        from pyarrow import fs

        target = f"{self._base}/{name}"
        kind = self._remote.get_file_info(target).type
        if kind == fs.FileType.Directory:
            self._remote.delete_dir(target)
        elif kind == fs.FileType.File:
            self._remote.delete_file(target)

    def names(self, directory: str = "") -> list[str]:
        """Return the names of files and directories, without those that are being written."""
        if self._local is not None:
            path = self._local / directory
            return sorted(entry.name for entry in path.iterdir() if entry.name[0] != ".") if path.is_dir() else []
        from pyarrow import fs

        selector = fs.FileSelector(f"{self._base}/{directory}".rstrip("/"), allow_not_found=True)
        return sorted(info.base_name for info in self._remote.get_file_info(selector))

    def __str__(self) -> str:
        return self._location
