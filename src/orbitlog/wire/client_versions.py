"""Versions of clients: ordinals of Java's `MQVersion`, which heartbeats contain, and their names."""

from __future__ import annotations

# Ordinals of Java's MQVersion: from 4.0.0 on each release has two, the first for its snapshots.
_FIRST_REGULAR, _LAST_KNOWN = 213, 613


def version_name(ordinal: int) -> str:
    """Return the label of a client version, such as `v5_3_3`; its number before 4.0."""
    if not _FIRST_REGULAR <= ordinal < _LAST_KNOWN:
        return str(ordinal) if 0 <= ordinal < _FIRST_REGULAR else "higher_version"
    steps = ordinal - _FIRST_REGULAR + 1
    major, steps = divmod(steps, 200)
    minor, steps = divmod(steps, 20)
    # Releases have an odd ordinal: with the snapshot of the next patch release they make a pair.
    patch, is_release = divmod(steps, 2)
    suffix = "" if is_release else "_snapshot"
    return f"v{major + 4}_{minor}_{patch}{suffix}"
