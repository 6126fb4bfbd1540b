"""Known names: refuse a request about a topic or a group that no broker of its cluster has."""

from __future__ import annotations

from orbitlog.console.sources.cluster_sample import ClusterSample
from orbitlog.console.sources.cluster_source import ClusterSource
from orbitlog.console.views.answers import ConsoleError

# A broker refuses longer names; the start of one is enough to recognize it.
NAME_CHARACTERS_SHOWN = 130


async def sample_with_topic(source: ClusterSource, topic: str) -> ClusterSample:
    """Return a sample that has the topic; raise `ConsoleError` with 404 if no broker has it."""
    sample = await source.sample_having(topic)
    require_topic(source, sample, topic)
    return sample


def require_topic(source: ClusterSource, sample: ClusterSample, topic: str) -> None:
    """Raise `ConsoleError` with 404 if no broker of the sample has the topic."""
    if topic not in sample.topic_names:
        raise ConsoleError(404, f"no broker of {source.name} has the topic {topic[:NAME_CHARACTERS_SHOWN]}")


def require_group(source: ClusterSource, sample: ClusterSample, group: str) -> None:
    """Raise `ConsoleError` with 404 if no broker of the sample has the group, nor committed offsets of it."""
    if group not in sample.group_names:
        raise unknown_group(source, group)


def unknown_group(source: ClusterSource, group: str) -> ConsoleError:
    return ConsoleError(404, f"no broker of {source.name} has the group {group[:NAME_CHARACTERS_SHOWN]}")
