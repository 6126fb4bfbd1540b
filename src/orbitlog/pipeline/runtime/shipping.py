"""Package shipping: the archive that executors unpack into the workers' import path.

Every application unpacks it into a different directory, and numba keys its cache of machine code by source path, so
each application would compile for half a minute. The unpacked `__init__.py` therefore sets `__path__` to a stable
directory with the same sources: an installed package with identical bytes, else a copy in the user's cache.
"""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import orbitlog

SOURCES = "_sources"
_SUFFIXES = (".py", ".typed", ".json")

# Runs in workers before any Orbitlog module is importable: it may import only the standard library.
_REDIRECTING_INIT = '''"""Imports the Orbitlog {version} sources that the driver runs (`pipeline.runtime.shipping`)."""

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


def _package_directory():
    for entry in sys.path:
        package = Path(entry or ".") / "orbitlog"
        if (package / "__init__.py").is_file() and package.resolve() != _HERE and _digest(package) == _DIGEST:
            return package
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "orbitlog"
    cached = root / ("shipped-" + _DIGEST[:16]) / "orbitlog"
    try:
        if not cached.is_dir():
            root.mkdir(parents=True, exist_ok=True)
            # Copied under a temporary name and renamed: other workers see the whole package or none.
            copy = Path(tempfile.mkdtemp(dir=root))
            shutil.copytree(_SOURCES, copy / "orbitlog")
            try:
                copy.rename(cached.parent)
            except OSError:
                shutil.rmtree(copy)  # another worker renamed its copy first
        return cached if cached.is_dir() else _SOURCES
    except OSError:
        return _SOURCES  # the cache is not writable: this application compiles its own kernels


__path__ = [str(_package_directory())]
'''


def pack_package(package: Path, target: Path) -> Path:
    """Zip a package with its files at the top level."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sources_of(package):
            archive.write(path, path.relative_to(package))
    return target


def pack_with_redirect(package: Path, target: Path) -> Path:
    """Zip a package's sources with an `__init__.py` that redirects to a stable directory."""
    redirecting = _REDIRECTING_INIT.format(version=orbitlog.__version__, digest=digest_of(package), sources=SOURCES)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("__init__.py", redirecting)
        for path in sources_of(package):
            archive.write(path, Path(SOURCES, path.relative_to(package)))
    return target


def sources_of(package: Path) -> list[Path]:
    return [path for path in sorted(package.rglob("*")) if path.is_file() and path.suffix in _SUFFIXES]


def digest_of(package: Path) -> str:
    """Return the digest of a package's sources, computed as the redirecting `__init__.py` does in workers."""
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(path.relative_to(package).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()
