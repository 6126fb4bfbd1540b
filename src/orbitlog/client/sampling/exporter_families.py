"""Exporter families: the numbers of a cluster sample under the names of rocketmq-exporter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from orbitlog.client.sampling import runtime_values as values
from orbitlog.client.sampling.cluster_sampler import SamplerCounts
from orbitlog.client.sampling.sampled_numbers import BrokerSample, ClusterSample, Progress
from orbitlog.formats.names import DLQ_PREFIX, RETRY_PREFIX
from orbitlog.observe import exporter_table as table
from orbitlog.observe.metric import PAUSE, Collected, Family, Metric, Row, single

_CLUSTERING = "1"  # ordinal of Java's MessageModel
_ADDRESSES_MAX = 1024
_Rows = Iterable[tuple[tuple[object, ...], float | None]]


def _family(metric: Metric, rows: _Rows) -> Family:
    """Return a family; rows without a value are left out."""
    return Family(metric, [Row(metric.text(*labels), value) for labels, value in rows if value is not None])


class ExporterFamilies:
    """Reads the latest sample of a cluster."""

    def __init__(self, counts: SamplerCounts) -> None:
        self._counts = counts
        self.sample: ClusterSample | None = None

    def read(self, _: int) -> Collected:
        """Yield all families; only those of the exporter itself before the first sample."""
        yield single(table.REQUESTS, self._counts.requests)
        yield single(table.FAILED, self._counts.failed)
        yield single(table.POSTPONED, self._counts.postponed)
        yield single(table.ROUND_SECONDS, round(self._counts.round_seconds, 3))
        sample = self.sample
        if sample is None:
            return
        yield single(table.SAMPLED_TIME, sample.sampled_ms / 1000)
        for families in (_brokers, _runtime, _topics, _groups, _diffs, _clients):
            for family in families(sample):
                yield family
                yield PAUSE


def _brokers(sample: ClusterSample) -> Iterator[Family]:
    masters = [broker for broker in sample.brokers if broker.is_master]
    yield _family(table.BROKER_TPS, ((_broker_labels(broker), broker.put_tps) for broker in masters))
    yield _family(table.BROKER_QPS, ((_broker_labels(broker), broker.get_tps) for broker in masters))
    ends = {broker.name: _log_end(broker) for broker in masters}
    slaves = (broker for broker in sample.brokers if not broker.is_master and broker.name in ends)
    yield _family(
        table.COMMITLOG_DIFF, ((_broker_labels(slave), ends[slave.name] - _log_end(slave)) for slave in slaves)
    )
    yield _family(table.PRODUCER_COUNT, sample.producers.items())


def _broker_labels(broker: BrokerSample) -> tuple[object, ...]:
    return broker.cluster, broker.address, broker.name


def _log_end(broker: BrokerSample) -> int:
    return values.whole(broker.runtime.get("commitLogMaxOffset"))


def _runtime(sample: ClusterSample) -> Iterator[Family]:
    rows: dict[Metric, list[tuple[tuple[object, ...], float | None]]] = {}
    for broker in sample.brokers:
        if not broker.is_master:
            continue
        runtime = broker.runtime
        description, version = runtime.get("brokerVersionDesc", ""), runtime.get("brokerVersion", "")
        labels = broker.cluster, broker.address, "", description, runtime.get("bootTimestamp", ""), version
        for metric, value in _runtime_values(broker):
            rows.setdefault(metric, []).append((labels, value))
    for metric, found in rows.items():
        yield _family(metric, found)


def _runtime_values(broker: BrokerSample) -> Iterator[tuple[Metric, float | None]]:
    runtime, derived = broker.runtime, table.RUNTIME_DERIVED
    for key, metric in table.RUNTIME_KEYS.items():
        yield metric, values.number(runtime.get(key))
    for kind in values.RATES:
        for window, rate in zip(values.WINDOWS_S, values.rates(runtime, kind), strict=False):
            yield derived[f"{kind}_tps{window}"], rate
    capacity = values.capacity(runtime)
    if capacity is not None:
        yield derived["commitlogdir_capacity_total"], capacity[0]
        yield derived["commitlogdir_capacity_free"], capacity[1]
    yield derived["remain_howmanydata_toflush"], values.unflushed_bytes(runtime)
    counts = values.put_times(runtime)
    for text, metric in table.RUNTIME_PUT_TIMES.items():
        yield metric, counts.get(text, 0)


def _topics(sample: ClusterSample) -> Iterator[Family]:
    ordinary = [
        (key, topic) for key, topic in sample.topics.items() if not key.topic.startswith((RETRY_PREFIX, DLQ_PREFIX))
    ]
    yield _family(table.PRODUCER_TPS, ((key, topic.put_tps) for key, topic in ordinary))
    yield _family(table.PRODUCER_SIZE, ((key, topic.put_size) for key, topic in ordinary))
    yield _family(table.PRODUCER_OFFSET, ((key, topic.offset) for key, topic in ordinary))
    retry = ((key, topic.offset) for key, topic in sample.topics.items() if key.topic.startswith(RETRY_PREFIX))
    yield _family(table.RETRY_OFFSET, retry)
    letters = (
        ((key.cluster, key.broker, key.topic.removeprefix(DLQ_PREFIX)), topic.offset)
        for key, topic in sample.topics.items()
        if key.topic.startswith(DLQ_PREFIX)
    )
    yield _family(table.DLQ_OFFSET, letters)


def _groups(sample: ClusterSample) -> Iterator[Family]:
    def waited(progress: Progress) -> float:
        return max(sample.sampled_ms - progress.waiting_since_ms, 0) if progress.waiting_since_ms else 0

    columns: tuple[tuple[Metric, Callable[[Progress], float]], ...] = (
        (table.CONSUMER_OFFSET, lambda progress: progress.broker_offset),
        (table.CONSUME_TOTAL_OFFSET, lambda progress: progress.consumer_offset),
        (table.CONSUME_TPS, lambda progress: progress.consume_tps),
        (table.STORE_TIME_LATENCY, waited),
    )
    for metric, value in columns:
        yield _family(metric, ((key, value(progress)) for key, progress in sample.progress.items()))
    yield _family(table.CONSUMER_TPS, ((key, rates.get_tps) for key, rates in sample.rates.items()))
    yield _family(table.CONSUMER_SIZE, ((key, rates.get_size) for key, rates in sample.rates.items()))
    yield _family(table.SEND_BACK_NUMS, ((key, rates.send_back) for key, rates in sample.rates.items()))


def _diffs(sample: ClusterSample) -> Iterator[Family]:
    lags: dict[tuple[str, str], int] = {}
    for key, progress in sample.progress.items():
        lags[key.group, key.topic] = lags.get((key.group, key.topic), 0) + progress.lag
    families: dict[Metric, list[tuple[tuple[object, ...], float]]] = {
        table.GROUP_DIFF: [],
        table.GROUP_RETRY_DIFF: [],
        table.GROUP_DLQ_DIFF: [],
    }
    for (group, topic), lag in lags.items():
        members = sample.members.get(group)
        if members is not None and members.message_model == "BROADCASTING":
            continue  # its members keep their offsets themselves
        count = len(members.connections) if members is not None else 0
        families[_diff_metric(topic)].append(((group, topic, count, _CLUSTERING), lag))
    for metric, rows in families.items():
        yield _family(metric, rows)
    groups = {key.group for key in sample.progress} | sample.members.keys()
    yield _family(table.GROUP_COUNT, (_member_row(sample, group) for group in sorted(groups)))


def _diff_metric(topic: str) -> Metric:
    if topic.startswith(RETRY_PREFIX):
        return table.GROUP_RETRY_DIFF
    return table.GROUP_DLQ_DIFF if topic.startswith(DLQ_PREFIX) else table.GROUP_DIFF


def _member_row(sample: ClusterSample, group: str) -> tuple[tuple[object, ...], float]:
    members = sample.members.get(group)
    connections = members.connections if members is not None else ()
    addresses = ",".join(each.client_address for each in connections)[:_ADDRESSES_MAX]
    ids = ",".join(each.client_id for each in connections)[:_ADDRESSES_MAX]
    return (addresses, ids, group), len(connections)


def _clients(sample: ClusterSample) -> Iterator[Family]:
    rows = [
        ((client.address, key.client_id, key.group, topic), status)
        for key, client in sample.clients.items()
        for topic, status in client.statuses.items()
    ]
    yield _family(table.CLIENT_FAILED, ((labels, status.failed_in_hour) for labels, status in rows))
    yield _family(table.CLIENT_FAILED_TPS, ((labels, status.failed_tps) for labels, status in rows))
    yield _family(table.CLIENT_OK_TPS, ((labels, status.consumed_tps) for labels, status in rows))
    yield _family(table.CLIENT_CONSUME_RT, ((labels, status.consume_ms) for labels, status in rows))
    yield _family(table.CLIENT_PULL_RT, ((labels, status.pull_ms) for labels, status in rows))
    yield _family(table.CLIENT_PULL_TPS, ((labels, status.pull_tps) for labels, status in rows))
