"""Replay job: sends the messages of a store or a table into topics of a cluster, each once, resumable at any point.

    save plan -> a task reads its part and sends it through the sink, with marks -> report

The plan in the state directory fixes the content of each task: offset ranges of queues, or files of one version of a
table. A task is a partition of the sink's write, so a repeated one recognises the messages that brokers already have.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from orbitlog.jobs.local_runner import Runner, TaskReport
from orbitlog.pipeline.export.export_plan import shape_from_fields, write_whole
from orbitlog.pipeline.network.network_options import ClusterOptions
from orbitlog.pipeline.replay.replay_rows import (
    SOURCE_COLUMNS,
    ReplayRules,
    select_rows,
    sink_batch,
    sink_schema,
    source_columns,
    spark_schema,
)
from orbitlog.pipeline.replay.replay_tables import ReplayError, TableVersion, list_files, open_version, read_file
from orbitlog.pipeline.sink.partition_write import write_partition
from orbitlog.pipeline.sink.sink_columns import SinkColumns
from orbitlog.pipeline.sink.sink_marks import marks_at
from orbitlog.pipeline.sink.sink_options import (
    BATCH_BYTES_DEFAULT,
    BATCH_ROWS_DEFAULT,
    SENDS_IN_FLIGHT_DEFAULT,
    SinkOptions,
)
from orbitlog.pipeline.sink.write_identity import WriteIdentity
from orbitlog.pipeline.sources.broker_stores import BrokerStore, log_path_options
from orbitlog.pipeline.sources.queue_scan import IDENTITY_COLUMNS, ScanRules
from orbitlog.pipeline.sources.range_scan import open_scan
from orbitlog.pipeline.sources.read_plan import QueueRange, plan_ranges, plan_tasks
from orbitlog.pipeline.sources.source_options import parse_topic_options
from orbitlog.pipeline.sources.subscribed_queues import open_subscribed_queues

if TYPE_CHECKING:
    import pyarrow as pa

_PLAN = "replay.json"
_TASK_FILE_BYTES = 64 * 1024 * 1024
_GROUP = "orbitlog-replay"


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """A source (stores, or a table) and the rules of the replay."""

    state: Path | None
    rules: ReplayRules
    stores: tuple[BrokerStore, ...] = ()
    table: Path | None = None
    table_format: str = "parquet"
    fail_on_data_loss: bool = True

    @property
    def identity(self) -> dict[str, Any]:
        """The settings that must not change between runs."""
        source = {"stores": sorted(store.broker_name for store in self.stores)}
        if self.table is not None:
            source = {"table": [str(self.table.absolute()), self.table_format]}
        return {"source": source, "rules": orjson.loads(orjson.dumps(asdict(self.rules)))}


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """The tasks of a replay; each has queue ranges or files, and is the same in every run."""

    write_id: str
    table: TableVersion | None
    tasks: tuple[tuple[QueueRange | str, ...], ...]


@dataclass(frozen=True, slots=True)
class ReplayTask:
    """One task; without `sink` it only counts."""

    number: int
    plan_id: str
    table: TableVersion | None
    parts: tuple[QueueRange | str, ...]
    rules: ReplayRules
    fail_on_data_loss: bool
    sink: SinkOptions | None


@dataclass(slots=True)
class ReplayReport:
    """Result of a run; counts include tasks that earlier runs have finished."""

    sent: int = 0
    found: int = 0
    failed: int = 0
    tasks: int = 0
    resumed_tasks: int = 0
    topics: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Of a dry run: messages and body bytes by target topic."""

    def add(self, report: TaskReport) -> None:
        self.sent, self.found = self.sent + int(report["sent"]), self.found + int(report["found"])
        self.failed += int(report["failed"])


def replay_dry(run: Runner, request: ReplayRequest) -> ReplayReport:
    """Count what a replay would send, by target topic; send and write nothing."""
    plan = _plan(request)
    tasks = [_task(request, plan, number, None) for number in range(len(plan.tasks))]
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for report in run(run_task, tasks, name="replay, dry run"):
        for topic, (messages, size_bytes) in report["topics"].items():
            counts[topic] += messages
            sizes[topic] += size_bytes
    topics = {topic: (counts[topic], sizes[topic]) for topic in sorted(counts)}
    return ReplayReport(tasks=len(tasks), topics=topics)


