"""Config saving: writes settings that were changed at run time to the properties file that a server was started with.

Mirrors Java `Configuration.persist`, which rewrites the whole file; here other lines and comments stay. The file before
the change is kept with `.bak` at the end of its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from orbitlog.settings.atomic_file import replace_file
from orbitlog.settings.properties_file import replace_properties

_ENCODING = "latin-1"  # the encoding of Java's properties files


def save_values(path: Path, values: Mapping[str, str]) -> None:
    """Replace values in a properties file durably; raise `OSError` if it cannot be written."""
    target = path.resolve()  # an operator's link stays one
    before = target.read_bytes()
    replace_file(target.with_name(f"{target.name}.bak"), before, keeps_mode=True)
    after = replace_properties(before.decode(_ENCODING), values).encode(_ENCODING)
    replace_file(target, after, keeps_mode=True)
