"""Table copies: what a slave or an operator is sent of a table that the broker saves."""

from __future__ import annotations

from typing import Protocol, TypeVar

S_co = TypeVar("S_co", covariant=True)


class SavedTable(Protocol[S_co]):
    """A table with changes to save; `snapshot` marks them as saved."""

    is_changed: bool

    def snapshot(self) -> S_co: ...


def copy_of(table: SavedTable[S_co]) -> S_co:
    """Return the content of a table. Its changes stay to be saved: a request for a copy must not lose them."""
    is_changed = table.is_changed
    content = table.snapshot()
    table.is_changed = is_changed
    return content
