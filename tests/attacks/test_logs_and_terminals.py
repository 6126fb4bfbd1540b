"""Text of strangers: log files keep one line a record, and a terminal gets no control sequence of a name or body."""

from __future__ import annotations

import io
import json
import logging
import os
import pty
import re
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from orbitlog.cli.mqadmin.mq_messages import _write_body
from orbitlog.cli.mqadmin.verb_session import VerbFailed
from orbitlog.cli.output.log_lines import (
    LINE_CHARACTERS_MAX,
    LINES_PER_MINUTE_MAX,
    VALUE_CHARACTERS_MAX,
    JsonFormatter,
    LineFormatter,
    LineRate,
    LogFile,
)
from orbitlog.cli.output.terminal import TerminalStream, escaped, styled
from orbitlog.cli.store_options import warn
from orbitlog.errors import StoreLinkError
from orbitlog.testing.running_broker import RunningBroker
from orbitlog.wire.codes import RequestCode
from tests.support.raw_peer import RawPeer
from tests.support.serving_process import PROGRAM, serving

CLIPBOARD = "\x1b]52;c;ZXZpbA==\x07"
HOSTILE = (
    CLIPBOARD,
    "\x1b[2J",
    "\x1b]0;title\x07",
    "\x1b[8mhidden\x1b[0m",
    "\x9b31m",
    "a\rb",
    "a\bb",
    "\x1bP+q\x1b\\",
    "\u202egnp.exe",
    "\u2028line",
    "\x00",
    "\x7f",
)


# Logs


def logged(message: str, *values: object, exc_info: bool | BaseException = False) -> str:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LineFormatter("%(levelname)s %(message)s"))
    logger = logging.Logger("test")
    logger.addHandler(handler)
    logger.warning(message, *values, exc_info=exc_info)
    return stream.getvalue()


@pytest.mark.parametrize("text", HOSTILE)
def test_log_record_is_one_printable_line(text: str) -> None:
    line = logged("client %s joined", f"evil{text}\n2026-01-01 INFO forged")
    assert line.count("\n") == 1 and line.endswith("\n")
    assert line[:-1].isprintable()


@pytest.mark.parametrize("text", HOSTILE)
def test_json_record_is_one_printable_line_with_the_same_values(text: str) -> None:
    record = logging.LogRecord("orbitlog", logging.WARNING, "module.py", 1, "client %s joined", (text,), None)
    record.event, record.fields = "client_joined", {"subject": f"evil{text}", f"key{text}": 1}
    line = JsonFormatter("%(message)s").format(record)
    assert line.isprintable()
    found = json.loads(line)
    assert found["subject"] == f"evil{text}" and found[f"key{text}"] == 1


def test_long_value_is_cut_and_the_rest_of_the_line_stays() -> None:
    line = logged("client %s from %s", "x" * 16_000_000, "127.0.0.1")
    assert len(line) < VALUE_CHARACTERS_MAX + 200
    assert line.endswith("from 127.0.0.1\n") and f"({16_000_000 - VALUE_CHARACTERS_MAX} characters more)" in line


def test_long_line_is_cut() -> None:
    assert len(logged("%s", ["x" * 1_000_000])) < LINE_CHARACTERS_MAX + 200


def test_line_that_a_peer_makes_repeat_is_left_out_and_counted() -> None:
    rate, formatter = LineRate(), LineFormatter("%(message)s")

    def shown(line: int, seconds: float) -> str:
        record = logging.LogRecord("orbitlog", logging.WARNING, "module.py", line, "group %s moved", ("g",), None)
        record.created = seconds
        return formatter.format(record) if rate.filter(record) else ""

    lines = [shown(10, 5.0) for _ in range(LINES_PER_MINUTE_MAX + 500)]
    assert sum(map(bool, lines)) == LINES_PER_MINUTE_MAX
    assert shown(11, 6.0) == "group g moved", "other places in the code are not affected"
    assert shown(10, 66.0) == "group g moved (500 lines like it were left out before)"
    assert shown(10, 67.0) == "group g moved"


