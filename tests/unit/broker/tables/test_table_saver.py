"""Copies of tables that the broker saves."""

from __future__ import annotations

import pytest

from orbitlog.broker.tables.table_saver import copy_of
from orbitlog.formats.tables.group_config import RequestModeTable


class Table:
    def __init__(self, *, is_changed: bool) -> None:
        self.is_changed = is_changed

    def snapshot(self) -> RequestModeTable:
        self.is_changed = False
        return RequestModeTable()


@pytest.mark.parametrize("is_changed", [True, False])
def test_copy_of_a_table_leaves_its_changes_to_be_saved(is_changed: bool) -> None:
    table = Table(is_changed=is_changed)
    assert copy_of(table) == RequestModeTable()
    assert table.is_changed is is_changed
