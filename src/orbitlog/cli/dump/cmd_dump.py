"""`orbitlog dump`: look at the files of a store, whole or in part; nothing is changed and no server is needed."""

from __future__ import annotations

from orbitlog.cli.lazy_group import LazyCommand, LazyGroup

KINDS = {
    "commitlog": LazyCommand("orbitlog.cli.dump.dump_commitlog", "Messages of the log."),
    "consumequeue": LazyCommand("orbitlog.cli.dump.dump_consumequeue", "Units of queues: where each message lies."),
    "index": LazyCommand("orbitlog.cli.dump.dump_index", "Entries of index files: which keys lead where."),
    "checkpoint": LazyCommand("orbitlog.cli.dump.dump_checkpoint", "How far everything was safely on disk."),
    "config": LazyCommand("orbitlog.cli.dump.dump_config", "Topics, offsets, groups and the broker's other tables."),
    "timerwheel": LazyCommand(
        "orbitlog.cli.dump.dump_timerwheel", "Times at which the timer of 5.x delivers messages."
    ),
    "timerlog": LazyCommand(
        "orbitlog.cli.dump.dump_timerlog", "Units of the timer log: which messages wait, and how long."
    ),
}

command = LazyGroup(
    "dump",
    table=KINDS,
    help="""Look at the files of a store; nothing is changed and no server is needed.

    PATH is a whole store, one of its directories, or one file. What is damaged is named on stderr after everything
    that can be read, and the exit code is 1 then.""",
)
