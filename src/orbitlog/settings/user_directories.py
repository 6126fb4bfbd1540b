"""User directories: where the files of one user are, by the XDG Base Directory specification."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

_DEFAULTS = {
    "XDG_CACHE_HOME": ".cache",
    "XDG_CONFIG_HOME": ".config",
    "XDG_DATA_HOME": ".local/share",
    "XDG_STATE_HOME": ".local/state",
}


def user_directory(variable: str, environment: Mapping[str, str] | None = None) -> Path:
    """Return Orbitlog's directory below the one that an XDG variable names, or below the variable's default.

    Raise `RuntimeError` if the default is needed and the user has no home directory.
    """
    named = (os.environ if environment is None else environment).get(variable) or ""
    # The specification requires that relative paths are ignored.
    base = Path(named) if Path(named).is_absolute() else Path.home() / _DEFAULTS[variable]
    return base / "orbitlog"
