"""A process that owns dispatch of a live store, without Spark, until it is killed; run by test_engine_kill_loop.py.

python -m tests.faults.outside_engine DIRECTORY
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from orbitlog.errors import LeaseLost
from orbitlog.formats import store_tree as tree
from orbitlog.pipeline.dispatch.dispatch_ranges import DispatchPlanner
from orbitlog.store.derived.derived_range import DerivedRange, derive_range
from orbitlog.store.dispatch.external_dispatch import ExternalDispatch
from orbitlog.storefiles.mapped_view import mapped_view
from orbitlog.storefiles.store_paths import StorePaths


def main(root: Path) -> None:
    owner = ExternalDispatch.take(root, "test")
    geometry = owner.config.geometry
    planner = DispatchPlanner(StorePaths.below(root), geometry.segment_bytes, 1 << 20, 50_000)
    sys.stdout.write("taken\n")
    sys.stdout.flush()
    while True:
        end = planner.end(owner.dispatched_to, owner.confirmed_to)
        derived: list[DerivedRange] = []
        for found in planner.ranges(owner.dispatched_to, end):
            with mapped_view(root / tree.COMMITLOG / tree.offset_file_name(found.base)) as view:
                derived.append(derive_range(view, found.base, found.start, found.stop, owner.config.rules))
        try:
            owner.put_ranges(derived)
        except LeaseLost:
            owner.hand_back()
            return
        if not derived:
            time.sleep(0.001)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
