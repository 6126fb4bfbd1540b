"""Makes `spark.read.format("rocketmq-commitlog")` work with no registration, as `pyspark_rocketmq` does for topics."""

from __future__ import annotations


def __getattr__(name: str) -> object:
    if name != "DefaultSource":
        raise AttributeError(name)
    from orbitlog.pipeline.sources.commitlog_source import CommitLogSource

    return CommitLogSource
