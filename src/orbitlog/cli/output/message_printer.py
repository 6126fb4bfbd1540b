"""Message printer: prints received messages as JSON, by a format string, or as text."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from orbitlog.cli.output.display_text import host_text, local_time, printable
from orbitlog.cli.output.json_rows import Output
from orbitlog.cli.output.row_format import RowFormat
from orbitlog.cli.output.row_output import check_template
from orbitlog.cli.output.stored_message_rows import STORED_FIELDS, message_json
from orbitlog.cli.output.terminal import value_text

if TYPE_CHECKING:
    from orbitlog.client.consumer.received import Received

MESSAGE_FIELDS = (*STORED_FIELDS, "brokerName", "body")


def message_fields(message: Received, *, as_text: bool = True) -> dict[str, Any]:
    """Return the fields; bytes that are not UTF-8 become replacement characters, or surrogates for a format string."""
    stored = message.stored
    fields: dict[str, Any] = json.loads(message_json(stored, stored.size_bytes)[0])
    fields["topic"] = message.topic
    fields["brokerName"] = message.broker_name or None
    fields["body"] = message.body.decode("utf-8", "replace" if as_text else "surrogateescape")
    return fields


class MessagePrinter:
    """Prints each message at once: as JSON, by a format string, or as the caller's line."""

    def __init__(self, output: Output) -> None:
        self._as_json = output.as_json
        self._template: RowFormat | None = check_template(output, MESSAGE_FIELDS)

    def show(self, message: Received, plain: str | None = None) -> None:
        """Print a message; `plain` is its line in text output, all details if None."""
        if self._template is not None:
            text = self._template.text(message_fields(message, as_text=False))
            click.echo(text.encode("utf-8", "surrogateescape"), nl=False)
        elif self._as_json:
            click.echo(json.dumps(message_fields(message), ensure_ascii=False))
        else:
            click.echo(_details(message) if plain is None else plain)


def _details(message: Received) -> str:
    stored = message.stored
    lines = [f"{printable(message.topic)}  queue {message.queue_id}  offset {message.queue_offset}"]
    for name, value in (
        ("id", message.message_id),
        ("offset id", message.offset_message_id),
        ("stored", local_time(stored.store_timestamp_ms)),
        ("born", f"{local_time(stored.born_timestamp_ms)} at {host_text(stored.born_host_raw)}"),
        ("attempts", str(message.attempts)),
        *sorted(message.properties.items()),
    ):
        lines.append(f"  {printable(name):14} {printable(value)}")
    return "\n".join([*lines, value_text(message.body.decode(errors="backslashreplace"))])
