"""Pytest plugin `-p tests.support.without_fast`: hides the packages of the extra `fast`, as if not installed.

Test modules that need them are left out.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import ModuleType

HIDDEN = ("llvmlite", "lz4", "numba", "numpy", "pandas", "pyarrow", "pyspark")
_NEEDS = re.compile(
    r"^(?:import|from) (?:numpy|pyarrow|tests\.support\.(?:exported_rows|source_runs)"
    r"|orbitlog\.(?:pipeline|kernels\.(?:arrow_batches|listed_records|tally)))",
    re.MULTILINE,
)


class _Hiding(MetaPathFinder):
    """Finds nothing, and keeps the finders after it from finding a hidden package."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if fullname.partition(".")[0] in HIDDEN:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)


for name in HIDDEN:
    assert name not in sys.modules, f"{name} was imported before it could be hidden"
sys.meta_path.insert(0, _Hiding())


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    return True if collection_path.suffix == ".py" and _NEEDS.search(collection_path.read_text()) else None
