"""`orbitlog doctor`: checks, explains, rebuilds and repairs a store; needs no server and no Java."""

from __future__ import annotations

from orbitlog.cli.lazy_group import LazyCommand, LazyGroup

JOBS: dict[str, LazyCommand] = {
    "check": LazyCommand("orbitlog.cli.doctor.doctor_check", "Check a store, and show what repairs it."),
    "convert": LazyCommand(
        "orbitlog.cli.doctor.doctor_convert", "Convert a DLedger or RocksDB store into an ordinary store."
    ),
    "explain": LazyCommand(
        "orbitlog.cli.doctor.doctor_explain", "Show versions, topics, times and pending messages of a store."
    ),
    "move": LazyCommand("orbitlog.cli.doctor.doctor_move", "Report what would be refused, lost or changed by a move."),
    "rebuild": LazyCommand("orbitlog.cli.doctor.doctor_rebuild", "Rebuild queues, index or checkpoint from the log."),
    "repair": LazyCommand(
        "orbitlog.cli.doctor.doctor_repair", "Repair a damaged store: show the plan, or carry it out with --apply."
    ),
    "undo": LazyCommand("orbitlog.cli.doctor.doctor_undo", "Undo the last repair of a store, byte for byte."),
}

command = LazyGroup(
    "doctor",
    table=JOBS,
    help="""Check a store, and repair it.

    STORE is a broker's storePathRootDir, Apache's or Orbitlog's. Only rebuild, repair --apply and undo change it, and
    they refuse while a broker uses the store.""",
)
