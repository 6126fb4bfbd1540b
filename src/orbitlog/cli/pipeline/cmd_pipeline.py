"""`orbitlog pipeline`: the group of Spark jobs; Spark starts only when a job runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitlog.cli.lazy_group import LazyCommand, LazyGroup

if TYPE_CHECKING:
    import click

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
    "compact": LazyCommand(
        "orbitlog.cli.pipeline.pipeline_compact",
        "Merge the small files of a table that export wrote, one commit for each day.",
    ),
    "replay": LazyCommand(
        "orbitlog.cli.pipeline.pipeline_replay",
        "Send messages of a store or a table back into topics, each once.",
    ),
    "serve": LazyCommand(
        "orbitlog.cli.pipeline.pipeline_serve",
        "Keep one Spark session running for commands with --master server, until interrupted.",
    ),
}
_OWN_PROCESS = ("dispatch", "serve")


class PipelineGroup(LazyGroup):
    """The jobs; with `--master server` the server of `pipeline serve` runs them."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if not args or args[0] not in self.table or args[0] in _OWN_PROCESS:
            return super().resolve_command(ctx, args)
        from orbitlog.cli.pipeline.served_command import forwarded, server_socket

        path = server_socket(args[1:])
        if path is None:
            return super().resolve_command(ctx, args)
        return args[0], forwarded(path, args), []


command = PipelineGroup(
    "pipeline",
    table=JOBS,
    help="""Run Spark jobs over whole stores.

    They run on this machine unless --master names a cluster. STORE is a broker's storePathRootDir; some jobs accept
    several. A job that was killed resumes when it is run again.""",
)
