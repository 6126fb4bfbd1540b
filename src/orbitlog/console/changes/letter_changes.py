"""Replay of dead letters: a plan with the target of each letter, then a job that sends them and records each."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from orbitlog.client.admin.dead_letters import DeadLetters, paced, target_topic
from orbitlog.client.admin.replay_record import SENT, ReplayRecord
from orbitlog.client.consumer.received import Received
from orbitlog.console.changes.planned_change import ChangeRequest, PlanLine, PreparedChange, ResultLine
from orbitlog.console.console_call import Call
from orbitlog.console.sources.server_problems import problem_sentence
from orbitlog.console.views.answers import ConsoleError
from orbitlog.console.views.known_names import require_topic
from orbitlog.console.views.letter_view import LOOKED_AT_MAX, LetterQuery, letter_filter
from orbitlog.console.work.background_jobs import Job
from orbitlog.errors import ClientError, OrbitlogError
from orbitlog.settings.atomic_file import create_directory

LETTERS_MAX = 5000
_TYPED_FROM = 100
_COLUMNS = ["letter", "state", "target", "new message id", "queue", "offset", "reason"]
Place = tuple[str, str, int, int]
_Text = Annotated[str, Meta(max_length=256)]


class ReplayRequest(ChangeRequest, kw_only=True):
    """Letters to replay, and their target."""

    to: Annotated[
        Literal["group", "origin", "topic"], Meta(description="Only this group, the original topic, or a topic")
    ] = "group"
    to_topic: Annotated[str, Meta(max_length=255, description="For topic: its name")] = ""
    tags: _Text = ""
    key: _Text = ""
    message_id: Annotated[str, Meta(max_length=256, description="One letter")] = ""
    text: Annotated[str, Meta(max_length=256, description="Text in the body")] = ""
    since: Annotated[str, Meta(max_length=40, description="-2h, milliseconds, or ISO 8601 in UTC")] = ""
    until: Annotated[str, Meta(max_length=40, description="As since")] = ""
    rate: Annotated[float, Meta(gt=0, le=10_000, description="Letters a second at most")] = 100.0
    limit: Annotated[int, Meta(ge=1, le=LETTERS_MAX, description="Letters at most")] = 1000


def record_path(call: Call, group: str) -> Path:
    """Return the file that records which letters of a group were replayed."""
    name = hashlib.sha256(f"{call.cluster.name}\0{group}".encode()).hexdigest()[:32]
    return call.console.options.data_directory / "replays" / f"{name}.jsonl"


async def prepare_replay(call: Call) -> PreparedChange:
    group, request, source = call.path["group"], call.query, call.cluster
    if (request.to == "topic") != bool(request.to_topic):
        raise ConsoleError(400, "give `toTopic` for a replay to a topic, and only then")
    record = ReplayRecord(record_path(call, group))
    targets: dict[Place, str] = {}
    lines: list[PlanLine] = []
    reasons: list[str] = []
    already, looked_at = 0, 0
    async for letter in _letters(call, group):
        looked_at += 1
        line = record.find(_place(letter))
        if line is not None and line.state == SENT:
            already += 1
            continue
        if looked_at > LOOKED_AT_MAX or len(targets) == request.limit:
            reasons.append("more letters match: replay again for the rest")
            break
        try:
            target = target_topic(letter, group, to_origin=request.to == "origin", to_topic=request.to_topic or None)
        except ClientError as error:
            reasons.append(str(error))
            continue
        targets[_place(letter)] = target
        lines.append(PlanLine(what=letter.message_id, before=_words(letter), after=f"new message in {target}"))
    if already:
        reasons.append(f"{already:,} letters were replayed already and are left out")
    if request.to != "group":  # brokers create the retry topic of a group with the first message sent to it
        sample = await source.sample()
        for target in sorted(set(targets.values())):
            require_topic(source, sample, target)

    async def apply() -> list[ResultLine]:
        title = f"replay {_counted(len(targets))} of {group}"
        job = call.console.jobs.submit(
            "replay", title, call.visitor.name, lambda job: _replay(job, call, group, targets)
        )
        return [ResultLine(what="job", done=True, result=job.id)]

    return PreparedChange(
        action="replay dead letters",
        target=group,
        sentence=f"send {_counted(len(targets))} of group {group} as new messages; the letters themselves stay",
        lines=lines,
        apply=apply,
        confirm=group if len(targets) > _TYPED_FROM else "",
        warnings=list(dict.fromkeys(reasons))[:20],
        starts_job=True,
    )


async def _replay(job: Job, call: Call, group: str, targets: dict[Place, str]) -> None:
    path = record_path(call, group)
    create_directory(path.parent, 0o700)
    letters, pace = DeadLetters(call.cluster.admin), paced(call.query.rate)
    job.columns, job.steps_total = _COLUMNS, len(targets)
    failed = 0
    with ReplayRecord(path) as record:
        # A send of an interrupted replay may have arrived without being recorded: look before sending more.
        await letters.settle(record)
        async for letter in _letters(call, group):
            target = targets.get(_place(letter))
            if target is None:
                continue
            try:
                line = await letters.replay(letter, target, record)
            except OrbitlogError as error:
                failed += 1
                job.add_row([letter.message_id, "failed", target, None, None, None, problem_sentence(error)])
            else:
                if line is None:
                    job.add_row([letter.message_id, "sent before", target, None, None, None, ""])
                else:
                    row = [letter.message_id, "sent", target, line.newMsgId, line.toQueueId, line.toQueueOffset, ""]
                    job.add_row(row)
            job.steps_done += 1
            await anext(pace)
    job.note = f"{job.steps_done - failed:,} sent, {failed:,} failed"


def _letters(call: Call, group: str) -> AsyncIterator[Received]:
    request = call.query
    query = LetterQuery(
        tags=request.tags,
        key=request.key,
        message_id=request.message_id,
        text=request.text,
        since=request.since,
        until=request.until,
    )
    return DeadLetters(call.cluster.admin).letters(group, letter_filter(query, call.cluster.now_ms))


def _counted(count: int) -> str:
    return f"{count:,} dead letter{'' if count == 1 else 's'}"


def _place(letter: Received) -> Place:
    stored = letter.stored
    return stored.topic, letter.broker_name, stored.queue_id, stored.queue_offset


def _words(letter: Received) -> str:
    return f"dead letter at {letter.broker_name}, offset {letter.stored.queue_offset:,}, {len(letter.body):,} bytes"
