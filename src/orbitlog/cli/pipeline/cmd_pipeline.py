"""`orbitlog pipeline`: the group of Spark jobs; Spark starts only when a job runs."""

from __future__ import annotations

from orbitlog.cli.lazy_group import LazyCommand, LazyGroup

JOBS: dict[str, LazyCommand] = {
    "dispatch": LazyCommand(
        "orbitlog.cli.pipeline.pipeline_dispatch",
        "Dispatch for a running broker: build its queues and index from its log.",
    ),
    "rebuild": LazyCommand(
        "orbitlog.cli.pipeline.pipeline_rebuild", "Rebuild queues, index and checkpoint from the log."
    ),
    "check": LazyCommand(
        "orbitlog.cli.pipeline.pipeline_check", "Verify whole stores: records, queues, index, checkpoint, config."
    ),
    "query": LazyCommand(
        "orbitlog.cli.pipeline.pipeline_query", "Find messages by topic, key, time or content, or with SQL."
    ),
    "stats": LazyCommand(
        "orbitlog.cli.pipeline.pipeline_stats",
        "Count messages by topic, queue, tag, hour and producer; show lag, delays, transactions and dead letters.",
    ),
    "export": LazyCommand(
        "orbitlog.cli.pipeline.pipeline_export",
        "Export a topic as a table partitioned by day, each message exactly once.",
    ),
}

command = LazyGroup(
    "pipeline",
    table=JOBS,
    help="""Run Spark jobs over whole stores.

    They run on this machine unless --master names a cluster. STORE is a broker's storePathRootDir; some jobs accept
    several. A job that was killed resumes when it is run again.""",
)
