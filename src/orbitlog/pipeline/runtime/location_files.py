"""Files below a location: a local directory, or a URI of an object store or another Arrow file system.

`s3://` and `s3a://` locations use the settings of AWS tools: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
AWS_SESSION_TOKEN, AWS_REGION, AWS_ENDPOINT_URL, profiles and instance roles. `hdfs://` and `gs://` are those of Arrow.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from orbitlog.pipeline.sources.broker_stores import OptionError
from orbitlog.settings.atomic_file import replace_file, sync_directory

_S3_SCHEMES = ("s3", "s3a")


def is_remote(location: str | Path) -> bool:
    """Return whether a location is a URI of something other than the local file system."""
    return urlparse(str(location)).scheme not in ("", "file")


class LocationFiles:
    """Small files that are written whole; a local one has survived a power cut when `write` returns."""

    def __init__(self, location: str | Path) -> None:
        from pyarrow import fs

        self._location = str(location)
        parsed = urlparse(self._location)
        self.is_local = not is_remote(location)
        self.filesystem: Any
        try:
            if self.is_local:
                path = Path(unquote(parsed.path) if parsed.scheme else self._location).absolute()
                self.filesystem, self.base = fs.LocalFileSystem(), str(path)
            elif parsed.scheme in _S3_SCHEMES:
                # The environment is read here: Arrow's URIs do not use AWS_ENDPOINT_URL.
                self.filesystem = fs.S3FileSystem(endpoint_override=s3_endpoint(), region=os.environ.get("AWS_REGION"))
                self.base = f"{parsed.netloc}{parsed.path}".rstrip("/")
            else:
                self.filesystem, self.base = fs.FileSystem.from_uri(self._location)
        except (OSError, ValueError) as error:
            raise OptionError(f"{self._location[:80]} is not a directory that Arrow can write: {error}") from None

    @property
    def uri(self) -> str:
        """The location for other libraries: a path, or a URI (`s3://` for `s3a://`)."""
        if self.is_local:
            return self.base
        return f"s3://{self.base}" if self._location.startswith("s3a:") else self._location.rstrip("/")

    def path(self, name: str) -> str:
        """Return the path of a file within `filesystem`."""
        return f"{self.base}/{name}"

    def write(self, name: str, data: bytes) -> None:
        """Create or replace a file."""
        path = self.path(name)
        try:
            self.filesystem.create_dir(path.rpartition("/")[0], recursive=True)
            if self.is_local:
                replace_file(Path(path), data)
                return
            with self.filesystem.open_output_stream(path) as stream:
                stream.write(data)
        except OSError as error:
            raise OptionError(f"could not write {path}: {error}; all executors must reach {self}") from error

    def read(self, name: str) -> bytes | None:
        """Return the content of a file, None if it does not exist."""
        try:
            with self.filesystem.open_input_stream(self.path(name)) as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            return None

    def exists(self, name: str) -> bool:
        from pyarrow import fs

        return bool(self.filesystem.get_file_info(self.path(name)).type == fs.FileType.File)

    def move(self, name: str, to: str) -> None:
        """Rename a file; on an object store copy and delete it."""
        self.filesystem.move(self.path(name), self.path(to))

    def delete(self, name: str) -> None:
        """Delete a file, if it exists."""
        try:
            self.filesystem.delete_file(self.path(name))
        except FileNotFoundError:
            return

    def delete_directory(self, name: str) -> None:
        """Delete a directory and its files, if it exists."""
        from pyarrow import fs

        path = self.path(name)
        if self.filesystem.get_file_info(path).type == fs.FileType.Directory:
            self.filesystem.delete_dir(path)

    def names(self, directory: str = "", *, hidden: bool = False) -> list[str]:
        """Return the names of files and directories, without those that are being written."""
        from pyarrow import fs

        selector = fs.FileSelector(f"{self.base}/{directory}".rstrip("/"), allow_not_found=True)
        names = (info.base_name for info in self.filesystem.get_file_info(selector))
        return sorted(name for name in names if hidden or not name.startswith("."))

    def sync(self, directory: str) -> None:
        """Make the names in a local directory durable; an object store acknowledges only durable objects."""
        if self.is_local:
            sync_directory(Path(self.path(directory)))

    def __str__(self) -> str:
        return self._location


def s3_endpoint() -> str | None:
    """Return the endpoint of an S3 server other than Amazon's, from the environment."""
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
