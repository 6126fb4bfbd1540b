"""Makes `spark.read.format("rocketmq")` work with no registration: Spark looks for `DefaultSource` in `pyspark_*`."""

from __future__ import annotations


def __getattr__(name: str) -> object:
    # Spark imports every module of such a name in every session; what is not asked for is not loaded.
    if name != "DefaultSource":
        raise AttributeError(name)
    from orbitlog.pipeline.sources.topic_source import TopicSource

    return TopicSource
