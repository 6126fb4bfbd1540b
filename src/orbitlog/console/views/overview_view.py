"""Overview of a cluster: problems first, each with a link, then the figures that matter."""

from __future__ import annotations

import msgspec

from orbitlog.console.sources.cluster_sample import ClusterSample
from orbitlog.console.sources.cluster_source import ClusterSource
from orbitlog.console.sources.group_lag import group_lag
from orbitlog.console.sources.lag_history import total_rate
from orbitlog.console.views.answers import Answer, ListQuery, Missing, missing_parts
from orbitlog.console.views.broker_view import BrokerRow, broker_row, name_server_rows
from orbitlog.console.views.group_members import read_members
from orbitlog.console.views.group_view import dead_letter_count, is_stuck, waited_ms
from orbitlog.console.views.topic_view import shown_topics
from orbitlog.formats import names

DISK_WARNING, DISK_PROBLEM = 0.85, 0.90
LAG_BYTES_MAX = 256 << 20
_GROUPS_SHOWN = 10


class HealthFinding(Answer, kw_only=True):
    """One finding: severity `problem`, `warning` or `note`, a sentence, and the page about it."""

    severity: str
    sentence: str
    page: str
    name: str = ""


class LaggingGroup(Answer, kw_only=True):
    """A group with lag."""

    group: str
    lag: int


class OverviewAnswer(Answer, kw_only=True):
    """The state of a cluster on one page; None stands for an unknown figure."""

    cluster: str
    address: str
    healthy: bool | None
    findings: list[HealthFinding]
    brokers: int
    brokers_answering: int
    topics: int
    groups: int
    in_per_second: float | None
    out_per_second: float | None
    lag: int | None
    disk_used_ratio: float | None
    lagging: list[LaggingGroup]
    unread_groups: int
    as_of: int
    problems: list[Missing] = msgspec.field(default_factory=list)
    unknown: dict[str, str] = msgspec.field(default_factory=dict)


async def overview(source: ClusterSource, stuck_after_seconds: float) -> OverviewAnswer:
    """Return the overview; groups that lag most are asked how long their next message has waited."""
    sample = await source.sample()
    rows = [broker_row(broker) for broker in sample.brokers]
    groups = [group for group in sorted(sample.group_names) if not names.is_system_group(group)]
    lags = {group: group_lag(sample, group) for group in groups}
    lagging = sorted(
        ((found.lag, group) for group, found in lags.items() if found.lag), key=lambda entry: (-entry[0], entry[1])
    )
    unread = [group for group, found in lags.items() if found.lag is None and found.topics]
    findings = [*_servers(sample, rows), *_disks(rows), *_letters(sample, groups)]
    for lag, group in lagging[:_GROUPS_SHOWN]:
        findings += await _stuck(source, sample, group, lag, stuck_after_seconds)
    findings.sort(key=lambda finding: ("problem", "warning", "note").index(finding.severity))
    ratios = [row.disk_used_ratio for row in rows if row.disk_used_ratio is not None]
    unknown = {}
    if unread:
        unknown["lag"] = f"the ends of the topics of {len(unread)} groups were not read yet"
    elif any(broker.offsets.value is None for broker in sample.masters):
        unknown["lag"] = "a broker did not return committed offsets"
    elif not sample.brokers and any(server.brokers.problem is not None for server in sample.name_servers):
        unknown["lag"] = "no name server has answered"
    return OverviewAnswer(
        cluster=source.name,
        address=source.address,
        healthy=_is_healthy(sample, findings),
        findings=findings,
        brokers=len(rows),
        brokers_answering=sum(row.answers for row in rows),
        topics=len(shown_topics(sample, ListQuery())),
        groups=len(groups),
        in_per_second=total_rate(sample, "putTps"),
        out_per_second=total_rate(sample, "getTransferredTps"),
        lag=None if unknown else sum(lag for lag, _ in lagging),
        disk_used_ratio=max(ratios) if ratios and len(ratios) == len(rows) else None,
        lagging=[LaggingGroup(group=group, lag=lag) for lag, group in lagging[:_GROUPS_SHOWN]],
        unread_groups=len(unread),
        as_of=sample.as_of_ms,
        problems=missing_parts(sample),
        unknown=unknown,
    )


