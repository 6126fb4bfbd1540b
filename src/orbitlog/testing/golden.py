"""Golden stores: directories written by Apache brokers, with facts that the Java code reported about them.

A store is packed as `store.tar.xz` next to `manifest.json`; tests/golden/README.md describes each one.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ARCHIVE_NAME = "store.tar.xz"
MANIFEST_NAME = "manifest.json"


@dataclass(frozen=True, slots=True)
class GoldenStore:
    """An unpacked store and the facts recorded about it."""

    store: Path
    manifest: dict[str, Any]

    def changed_files(self) -> list[str]:
        """Return the names of files that were changed, deleted or added since the broker wrote the store."""
        recorded = {file["path"]: file["sha256"] for file in self.manifest["files"]}
        present = {
            path.relative_to(self.store).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in self.store.rglob("*")
            if path.is_file()
        }
        return sorted(name for name in recorded.keys() | present.keys() if recorded.get(name) != present.get(name))

    def copy_to(self, destination: Path) -> GoldenStore:
        """Copy the store with its modification times into a new directory."""
        shutil.copytree(self.store, destination)
        return GoldenStore(destination, self.manifest)


def extract_golden(archive_dir: Path, into: Path) -> GoldenStore:
    """Unpack `archive_dir` into `into/store` with modification times, which Java 4.x uses to search by time."""
    with tarfile.open(archive_dir / ARCHIVE_NAME) as archive:
        # As an attribute, because 3.11.0 to 3.11.3 (Debian 12 has one of them) lack the `filter` argument.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(into)  # noqa: S202 (filtered as above)
    manifest = json.loads((archive_dir / MANIFEST_NAME).read_text())
    return GoldenStore(into / "store", manifest)