def test_traceback_cannot_forge_a_record() -> None:
    try:
        raise ValueError("evil\nWARNING forged record \x1b[2J")
    except ValueError as error:
        text = logged("request failed", exc_info=error)
    lines = text.splitlines()
    assert [line for line in lines if line.startswith("WARNING")] == ["WARNING request failed"]
    assert all(line.isprintable() for line in lines) and any("forged record" in line for line in lines)


def test_broker_log_has_no_line_of_a_client(tmp_path: Path) -> None:
    """A client id and a broker name with line ends, over the network, in the log file of `orbitlog up`."""
    forged = "\n2026-01-01 00:00:00,000 INFO    orbitlog: forged by a stranger\x1b[2J"
    words = ("up", "--store", str(tmp_path / "store"), "--name-server-port", "0", "--broker-port", "0")
    with serving(*words) as (_, ready):
        heartbeat = {
            "clientID": f"evil{forged}",
            "consumerDataSet": [
                {
                    "groupName": "G",
                    "consumeType": "CONSUME_PASSIVELY",
                    "messageModel": "CLUSTERING",
                    "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
                    "subscriptionDataSet": [],
                }
            ],
            "producerDataSet": [],
        }
        with RawPeer(ready["broker"]) as peer:
            peer.ask(RequestCode.HEART_BEAT, body=json.dumps(heartbeat).encode())
            peer.ask(RequestCode.UPDATE_BROKER_CONFIG, body=f"evil{forged}=1".encode())
        with RawPeer(ready["name-server"]) as peer:
            fields = {"brokerName": f"b{forged}", "brokerAddr": "a", "clusterName": "c", "brokerId": "0"}
            peer.ask(RequestCode.UNREGISTER_BROKER, fields)
        log = Path(ready["log"])
        text = log.read_text()
    assert "forged by a stranger" in text
    assert not re.search(r"^2026-01-01", text, re.MULTILINE)
    assert all(line.isprintable() for line in text.splitlines())
    assert stat.S_IMODE(log.stat().st_mode) & 0o007 == 0 and stat.S_IMODE(log.parent.stat().st_mode) & 0o007 == 0


def test_log_file_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("private")
    (tmp_path / "up.log").symlink_to(tmp_path / "victim")
    with pytest.raises(StoreLinkError):
        LogFile(tmp_path / "up.log", encoding="utf-8")
    (tmp_path / "pipe.log").unlink(missing_ok=True)
    os.mkfifo(tmp_path / "pipe.log")
    with pytest.raises(StoreLinkError):
        LogFile(tmp_path / "pipe.log", encoding="utf-8")
    assert (tmp_path / "victim").read_text() == "private"


# Terminals


def on_terminal(*words: str) -> str:
    """Run a command whose stdout and stderr are a terminal; return what that was sent."""
    parent, child = pty.openpty()
    process = subprocess.Popen([*PROGRAM, *words], stdin=child, stdout=child, stderr=child)
    os.close(child)
    output = b""
    while True:
        try:
            data = os.read(parent, 65536)
        except OSError:  # Linux reports the end of a terminal as an error
            break
        if not data:
            break
        output += data
    os.close(parent)
    process.wait(60)
    return output.decode("utf-8", "backslashreplace").replace("\r\n", "\n")


@pytest.mark.parametrize("text", HOSTILE)
def test_stream_to_a_terminal_escapes_control_sequences(text: str) -> None:
    shown = escaped(f"before {text} after\n")
    assert shown.rstrip("\n").isprintable()


@pytest.mark.parametrize("text", ["plain\n", "tab\tand\nline\n", "Grüße, 世界 🙂\n"])
def test_stream_to_a_terminal_keeps_text(text: str) -> None:
    assert escaped(text) == text


