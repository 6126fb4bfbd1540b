"""Data source discovery: Spark finds `format("rocketmq")` as `DefaultSource` of the `pyspark_*` packages."""

from __future__ import annotations


def __getattr__(name: str) -> object:
    # Spark imports every `pyspark_*` module in every session, so the source is loaded only when it is used.
    if name != "DefaultSource":
        raise AttributeError(name)
    from orbitlog.pipeline.sources.topic_source import TopicSource

    return TopicSource
