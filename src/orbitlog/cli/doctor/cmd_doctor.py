"""`orbitlog doctor`: what is wrong with a store, and how it is mended; needs no server and no Java."""

from __future__ import annotations

from orbitlog.cli.lazy_group import LazyCommand, LazyGroup

JOBS: dict[str, LazyCommand] = {
    "check": LazyCommand("orbitlog.cli.doctor.doctor_check", "Say what is wrong with a store, and what mends it."),
    "convert": LazyCommand(
        "orbitlog.cli.doctor.doctor_convert", "Convert a DLedger or RocksDB store into an ordinary store."
    ),
    "explain": LazyCommand(
        "orbitlog.cli.doctor.doctor_explain", "Say what a store is: versions, topics, times, what waits."
    ),
    "move": LazyCommand("orbitlog.cli.doctor.doctor_move", "Report what would be refused, lost or changed by a move."),
    "rebuild": LazyCommand(
        "orbitlog.cli.doctor.doctor_rebuild", "Make queues, index or checkpoint again from the log."
    ),
    "repair": LazyCommand(
        "orbitlog.cli.doctor.doctor_repair", "Mend a damaged store; shows the plan, --apply carries it out."
    ),
    "undo": LazyCommand("orbitlog.cli.doctor.doctor_undo", "Take back the last repair of a store, byte for byte."),
}

command = LazyGroup(
    "doctor",
    table=JOBS,
    help="""Find out what is wrong with a store, and mend it.

    STORE is a broker's storePathRootDir, Apache's or ours. Nothing is changed but by rebuild, repair --apply and undo,
    and those refuse while a broker uses the store.""",
)