@pytest.mark.parametrize("text", ["\x1b[31mred\x1b[0m", "\x1b[30;40mhidden", "\x1b[38;5;16mhidden", "\x1b[m"])
def test_only_styles_of_commands_reach_a_terminal(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """A name in the colour of the background, or in that of another column, deceives its reader."""
    raw = io.BytesIO()
    monkeypatch.setattr("sys.stdout", TerminalStream(raw, encoding="utf-8", write_through=True))
    print(styled(f"bold {text}", bold=True), styled("x", fg="cyan"), text)
    shown = raw.getvalue().decode()
    plain = repr(text)[1:-1]
    assert shown == f"\x1b[1mbold {plain}\x1b[0m \x1b[36mx\x1b[0m {plain}\n"


def test_sentence_on_stderr_cannot_overwrite_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """The progress line may: a sentence with a name may not."""
    raw = io.BytesIO()
    stream = TerminalStream(raw, encoding="utf-8", write_through=True)
    stream.is_progress = True
    monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stderr", stream)
    warn("file \r\x1b[Knothing happened")
    assert raw.getvalue() == b"orbitlog: file \\r\\x1b[Knothing happened\n"


def test_stream_reports_the_characters_that_it_was_given() -> None:
    raw = io.BytesIO()
    stream = TerminalStream(raw, encoding="utf-8", write_through=True)
    assert stream.write(CLIPBOARD) == len(CLIPBOARD)
    assert b"\x1b" not in raw.getvalue()


@pytest.mark.slow
def test_commands_show_hostile_messages_safely(start_target: Callable[..., RunningBroker]) -> None:
    target = start_target()
    body = f"body {CLIPBOARD}\x1b[31mred\rover"
    with target.connect() as mq:
        sent = mq.send("Orders", body, keys=["k"], properties={"colour": f"red{CLIPBOARD}"})
    name_server = ("--name-server", target.address)
    commands = (
        ("message", "get", sent.message_id, "--topic", "Orders", *name_server),
        ("tail", "Orders", "--from", "earliest", "--no-follow", *name_server),
        ("message", "get", sent.message_id, "--topic", "Orders", "-f", "{body}", *name_server),
        ("message", "get", sent.message_id, "--topic", "Orders", "--json", *name_server),
        ("mqadmin", "queryMsgById", "-n", target.address, "-i", sent.offset_message_id, "-t", "Orders", "-f", "UTF-8"),
        ("mqadmin", "printMsg", "-n", target.address, "-t", "Orders"),
        ("dump", "commitlog", str(target.store)),
    )
    for words in commands:
        shown = on_terminal(*words)
        assert "body" in shown or words[:2] == ("dump", "commitlog"), (words, shown)
        assert "\x1b]" not in shown and "\x07" not in shown and "\r" not in shown, (words, shown)
        assert "\x1b[31mred" not in shown, (words, shown)


def test_output_into_a_pipe_is_unchanged(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; from orbitlog.cli.output.terminal import *; protect_terminal(); print('\\x1b]')",
        ],
        capture_output=True,
        check=True,
    )
    assert done.stdout == b"\x1b]\n"


# Directories that every user of the machine shares


class _Message:
    message_id = offset_message_id = "7F0000010000"
    body = b"private"


@pytest.mark.parametrize("part", ["rocketmq", "rocketmq/msgbodys"])
@pytest.mark.parametrize("kind", ["link", "writable"])
def test_bodies_are_not_written_below_a_directory_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str, kind: str
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    place = tmp_path / part
    place.parent.mkdir(exist_ok=True)
    if kind == "link":
        place.symlink_to(elsewhere)
    else:
        place.mkdir()
        place.chmod(0o777)
    with pytest.raises(VerbFailed, match="TMPDIR"):
        _write_body(_Message(), 0)  # type: ignore[arg-type]
    assert not any(path.is_file() for path in tmp_path.rglob("*"))


def test_bodies_are_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    path = Path(_write_body(_Message(), 0))  # type: ignore[arg-type]
    assert path == tmp_path / "rocketmq" / "msgbodys" / "7F0000010000" and path.read_bytes() == b"private"
    assert [stat.S_IMODE(each.stat().st_mode) for each in (path, path.parent)] == [0o600, 0o700]
