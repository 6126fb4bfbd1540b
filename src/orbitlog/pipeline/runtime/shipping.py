"""The package as executors get it: an archive that they unpack onto the workers' import path.

Every application unpacks it somewhere else, and numba keeps machine code by the path of the source: workers would
compile for half a minute in each application. So what is unpacked is a small `__init__.py` that leads to the same
sources in a place that stays: an installed package of the very same bytes, else a copy in the user's cache.
"""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import orbitlog

SOURCES = "_sources"
_SUFFIXES = (".py", ".typed", ".json")

# Runs in workers that have nothing of ours yet: it may import only the standard library.
_LEADING_INIT = '''"""Imports the Orbitlog {version} sources that the driver runs (`pipeline.runtime.shipping`)."""

import hashlib
import os
import shutil
import sys
import tempfile
from pathlib import Path

__version__ = "{version}"
_DIGEST = "{digest}"
_HERE = Path(__file__).resolve().parent
_SOURCES = _HERE / "{sources}"


def _digest(package):
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(path.relative_to(package).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _place():
    for entry in sys.path:
        package = Path(entry or ".") / "orbitlog"
        if (package / "__init__.py").is_file() and package.resolve() != _HERE and _digest(package) == _DIGEST:
            return package
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "orbitlog"
    place = root / ("shipped-" + _DIGEST[:16]) / "orbitlog"
    try:
        if not place.is_dir():
            root.mkdir(parents=True, exist_ok=True)
            made = Path(tempfile.mkdtemp(dir=root))
            shutil.copytree(_SOURCES, made / "orbitlog")
            try:
                made.rename(place.parent)
            except OSError:
                shutil.rmtree(made)  # another worker was faster
        return place if place.is_dir() else _SOURCES
    except OSError:
        return _SOURCES  # no cache can be written: this application compiles for itself


__path__ = [str(_place())]
'''


def pack_package(package: Path, target: Path) -> Path:
    """Zip a package as it is, with its own files at the top."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sources_of(package):
            archive.write(path, path.relative_to(package))
    return target


def pack_with_leading_init(package: Path, target: Path) -> Path:
    """Zip a package behind the `__init__.py` that leads to its sources."""
    leading = _LEADING_INIT.format(version=orbitlog.__version__, digest=digest_of(package), sources=SOURCES)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("__init__.py", leading)
        for path in sources_of(package):
            archive.write(path, Path(SOURCES, path.relative_to(package)))
    return target


def sources_of(package: Path) -> list[Path]:
    return [path for path in sorted(package.rglob("*")) if path.is_file() and path.suffix in _SUFFIXES]


def digest_of(package: Path) -> str:
    """Digest the sources, as the leading `__init__.py` does in workers."""
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(path.relative_to(package).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()