def replay(
    run: Runner, request: ReplayRequest, cluster: ClusterOptions, *, rate: int | None = None, slots: int = 1
) -> ReplayReport:
    """Send the messages of the plan that are not sent yet; `slots` is how many tasks run at once, for the rate."""
    assert request.state is not None
    plan = _saved_plan(request.state, request, cluster)
    at_once = max(min(slots, len(plan.tasks)), 1) if rate is None else max(min(slots, len(plan.tasks), rate), 1)
    sink = _sink(request.state, plan, cluster, None if rate is None else max(rate // at_once, 1))
    marks = marks_at(sink.mark_path)
    result = ReplayReport(tasks=len(plan.tasks))
    waiting: list[ReplayTask] = []
    for number in range(len(plan.tasks)):
        done = marks.done(WriteIdentity(plan.write_id, 0, number))
        if done is None:
            waiting.append(_task(request, plan, number, sink))
        else:
            result.resumed_tasks += 1
            result.add(asdict(done))
    # A job for all tasks, unless the rate is so low that fewer of them may run than there are slots.
    step = len(waiting) if rate is None or at_once >= min(slots, len(plan.tasks)) else at_once
    for first in range(0, len(waiting), max(step, 1)):
        for report in run(run_task, waiting[first : first + step], name="replay"):
            result.add(report)
    return result


def run_task(task: ReplayTask) -> TaskReport:
    """Read the messages of a task and send them, or count them in a dry run."""
    batches = _batches(task)
    if task.sink is None:
        return _count(batches)
    columns = SinkColumns(sink_schema(task.rules), None)
    identity = WriteIdentity(task.plan_id, 0, task.number)
    # Marks state whether an earlier attempt may have sent messages.
    report = write_partition(task.sink, columns, identity, batches, is_retry=False)
    return {"sent": report.sent, "found": report.found, "failed": report.failed}


def _count(batches: Iterator[pa.RecordBatch]) -> TaskReport:
    topics: dict[str, tuple[int, int]] = {}
    for batch in batches:
        sizes = (len(body or b"") for body in batch.column("body").to_pylist())
        for topic, size_bytes in zip(batch.column("topic").to_pylist(), sizes, strict=True):
            messages, total_bytes = topics.get(topic or "", (0, 0))
            topics[topic or ""] = messages + 1, total_bytes + size_bytes
    return {"topics": topics}


def _batches(task: ReplayTask) -> Iterator[pa.RecordBatch]:
    for batch in _table_batches(task) if task.table is not None else _store_batches(task):
        selected = select_rows(batch, task.rules)
        if selected.num_rows:
            yield sink_batch(selected, task.rules)


def _table_batches(task: ReplayTask) -> Iterator[pa.RecordBatch]:
    assert task.table is not None
    for path in task.parts:
        assert isinstance(path, str)
        for batch in read_file(task.table, path):
            yield source_columns(batch, path)


def _store_batches(task: ReplayTask) -> Iterator[pa.RecordBatch]:
    from orbitlog.pipeline.sources.message_columns import RowMaker, columns_needed

    maker = RowMaker(spark_schema(SOURCE_COLUMNS))
    rules = ScanRules(task.rules.tags, fail_on_data_loss=task.fail_on_data_loss)
    scan = open_scan(columns_needed(maker.needs, IDENTITY_COLUMNS), rules)
    ranges = [part for part in task.parts if isinstance(part, QueueRange)]
    for queue_range, batch in scan.read(ranges):
        if batch.num_rows:
            yield source_columns(maker.make(batch, queue_range.shape.broker_name), queue_range.topic)


# Plans


def _plan(request: ReplayRequest) -> ReplayPlan:
    write_id = uuid.uuid4().hex
    if request.table is not None:
        table = open_version(request.table, request.table_format)
        return ReplayPlan(write_id, table, tuple(_file_tasks(list_files(table))))
    ranges = _ranges(request)
    if request.rules.keeps_queues:
        # One task for each queue: the parts of a queue would be sent at the same time, in no order.
        return ReplayPlan(write_id, None, tuple((queue_range,) for queue_range in ranges))
    return ReplayPlan(write_id, None, tuple(plan_tasks(ranges)))


def _file_tasks(files: Sequence[tuple[str, int]]) -> Iterator[tuple[str, ...]]:
    """Combine small files to one task; a file is not divided."""
    pending: list[str] = []
    pending_bytes = 0
    for path, size_bytes in files:
        if pending and pending_bytes + size_bytes > _TASK_FILE_BYTES:
            yield tuple(pending)
            pending, pending_bytes = [], 0
        pending.append(path)
        pending_bytes += size_bytes
    if pending:
        yield tuple(pending)


def _ranges(request: ReplayRequest) -> list[QueueRange]:
    """Return what stores have of the topics now, within the times."""
    rules = request.rules
    options = {"storePath": ",".join(f"{store.broker_name}={store.root}" for store in request.stores)}
    options |= {"subscribe": ",".join(rules.topics), "failOnDataLoss": str(request.fail_on_data_loss).lower()}
    options |= log_path_options(request.stores)
    if rules.from_ms is not None:
        options |= {"startingTimestamp": str(rules.from_ms), "startingOffsetsByTimestampStrategy": "latest"}
    if rules.to_ms is not None:
        options["endingTimestamp"] = str(rules.to_ms)
    with open_subscribed_queues(parse_topic_options(options, is_stream=False)) as queues:
        start, end = queues.clip_to_existing(queues.start(), queues.end())
        return plan_ranges(start, end, queues.shapes)


def _saved_plan(state: Path, request: ReplayRequest, cluster: ClusterOptions) -> ReplayPlan:
    """Return the plan of an interrupted replay, or make one and save it."""
    path = state / _PLAN
    if path.exists():
        value = orjson.loads(path.read_bytes())
        if value["identity"] != request.identity:
            raise ReplayError(
                f"{state} holds a replay with other settings; repeat it with the same ones, or give a new directory"
            )
        begun_with = value.get("nameServers", [])
        if begun_with and not set(begun_with) & set(cluster.name_servers):
            # Marks state what was sent to one cluster: in another one those messages would be missing.
            raise ReplayError(
                f"{state} holds a replay into the cluster of {', '.join(begun_with)}; give one of these name servers,"
                " or a new directory for another cluster"
            )
        tasks = tuple(tuple(_part(part) for part in task) for task in value["tasks"])
        return ReplayPlan(value["writeId"], value["table"] and TableVersion(**value["table"]), tasks)
    if state.exists() and any(state.iterdir()):
        raise ReplayError(f"{state} is not empty and contains no replay; give a new directory")
    plan = _plan(request)
    tasks_value = [[part if isinstance(part, str) else asdict(part) for part in task] for task in plan.tasks]
    table = None if plan.table is None else asdict(plan.table)
    value = {"identity": request.identity, "writeId": plan.write_id, "table": table, "tasks": tasks_value}
    write_whole(path, orjson.dumps(value | {"nameServers": sorted(cluster.name_servers)}))
    return plan


def _part(value: Any) -> QueueRange | str:
    return value if isinstance(value, str) else QueueRange(**{**value, "shape": shape_from_fields(value["shape"])})


def _task(request: ReplayRequest, plan: ReplayPlan, number: int, sink: SinkOptions | None) -> ReplayTask:
    rules = request.rules if plan.table is not None else replace(request.rules, from_ms=None, to_ms=None)
    return ReplayTask(number, plan.write_id, plan.table, plan.tasks[number], rules, request.fail_on_data_loss, sink)


def _sink(state: Path, plan: ReplayPlan, cluster: ClusterOptions, rate: int | None) -> SinkOptions:
    absolute = state.absolute()
    return SinkOptions(
        cluster=cluster,
        topic=None,
        producer_group=_GROUP,
        # A request has at most the messages of a second, so that a low rate is not sent in bursts.
        batch_rows=BATCH_ROWS_DEFAULT if rate is None else min(BATCH_ROWS_DEFAULT, rate),
        batch_bytes=BATCH_BYTES_DEFAULT,
        sends_in_flight=SENDS_IN_FLIGHT_DEFAULT,
        mark_path=str(absolute / "marks"),
        write_id=plan.write_id,
        is_transactional=False,
        failed_rows_path=str(absolute / "failed"),
        sent_rows_path=str(absolute / "sent"),
        rows_per_second_max=rate,
    )
