"""Client metrics: connected producers and consumers by language and version, tables, limits and access refusals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from orbitlog.broker.metrics.group_names import is_system_group
from orbitlog.broker.runtime import broker_settings as keys
from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.broker.tables.clients import Member
from orbitlog.observe import metric_table as table
from orbitlog.observe.metric import Family, Row, single
from orbitlog.settings.limits import BROKER_LIMITS
from orbitlog.wire.client_versions import version_name

_MODES = {"CONSUME_ACTIVELY": "pull", "CONSUME_PASSIVELY": "push", "CONSUME_POP": "pop"}
_PROTOCOL = "remoting"
_OTHER = "other"
_LANGUAGES = frozenset("java cpp dotnet python delphi erlang ruby other http go php oms rust node_js unknown".split())


def _language(member: Member) -> str:
    language = member.language.lower()
    return language if language in _LANGUAGES else _OTHER  # clients choose the text freely


def client_families(state: BrokerState) -> Iterator[Family]:
    """Yield producers, consumers, and the sizes of the broker's tables."""
    producers: Counter[tuple[str, ...]] = Counter()
    for members in state.clients.producer_groups.values():
        for member in members.values():
            producers[_language(member), version_name(member.version), _PROTOCOL] += 1
    yield Family(
        table.PRODUCER_CONNECTIONS,
        [Row(table.PRODUCER_CONNECTIONS.text(*labels), count) for labels, count in producers.items()],
    )
    consumers: Counter[tuple[str, ...]] = Counter()
    for group in state.clients.consumer_groups:
        mode = _MODES.get(group.consume_type, _OTHER)
        for member in group.members.values():
            consumers[group.group, _language(member), version_name(member.version), mode] += 1
    rows = [
        Row(table.CONSUMER_CONNECTIONS.text(*labels, _PROTOCOL, is_system_group(labels[0])), count)
        for labels, count in consumers.items()
    ]
    yield Family(table.CONSUMER_CONNECTIONS, rows)
    yield single(table.TOPIC_NUMBER, len(state.topics.table))
    yield single(table.GROUP_NUMBER, len(state.groups.table))
    yield single(table.BROKER_PERMISSION, state.settings[keys.BROKER_PERMISSION])
    limits = [Row(table.LIMITS_REACHED.text(limit.key), state.limits.reached[limit.key]) for limit in BROKER_LIMITS]
    yield Family(table.LIMITS_REACHED, limits)
