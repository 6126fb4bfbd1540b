"""Data source discovery of `format("rocketmq-commitlog")`, as in `pyspark_rocketmq`."""

from __future__ import annotations


def __getattr__(name: str) -> object:
    if name != "DefaultSource":
        raise AttributeError(name)
    from orbitlog.pipeline.sources.commitlog_source import CommitLogSource

    return CommitLogSource
