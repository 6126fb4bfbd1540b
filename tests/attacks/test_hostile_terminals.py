"""Every command on a terminal, with names, bodies, tables and refusals that contain control sequences.

The commands come from the tables of the command line: a new one needs values for its parameters here, or a reason why
it is left out.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import pytest

from orbitlog.cli.main import cli
from orbitlog.cli.mqadmin.verb_table import VERBS
from orbitlog.formats.records.message import encode_message, make_message
from orbitlog.testing.running_broker import RunningBroker
from tests.support.link_proxy import ProxyThread
from tests.support.renaming_proxy import RenamingProxy
from tests.support.store_kinds import CONFIG, SEGMENT_BYTES, STORED_MS, make_store, put
from tests.support.terminal_runs import ENDLESS_SECONDS, SECONDS_MAX, leaves

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
MARK = "EVILxMARK"
PINK = "\x1b[38;5;199m"
"""A colour that no command uses: names must not colour anything either."""
HOSTILE = f"\x1b]52;c;ZXZpbA==\x07{PINK}pink\x9b2J\u202e\x7f\x1b[31mred\r\x1b[Kwiped"
FORBIDDEN = ("\x1b]", "\x07", PINK, "\x9b", "\u202e", "\x7f", "\x1b[31mred", "\x1b[Kwiped", "Traceback")
ESCAPED = re.compile(r"\\(x1b|u001b)\]52")
SHOWN_MIN = 45
"""So many commands print the sequences, escaped: else the test would have lost its power."""

SPARK = "starts Spark: its output uses the same stream"
LEFT_OUT = {
    **dict.fromkeys(("up", "broker", "mirror", "nameserver"), "a server: test_logs_and_terminals.py"),
    **dict.fromkeys((f"pipeline {name}" for name in ("check", "query", "stats", "export", "replay", "rebuild")), SPARK),
    **dict.fromkeys(("pipeline serve", "pipeline dispatch"), SPARK),
    "demo": "prints its own messages",
    "completion": "prints a script of Orbitlog",
    "mqadmin": "by its verbs",
    "access tls init": "writes certificates of names that the user gives",
    "bench send": "measures a load of its own for long",
    "bench consume": "the same",
}
PROMPTS = {"access user add", "access user passwd", "console user add"}
ENDLESS = {"exporter", "top", "mqadmin clusterRT", "mqadmin checkMsgSendRT", "mqadmin sendMsgStatus", *PROMPTS}
"""These run until they are interrupted, or for long."""
VALUES = {
    **{"topic": f"{MARK}-topic", "group": f"{MARK}-group", "message_id": "{id}", "key": "k", "bodies": "text"},
    **{"broker_name": f"{MARK}-broker", "member_id": "2", "target": "earliest", "keys": "brokerName", "name": "alice"},
    **{"assignments": "flushIntervalCommitLog=500", "path": "{store}", "store": "{store}", "out": "{new}"},
    **{"account": "alice", "resource": "Topic:T", "actions": "Pub", "home": "{store}", "address": "{name-server}"},
    **{"what": "ready", "role": "viewer"},
}
OPTIONS = {
    "tail": ("--no-follow", "--from", "earliest"),
    "message tail": ("--no-follow", "--from", "earliest"),
    "exporter": ("--port", "0"),
    "topic delete": ("--yes",),
    "group delete": ("--yes",),
    "message get": ("--topic", f"{MARK}-topic"),
    "doctor move": ("--to", "java"),
    "context add": ("--nameserver", "{name-server}"),
}
FLAGS = {
    **{"t": f"{MARK}-topic", "g": f"{MARK}-group", "b": "{broker}", "c": f"{MARK}-cluster", "i": "{id}", "k": "k"},
    **{"n": "{name-server}", "p": "6", "m": "get", "s": "now", "a": f"{MARK}-broker", "q": "0", "o": "0", "v": "1"},
    **{"u": "alice", "f": "{broker}", "r": "Topic:T", "d": "Allow", "bn": f"{MARK}-broker", "l": "1"},
}
VERB_FLAGS = {
    ("cloneGroupOffset", "s"): f"{MARK}-group",
    ("cloneGroupOffset", "d"): "other",
    ("printMsgByQueue", "i"): "0",
    ("queryCq", "i"): "0",
    ("queryMsgByOffset", "b"): f"{MARK}-broker",
    ("queryMsgByOffset", "i"): "0",
    ("sendMessage", "p"): "text",
    ("setConsumeMode", "m"): "POP",
    ("wipeWritePerm", "b"): f"{MARK}-broker",
    ("addWritePerm", "b"): f"{MARK}-broker",
    ("createUser", "p"): "password1",
    ("copyUser", "t"): "{broker}",
    ("copyAcl", "t"): "{broker}",
    ("electMaster", "b"): "1",
    ("sendMsgStatus", "b"): f"{MARK}-broker",
    ("getAcl", "s"): "User:alice",
    ("deleteAcl", "s"): "User:alice",
    ("createAcl", "a"): "Pub",
    ("updateAcl", "a"): "Pub",
    ("createAcl", "s"): "User:alice",
    ("updateAcl", "s"): "User:alice",
}


@dataclass
class Target:
    """A cluster behind renaming proxies, and a store with hostile names."""

    name_server: RenamingProxy
    broker: RenamingProxy
    words: dict[str, str]

    def filled(self, text: str) -> str:
        for name, value in self.words.items():
            text = text.replace(f"{{{name}}}", value)
        return text


def hostile_store(root: Path) -> None:
    """An ordinary store whose tables, queues, files and messages have control sequences in their names."""
    make_store(root)
    name = HOSTILE.replace("/", "")
    table = {"topicConfigTable": {name: {"topicName": name, "attributes": {name: name}}}, "dataVersion": {}}
    put(root / "config" / "topics.json", json.dumps(table).encode())
    put(root / "config" / "consumerOffset.json", json.dumps({"offsetTable": {f"{name}@{name}": {"0": 7}}}).encode())
    put(root / "config" / "subscriptionGroup.json", json.dumps({"subscriptionGroupTable": {name: {}}}).encode())
    put(root / "config" / f"{name}.json", json.dumps({name: name}).encode())
    put(root / "consumequeue" / name / "0" / f"{0:020d}", bytes(200))
    put(root / "consumequeue" / "T" / name / f"{0:020d}", bytes(200))
    put(root / "index" / name, b"x")
    put(root / f"directory {name}" / "file", b"x")
    (root / "commitlog" / name).symlink_to("elsewhere")
    last = max(path for path in (root / "commitlog").iterdir() if path.name.isdigit())
    records = last.read_bytes().rstrip(b"\0")
    message = make_message(
        "T",
        HOSTILE.encode(),
        queue_id=0,
        queue_offset=30,
        properties={"KEYS": HOSTILE, "TAGS": HOSTILE, HOSTILE: HOSTILE},
        physical_offset=int(last.name) + len(records),
        store_timestamp_ms=STORED_MS,
    )
    last.write_bytes((records + encode_message(message)).ljust(SEGMENT_BYTES, b"\0"))
    assert CONFIG is not None


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Target]:
    settings = {"brokerName": f"{MARK}-broker", "brokerClusterName": f"{MARK}-cluster"}
    with RunningBroker(tmp_path / "served", settings) as broker, broker.connect() as mq:
        properties = {"colour": HOSTILE, HOSTILE: "x"}
        sent = mq.send(f"{MARK}-topic", f"body {HOSTILE}", keys=["k", HOSTILE], properties=properties)
        mq.send(f"%DLQ%{MARK}-group", f"body {HOSTILE}", keys=["k"])
        consumer = mq.consume(f"{MARK}-topic", group=f"{MARK}-group", start_from="first")  # stays connected
        message = consumer.next(20)
        assert message is not None
        message.ack()
        hostile_store(tmp_path / "store")
        thread = ProxyThread()
        host, _, port = broker.broker_address.rpartition(":")
        proxy = RenamingProxy(thread, (host, int(port)), {MARK: HOSTILE})
        host, _, port = broker.address.rpartition(":")
        renamed = {MARK: HOSTILE, broker.broker_address: proxy.address}
        name_server = RenamingProxy(thread, (host, int(port)), renamed)
        words = {
            **{"id": sent.message_id, "store": str(tmp_path / "store"), "new": str(tmp_path / "new")},
            **{"name-server": name_server.address, "broker": proxy.address},
        }
        try:
            yield Target(name_server, proxy, words)
        finally:
            thread.close()


def command_runs(target: Target) -> dict[str, list[str]]:
    """Return the words of every command of the tables that is not left out."""
    runs: dict[str, list[str]] = {}
    for path, command in leaves(cli):
        name = " ".join(path)
        if name in LEFT_OUT:
            continue
        options, arguments = [*OPTIONS.get(name, ())], []
        for parameter in command.params:
            if isinstance(parameter, click.Argument):
                arguments.append(value_of(name, parameter, target))
            elif parameter.required and parameter.opts[0] not in options:
                options += [parameter.opts[0], value_of(name, parameter, target)]
            elif "--name-server" in parameter.opts:
                options += ["--name-server", target.words["name-server"]]
        if path[0] == "access" and "import" not in path:
            options += ["--file", target.words["store"] + "/config/access.json"]
        runs[name] = [*path, *map(target.filled, options), *arguments]
    for verb in VERBS.values():
        words = ["mqadmin", verb.name]
        chosen = {flag.one_of for flag in verb.own_flags} - {""}
        for flag in (*verb.own_flags, *(flag for flag in verb.flags if flag.short == "n")):
            is_first = flag.one_of in chosen
            chosen -= {flag.one_of}
            if flag.required or is_first or flag.short == "n":
                value = VERB_FLAGS.get((verb.name, flag.short)) or FLAGS.get(flag.short)
                assert value is not None, f"mqadmin {verb.name}: give flag -{flag.short} a value in FLAGS"
                words += [f"-{flag.short}", *([target.filled(value)] if flag.takes_value else [])]
        runs[f"mqadmin {verb.name}"] = words
    return dict(sorted(runs.items(), key=lambda item: is_last(item[0])))


def is_last(name: str) -> bool:
    """Return whether a command takes away what others show."""
    return any(part in name.lower() for part in ("delete", "remove", "clean", "reset", "wipe", "perm", "skip"))


def value_of(name: str, parameter: click.Parameter, target: Target) -> str:
    assert parameter.name in VALUES, f"{name}: give parameter {parameter.name} a value in VALUES, or leave it out"
    return target.filled(VALUES[parameter.name])


def on_terminals(runs: dict[str, list[str]], tmp_path: Path) -> dict[str, str]:
    """Run the commands; return what the terminal of each was sent."""
    seconds = {name: ENDLESS_SECONDS if name in ENDLESS else SECONDS_MAX for name in runs}
    listed = [{"words": words, "seconds": seconds[name]} for name, words in runs.items()]
    for name in ("runs", "settings"):
        (tmp_path / name).mkdir(exist_ok=True)
    (tmp_path / "runs.json").write_text(json.dumps(listed))
    home = str(tmp_path / "settings")
    environment = {**os.environ, "COLUMNS": "400", "PYTHONUTF8": "1", "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    environment |= dict.fromkeys(("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"), home)
    environment.setdefault("XDG_CACHE_HOME", str(Path.home() / ".cache"))  # compiled kernels
    words = [sys.executable, "-m", "tests.support.terminal_runs", str(tmp_path / "runs.json")]
    done = subprocess.run(words, cwd=tmp_path / "runs", env=environment, stdout=subprocess.PIPE, check=True)
    shown = dict(zip(runs, json.loads(done.stdout), strict=True))
    assert [name for name, (_, has_ended) in shown.items() if not has_ended and name not in ENDLESS] == []
    return {name: text for name, (text, _) in shown.items()}


def unsafe(shown: dict[str, str]) -> dict[str, str]:
    """Return the commands that sent a terminal something it would carry out, with the place."""
    found = {}
    for name, text in shown.items():
        for sequence in FORBIDDEN:
            if (at := text.find(sequence)) >= 0:
                found[name] = text[max(at - 120, 0) : at + 120]
    return found


def test_every_command_escapes_names_bodies_and_tables(target: Target, tmp_path: Path) -> None:
    shown = on_terminals(command_runs(target), tmp_path)
    assert unsafe(shown) == {}
    without = sorted(name for name, text in shown.items() if not ESCAPED.search(text))
    assert len(shown) - len(without) >= SHOWN_MIN, without


def test_every_command_escapes_refusals_of_a_server(target: Target, tmp_path: Path) -> None:
    target.name_server.refuses = target.broker.refuses = True
    shown = on_terminals(command_runs(target), tmp_path)
    assert unsafe(shown) == {}
    without = sorted(name for name, text in shown.items() if not ESCAPED.search(text))
    assert len(shown) - len(without) >= SHOWN_MIN, without


def test_reasons_to_leave_a_command_out_are_about_commands_that_exist() -> None:
    assert LEFT_OUT.keys() <= {" ".join(path) for path, _ in leaves(cli)}
