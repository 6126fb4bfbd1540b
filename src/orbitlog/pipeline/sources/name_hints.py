"""Hints for unknown names of options and columns."""

from __future__ import annotations

import difflib
from collections.abc import Mapping


def name_hint(given: str, by_lower: Mapping[str, str], otherwise: str) -> str:
    """Return a question with the known name that is nearest to a given one; `otherwise` if none is near.

    `by_lower` has the known names by their lower case form, as Spark compares them.
    """
    near = difflib.get_close_matches(given.lower(), by_lower, n=1)
    return f"did you mean {by_lower[near[0]]}?" if near else otherwise
