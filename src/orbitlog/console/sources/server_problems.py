"""Problems of servers as one short sentence: Apache's brokers return stack traces of many lines."""

from __future__ import annotations

from orbitlog.errors import OrbitlogError

_CHARACTERS_MAX = 300


def problem_sentence(error: OrbitlogError) -> str:
    """Return the first line of an error, with its advice, cut to a length that fits a page."""
    text = " ".join(str(error).split("\n", 1)[0].split())
    return text if len(text) <= _CHARACTERS_MAX else text[: _CHARACTERS_MAX - 1] + "…"
