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
        from pyarrow import fs

        self._location = location
        parsed = urlparse(location)
        self._is_local = parsed.scheme in ("", "file")
        self._files: Any
        try:
            if self._is_local:
                path = Path(unquote(parsed.path) if parsed.scheme else location).absolute()
                self._files, self._base = fs.LocalFileSystem(), str(path)
            else:
                self._files, self._base = fs.FileSystem.from_uri(location)
        except (OSError, ValueError) as error:
            raise OptionError(f"{location[:80]} is not a directory that Arrow can write: {error}") from None

    def write(self, name: str, data: bytes) -> None:
        """Create or replace a file."""
        path = f"{self._base}/{name}"
        try:
            self._files.create_dir(path.rpartition("/")[0], recursive=True)
            if self._is_local:
                replace_file(Path(path), data)
                return
            with self._files.open_output_stream(path) as stream:
                stream.write(data)
        except OSError as error:
            raise OptionError(f"could not write {path}: {error}; all executors must reach {self}") from error

    def read(self, name: str) -> bytes | None:
        """Return the content of a file, None if it does not exist."""
        try:
            with self._files.open_input_stream(f"{self._base}/{name}") as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            return None

    def delete_directory(self, name: str) -> None:
        """Delete a directory and its files, if it exists."""
        from pyarrow import fs

        path = f"{self._base}/{name}"
        if self._files.get_file_info(path).type == fs.FileType.Directory:
            self._files.delete_dir(path)

    def names(self, directory: str = "") -> list[str]:
        """Return the names of files and directories, without those that are being written."""
        from pyarrow import fs

        selector = fs.FileSelector(f"{self._base}/{directory}".rstrip("/"), allow_not_found=True)
        names = (info.base_name for info in self._files.get_file_info(selector))
        return sorted(name for name in names if not name.startswith("."))

    def __str__(self) -> str:
        return self._location
