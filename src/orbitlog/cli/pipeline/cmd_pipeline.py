"""`orbitlog pipeline`: the jobs on Spark, each a command; Spark starts only when one of them runs."""

from __future__ import annotations

from orbitlog.cli.lazy_group import LazyCommand, LazyGroup

JOBS: dict[str, LazyCommand] = {
    "dispatch": LazyCommand(
        "orbitlog.cli.pipeline.pipeline_dispatch", "Dispatch a running broker's store: queues and index from its log."
    ),
    "rebuild": LazyCommand(
        "orbitlog.cli.pipeline.pipeline_rebuild", "Make queues, index and checkpoint again from the log."
    ),
    "check": LazyCommand(
        "orbitlog.cli.pipeline.pipeline_check", "Verify whole stores: records, queues, index, checkpoint, config."
    ),
    "query": LazyCommand(
        "orbitlog.cli.pipeline.pipeline_query", "Find messages by topic, key, time or content, or ask with SQL."
    ),
    "stats": LazyCommand(
        "orbitlog.cli.pipeline.pipeline_stats",
        "Count messages by topic, queue, tag, hour and producer; consumer lag, delays, transactions, dead letters.",
    ),
    "export": LazyCommand(
        "orbitlog.cli.pipeline.pipeline_export", "Export a topic as a table, by day, each message exactly once."
    ),
}

command = LazyGroup(
    "pipeline",
    table=JOBS,
    help="""Jobs on Spark over whole stores.

    They run on this machine unless --master names a cluster. STORE is a broker's storePathRootDir; several may be given
    where the job takes several. A job that was killed goes on where it stopped when it is run again.""",
)
