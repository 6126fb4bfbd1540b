"""`orbitlog dlq`: lists, shows and replays dead letters of a running cluster."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from orbitlog.cli.cluster.cluster_options import cluster_options
from orbitlog.cli.cluster_connection import run_with_admin
from orbitlog.cli.contexts import Cluster
from orbitlog.cli.main import Problem, WrongUse
from orbitlog.cli.name_completion import group_argument
from orbitlog.cli.output.display_text import body_preview, counted, local_time, printable
from orbitlog.cli.output.json_rows import Output
from orbitlog.cli.output.message_printer import MessagePrinter
from orbitlog.cli.output.row_output import show_rows
from orbitlog.cli.output.stream_table import Column

if TYPE_CHECKING:
    from orbitlog.client.admin.administration import Administration
    from orbitlog.client.admin.dead_letters import LetterFilter
    from orbitlog.client.consumer.received import Received

F = TypeVar("F", bound=Callable[..., Any])

_QUEUE_COLUMNS = (
    Column("group"),
    Column("brokerName"),
    Column("queueId", right=True),
    Column("letters", right=True),
    Column("firstOffset", right=True),
)
_LETTER_COLUMNS = (
    Column("msgId"),
    Column("storeTime"),
    Column("topic"),
    Column("tries", right=True),
    Column("tags"),
    Column("keys"),
    Column("body"),
)
_REPLAY_COLUMNS = (
    Column("msgId"),
    Column("toTopic"),
    Column("newMsgId"),
    Column("toQueueId", right=True),
    Column("toQueueOffset", right=True),
)


def filter_options(function: F) -> F:
    """Add the options that filter dead letters."""
    options = (
        click.option("--tags", help="Only letters with this tag."),
        click.option("--key", help="Only letters with this key."),
        click.option("--id", "message_id", help="Only the letter with this message id."),
        click.option("--contains", "text", help="Only letters whose body contains this text."),
        click.option("--since", help="Only letters stored at or after this time (ISO 8601, local)."),
        click.option("--until", help="Only letters stored before this time (ISO 8601, local)."),
    )
    for option in reversed(options):
        function = option(function)
    return function


def _filter(given: dict[str, Any]) -> LetterFilter:
    from orbitlog.client.admin.dead_letters import LetterFilter

    since_ms, until_ms = _time_ms("--since", given.pop("since")), _time_ms("--until", given.pop("until"))
    return LetterFilter(**given, since_ms=since_ms, until_ms=until_ms)


def _time_ms(option: str, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise WrongUse(f"{option} {text!r} is not a valid time; write 2026-01-31T12:00") from None


@click.group("dlq", help="List, show and replay dead letters of a running cluster.")
def command() -> None:
    """The group."""


@command.command("list", help="List the dead-letter queues of all groups, or the dead letters of GROUP.")
@group_argument(required=False)
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, help="Maximum number of letters.")
@filter_options
@cluster_options
def list_letters(*, group: str | None, limit: int, cluster: Cluster, output: Output, **given: Any) -> None:
    wanted = _filter(given)

    async def queues(admin: Administration) -> list[dict[str, Any]]:
        from orbitlog.client.admin.dead_letters import DeadLetters

        return [
            {
                "group": queue.group,
                "brokerName": queue.queue.broker_name,
                "queueId": queue.queue.queue_id,
                "letters": queue.end - queue.first,
                "firstOffset": queue.first,
            }
            for queue in await DeadLetters(admin).queues()
        ]

    if group is None:
        show_rows(_QUEUE_COLUMNS, run_with_admin(cluster, queues), output)
        return
    letters = run_with_admin(cluster, lambda admin: _letters(admin, group, wanted, limit))
    show_rows(_LETTER_COLUMNS, map(_row, letters), output)


async def _letters(admin: Administration, group: str, wanted: LetterFilter, limit: int | None) -> list[Received]:
    from orbitlog.client.admin.dead_letters import DeadLetters

    letters: list[Received] = []
    async for letter in DeadLetters(admin).letters(group, wanted):
        letters.append(letter)
        if len(letters) == limit:
            break
    return letters


def _row(letter: Received) -> dict[str, Any]:
    return {
        "msgId": letter.message_id,
        "storeTime": local_time(letter.stored.store_timestamp_ms),
        "topic": printable(letter.properties.get("RETRY_TOPIC", "")),
        "tries": letter.attempts,
        "tags": printable(letter.tags or ""),
        "keys": printable(" ".join(letter.keys)),
        "body": body_preview(letter.body),
    }


@command.command("show", help="Show all details of the dead letter ID of GROUP.")
@group_argument()
@click.argument("message_id", metavar="ID")
@cluster_options
def show_letter(*, group: str, message_id: str, cluster: Cluster, output: Output) -> None:
    from orbitlog.client.admin.dead_letters import LetterFilter

    wanted = LetterFilter(message_id=message_id)
    letters = run_with_admin(cluster, lambda admin: _letters(admin, group, wanted, 1))
    if not letters:
        raise Problem(f"group {group} has no dead letter {message_id}")
    MessagePrinter(output).show(letters[0])


@command.command(
    "replay",
    help="""Replay dead letters of GROUP: send each as a new message, by default to the group only.

    The dead letter itself stays. Each replay is recorded in a file with its target and new message id; the same
    command resumes an interrupted replay and sends nothing twice.""",
)
@group_argument()
@click.option(
    "--to-origin", is_flag=True, help="Send to the original topic: every group that subscribes to it receives them."
)
@click.option("--to-topic", help="Send to this topic.")
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), help="Maximum letters per second.")
@click.option("--limit", type=click.IntRange(1), help="Maximum number of letters.")
@click.option("--dry-run", is_flag=True, help="Print the letters that would be sent, and send none.")
@click.option(
    "--record",
    "record_path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File that records the replay [orbitlog-replay-GROUP.jsonl].",
)
@filter_options
@cluster_options
def replay(
    *,
    group: str,
    to_origin: bool,
    to_topic: str | None,
    rate: float | None,
    limit: int | None,
    dry_run: bool,
    record_path: Path | None,
    cluster: Cluster,
    output: Output,
    **given: Any,
) -> None:
    if to_origin and to_topic is not None:
        raise WrongUse("give one of --to-origin and --to-topic")
    wanted = _filter(given)
    path = record_path or Path(f"orbitlog-replay-{group}.jsonl")

    async def work(admin: Administration) -> list[dict[str, Any]]:
        from orbitlog.cli.cluster.letter_replay import LetterReplay

        letters = LetterReplay(group, wanted, path, to_origin, to_topic, rate, limit)
        return await (letters.plan(admin) if dry_run else letters.run(admin))

    rows = run_with_admin(cluster, work)
    show_rows(_REPLAY_COLUMNS, rows, output)
    if output.is_table:
        done = "would be replayed" if dry_run else f"replayed; recorded in {path}"
        click.echo(f"{counted(len(rows), 'dead letter')} {done}")
