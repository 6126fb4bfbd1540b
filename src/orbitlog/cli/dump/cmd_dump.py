"""`orbitlog dump`: the group of commands that print the files of a store."""

from __future__ import annotations

from orbitlog.cli.lazy_group import LazyCommand, LazyGroup

KINDS = {
    "commitlog": LazyCommand("orbitlog.cli.dump.dump_commitlog", "Messages of the log."),
    "consumequeue": LazyCommand(
        "orbitlog.cli.dump.dump_consumequeue", "Units of ConsumeQueues: the physical offset of each message."
    ),
    "index": LazyCommand("orbitlog.cli.dump.dump_index", "Entries of index files: key hashes and physical offsets."),
    "checkpoint": LazyCommand(
        "orbitlog.cli.dump.dump_checkpoint", "Positions up to which log, queues and index were flushed."
    ),
    "config": LazyCommand("orbitlog.cli.dump.dump_config", "Topics, offsets, groups and the broker's other tables."),
    "timerwheel": LazyCommand(
        "orbitlog.cli.dump.dump_timerwheel", "Slots of the timer wheel (5.x): times at which messages are delivered."
    ),
    "timerlog": LazyCommand(
        "orbitlog.cli.dump.dump_timerlog", "Units of the timer log (5.x): scheduled messages and their delivery times."
    ),
}

command = LazyGroup(
    "dump",
    table=KINDS,
    help="""Print the files of a store; needs no server and changes nothing.

    PATH is a whole store, one of its directories, or one file. Damage is reported on stderr after all readable rows,
    with exit code 1.""",
)
