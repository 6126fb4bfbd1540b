"""Loads one module of the package without its remedy, in each process whose `PYTHONPATH` names this directory.

`ORBITLOG_REMOVAL` is a JSON object: the name of the module, the text to replace, its replacement, and a file that is
created when the changed module is loaded. The files of the package do not change, so that compiled kernels are reused.
"""

from __future__ import annotations

import json
import os
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType

REMOVAL: dict[str, str] = json.loads(os.environ.get("ORBITLOG_REMOVAL", "{}"))


class _ChangedModule(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        source = self.get_data(self.path).decode()
        assert source.count(REMOVAL["text"]) == 1
        Path(REMOVAL["loaded"]).touch()
        return self.source_to_code(source.replace(REMOVAL["text"], REMOVAL["replacement"]).encode(), self.path)


class _Finder(MetaPathFinder):
    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        if fullname != REMOVAL["name"]:
            return None
        spec = PathFinder.find_spec(fullname, path)  # type: ignore[arg-type]
        assert spec is not None and spec.origin is not None
        spec.loader = _ChangedModule(fullname, spec.origin)
        return spec


if REMOVAL:
    sys.meta_path.insert(0, _Finder())
