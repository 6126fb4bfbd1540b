"""A doctor in a process of its own, to be killed: `python -m tests.faults.doctor_process VERB STORE`."""

from __future__ import annotations

import sys
from pathlib import Path

from orbitlog.doctor.derived_rebuild import RebuildWish, rebuild_in_place
from orbitlog.doctor.repair import apply_repair
from orbitlog.doctor.repair_journal import undo_last
from orbitlog.doctor.store_use import taken
from orbitlog.store.store_settings import StoreSettings


def main() -> None:
    verb, root = sys.argv[1], Path(sys.argv[2])
    sys.stdout.write("begun\n")
    sys.stdout.flush()
    if verb == "repair":
        apply_repair(root)
    elif verb == "rebuild":
        rebuild_in_place(root, RebuildWish(), StoreSettings())
    else:
        with taken(root):
            undo_last(root)


if __name__ == "__main__":
    main()