def _is_healthy(sample: ClusterSample, findings: list[HealthFinding]) -> bool | None:
    """Return None if no broker has answered: nothing is known then."""
    if any(finding.severity == "problem" for finding in findings):
        return False
    return True if any(broker.runtime.value is not None for broker in sample.brokers) else None


def _servers(sample: ClusterSample, rows: list[BrokerRow]) -> list[HealthFinding]:
    findings = []
    for server in name_server_rows(sample):
        if not server.answers:
            sentence = f"name server {server.address} does not answer: {server.problem}"
            findings.append(HealthFinding(severity="problem", sentence=sentence, page="brokers"))
        for name in server.missing:
            sentence = f"name server {server.address} does not know broker {name}, other name servers do"
            findings.append(HealthFinding(severity="warning", sentence=sentence, page="brokers"))
    if not rows and all(server.brokers.problem is None for server in sample.name_servers):
        sentence = "no broker is registered; `orbitlog up` starts one with its own name server"
        findings.append(HealthFinding(severity="problem", sentence=sentence, page="brokers"))
    for row in rows:
        if not row.answers:
            sentence = f"broker {row.name} ({row.address}) does not answer: {row.problem}"
            findings.append(HealthFinding(severity="problem", sentence=sentence, page="brokers"))
    masters = {row.name for row in rows if row.broker_id == 0}
    for name in sorted({row.name for row in rows} - masters):
        sentence = f"broker {name} has no master: its topics cannot be written to"
        findings.append(HealthFinding(severity="problem", sentence=sentence, page="brokers"))
    return findings


def _disks(rows: list[BrokerRow]) -> list[HealthFinding]:
    findings = []
    for row in rows:
        ratio = row.disk_used_ratio
        if ratio is not None and ratio >= DISK_WARNING:
            severity = "problem" if ratio >= DISK_PROBLEM else "warning"
            sentence = f"disk of broker {row.name} is {ratio:.0%} full; brokers refuse messages at {DISK_PROBLEM:.0%}"
            findings.append(HealthFinding(severity=severity, sentence=sentence, page="brokers"))
        for lag_bytes, words in (
            (row.dispatch_lag_bytes, "undispatched messages, which consumers do not see yet"),
            (row.flush_lag_bytes, "unflushed messages, which a power cut would lose"),
        ):
            if lag_bytes is not None and lag_bytes > LAG_BYTES_MAX:
                sentence = f"broker {row.name} has {lag_bytes >> 20} MiB of {words}"
                findings.append(HealthFinding(severity="problem", sentence=sentence, page="brokers"))
    return findings


def _letters(sample: ClusterSample, groups: list[str]) -> list[HealthFinding]:
    findings = []
    for group in groups:
        count, _ = dead_letter_count(sample, group)
        if count:
            sentence = f"group {group} has {count:,} dead letter{'s' if count > 1 else ''}"
            findings.append(HealthFinding(severity="note", sentence=sentence, page="dead-letters", name=group))
    return findings


async def _stuck(
    source: ClusterSource, sample: ClusterSample, group: str, lag: int, stuck_after_seconds: float
) -> list[HealthFinding]:
    waited = await waited_ms(source, sample, group)
    if waited is None or waited < stuck_after_seconds * 1000:
        return []
    members = await read_members(source, sample, group)
    unread = f"{lag:,} message{' is' if lag == 1 else 's are'} unread"
    wait = f"{waited // 60_000} min" if waited >= 60_000 else f"{waited // 1000} s"
    since = f"its next message has waited for {wait}, {unread}"
    if members.clients:
        if not is_stuck(source, group, waited, stuck_after_seconds):
            sentence = f"group {group} lags: {since}"
            return [HealthFinding(severity="warning", sentence=sentence, page="groups", name=group)]
        count = len(members.clients)
        sentence = f"group {group} is stuck: {since}, its {count} member{'s' if count > 1 else ''} commit nothing"
        return [HealthFinding(severity="problem", sentence=sentence, page="groups", name=group)]
    sentence = f"group {group} has no members: {since}"
    return [HealthFinding(severity="warning", sentence=sentence, page="groups", name=group)]
