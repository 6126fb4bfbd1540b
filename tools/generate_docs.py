"""Documentation generator: rewrites generated parts; `--check` reports parts that are out of date instead.

Two kinds of regions in any Markdown file are rewritten:

* the lines between `<!-- generated: NAME ... -->` and `<!-- end generated -->`, by the generator of that name;
* the output in a fence marked `console run`: each line that starts with `$ ` is run in a directory with two stores
  written by Apache brokers, `store` (4.9.7, closed cleanly) and `crashed` (5.5.0, killed).

A fence marked `python run` is run in the same directory and must succeed; it is not rewritten.
"""

from __future__ import annotations

import dataclasses
import difflib
import enum
import functools
import importlib
import inspect
import json
import os
import pkgutil
import re
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

import click

import orbitlog
from orbitlog import formats
from orbitlog.broker.runtime.broker_settings import BROKER_SETTINGS
from orbitlog.cli.main import cli
from orbitlog.cli.mqadmin.verb_table import VERBS
from orbitlog.formats import compat
from orbitlog.formats.delay_levels import DEFAULT_LEVELS, STANDARD_LEVELS, DelayLevels
from orbitlog.formats.layout import Layout, declared_layouts
from orbitlog.nameserver.nameserver_settings import NAMESERVER_SETTINGS
from orbitlog.nameserver.namesrv_keys import NAMESRV_KEYS, NAMESRV_TABLES
from orbitlog.observe.metric_table import ALL as ALL_METRICS
from orbitlog.settings.java_keys import ABSENT, JAVA_VERSIONS, JavaKey
from orbitlog.settings.runtime_keys import RUNTIME_RANGES
from orbitlog.settings.setting import Setting
from orbitlog.settings.setting_classes import BEHAVIOUR, HARMLESS, SAFETY
from orbitlog.settings.setting_review import BROKER_KEYS, KeyTables, harmless_values
from orbitlog.settings.store_settings import SETTINGS
from orbitlog.testing.golden import extract_golden

ROOT = Path(__file__).resolve().parent.parent
HELP_WIDTH = 100
_SIGNATURE_WIDTH = 110
GOLDEN_NAMES = {"store": "apache-4.9.7", "crashed": "apache-5.5.0-crash"}

_REGION = re.compile(
    r"(?P<start><!-- generated: (?P<name>[a-z-]+)(?P<argument>[^\n]*?) -->\n).*?(?P<end><!-- end generated -->)",
    re.DOTALL,
)
_FENCE = re.compile(r"^```(?P<language>console|python) run\n(?P<content>.*?)^```$", re.DOTALL | re.MULTILINE)


# What code knows about itself


def all_layouts() -> dict[str, Layout]:
    for module in pkgutil.walk_packages(formats.__path__, "orbitlog.formats."):
        importlib.import_module(module.name)
    return declared_layouts()


def layout_table(title: str) -> str:
    """One layout: position, size, type, name and meaning of each field."""
    layout = all_layouts()[title]
    rows = [
        f"| {layout.position(field.name)} | {field.size_bytes} | {field.type} | `{field.name}` | {field.meaning} |"
        for field in layout.fields
    ]
    head = ["| at | bytes | type | field | meaning |", "|---:|---:|---|---|---|"]
    return "\n".join([*head, *rows, f"| {layout.size_bytes} | | | | *end* |"])


def position_table(prefix: str) -> str:
    """Layouts whose titles start alike, side by side: where each field starts."""
    layouts = {
        title.removeprefix(prefix).strip(" ()"): layout
        for title, layout in all_layouts().items()
        if title.startswith(prefix)
    }
    first = next(iter(layouts.values()))
    rows = [
        f"| `{field.name}` | " + " | ".join(str(layout.position(field.name)) for layout in layouts.values()) + " |"
        for field in first.fields
    ]
    head = ["| field | " + " | ".join(layouts) + " |", "|---|" + "---:|" * len(layouts)]
    return "\n".join(
        [*head, *rows, "| *end* | " + " | ".join(str(layout.size_bytes) for layout in layouts.values()) + " |"]
    )


def other_layouts(_: str) -> str:
    """Draw the layouts that docs/formats.md has no place of their own for."""
    page = (ROOT / "docs" / "formats.md").read_text()
    placed = re.findall(r"<!-- generated: (layout|positions) ([^\n]+) -->", page)
    titles = [
        title
        for title in sorted(all_layouts())  # the order of imports is another one wherever other modules came first
        if not any(title == name if kind == "layout" else title.startswith(name) for kind, name in placed)
    ]
    if not titles:
        return "None: every layout stands above."
    return "\n\n".join(f"### {title}\n\n{layout_table(title)}" for title in titles) + "\n"


def compat_table(_: str) -> str:
    """What differs between the lines of versions."""
    head = ["| rule | " + " | ".join(compat.COMPATS) + " |", "|---|" + "---|" * len(compat.COMPATS)]
    rows = [
        f"| {meaning} | " + " | ".join(in_words(getattr(rules, name)) for rules in compat.COMPATS.values()) + " |"
        for name, meaning in compat.RULES.items()
    ]
    return "\n".join([*head, *rows])


def in_words(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(f"`{item}`" for item in value) if isinstance(value, tuple) else str(value)


def settings_table(_: str) -> str:
    """Every setting with its default."""
    return settings_rows(map(with_runtime, SETTINGS.values()))


def broker_settings_table(_: str) -> str:
    """Every setting of the broker itself, and whether it may be changed while the broker runs."""
    return settings_rows(map(with_runtime, BROKER_SETTINGS.values()))


def with_runtime(setting: Setting[Any]) -> Setting[Any]:
    """Add whether a request may change a setting, and the range that it may set."""
    if setting.key not in RUNTIME_RANGES:
        return setting
    allowed = RUNTIME_RANGES[setting.key]
    note = "run-time" if allowed is None else f"run-time, {allowed.start} to {allowed.stop - 1}"
    return replace(setting, help=f"{setting.help} ({note})")


def settings_rows(settings: Iterable[Setting[Any]]) -> str:
    rows = [f"| `{setting.key}` | `{plain_default(setting.default)}` | {setting.help} |" for setting in settings]
    return "\n".join(["| key | default | meaning |", "|---|---|---|", *rows])


def nameserver_settings_table(_: str) -> str:
    """Every setting of the name server with its default."""
    settings = NAMESERVER_SETTINGS.values()
    rows = [f"| `{each.key}` | {in_code(plain_default(each.default))} | {each.help} |" for each in settings]
    return "\n".join(["| key | default | meaning |", "|---|---|---|", *rows])


def setting_classes(name: str) -> str:
    """List Java's keys of one class that no table above has."""
    if name == "harmless":
        return ", ".join(f"`{key}`" for key in sorted(HARMLESS, key=str.lower))
    return class_rows(SAFETY if name == "safety" else BEHAVIOUR, BROKER_KEYS)


def nameserver_setting_classes(name: str) -> str:
    """List the keys of Java's namesrv.conf of one class that no table above has."""
    if name == "harmless":
        others = NAMESRV_KEYS.keys() - NAMESERVER_SETTINGS.keys() - {*NAMESRV_TABLES.safety, *NAMESRV_TABLES.behaviour}
        return ", ".join(f"`{key}`" for key in sorted(others, key=str.lower))
    return class_rows(NAMESRV_TABLES.safety if name == "safety" else NAMESRV_TABLES.behaviour, NAMESRV_TABLES)


def class_rows(sentences: Mapping[str, str], tables: KeyTables) -> str:
    rows = [
        f"| `{key}` | {', '.join(map(harmless_value, harmless_values(key, tables)))} |"
        f" {java_versions(tables.java_keys[key])} | {sentence} |"
        for key, sentence in sentences.items()
    ]
    return "\n".join(["| key | without effect | read by | otherwise |", "|---|---|---|---|", *rows])


def harmless_value(value: str) -> str:
    number = value.removeprefix("<=")
    return f"`{value}`" if value and number == value else f"up to {number}" if number else "empty"


def java_versions(key: JavaKey) -> str:
    versions = zip(JAVA_VERSIONS, key.defaults, strict=True)
    return ", ".join(version for version, default in versions if default != ABSENT)


def in_code(text: str) -> str:
    return f"`{text}`" if text != "None" else ""


def plain_default(value: object) -> str:
    """Show a default as one would write it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, DelayLevels):
        return DEFAULT_LEVELS if value == STANDARD_LEVELS else str(value.delays_ms)
    if isinstance(value, tuple):
        return ";".join(f"{part:02d}" if isinstance(part, int) else part for part in value)
    return value.name if isinstance(value, compat.Compat) else str(value)


def make_targets(_: str) -> str:
    """The table of `make help`."""
    lines = re.findall(r"^([a-z-]+):.*?## (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    return "\n".join(["| command | does |", "|---|---|", *(f"| `make {name}` | {does} |" for name, does in lines)])


def chart_values() -> Iterator[tuple[str, str, str]]:
    """Yield path, default and description of each value of the Helm chart: the comments `# -- ` in values.yaml."""
    import yaml

    text = (ROOT / "deploy/helm/orbitlog/values.yaml").read_text()
    defaults, path, description = yaml.safe_load(text), list[str](), ""
    for line in text.splitlines():
        if comment := re.fullmatch(r" *# -- (.+)", line):
            description = comment[1]
        elif key := re.match(r"( *)(\w+):", line):
            path[len(key[1]) // 2 :] = [key[2]]
            if description:
                value = functools.reduce(lambda part, name: part[name], path, defaults)
                yield ".".join(path), json.dumps(value), description
                description = ""


def chart_value_table(_: str) -> str:
    """Every value of the Helm chart with its default."""
    rows = [f"| `{path}` | `{default}` | {description} |" for path, default, description in chart_values()]
    return "\n".join(["| value | default | meaning |", "|---|---|---|", *rows])


def image_sizes(_: str) -> str:
    """Sizes of the images that `make image` built last, from deploy/image/sizes.json."""
    recorded = json.loads((ROOT / "deploy/image/sizes.json").read_text())
    rows = [
        f"| `{name}` | {image['extras']} | {image['unpackedMB']} MB | {image['compressedMB']} MB |"
        for name, image in recorded.items()
    ]
    return "\n".join(["| image | extras | unpacked | compressed |", "|---|---|---:|---:|", *rows])


def decisions(_: str) -> str:
    """The decision records, by number."""
    records = sorted((ROOT / "docs" / "adr").glob("[0-9]*.md"))
    titles = [(record, record.read_text().splitlines()[0].removeprefix("# ")) for record in records]
    return "\n".join(f"- [{title}](adr/{record.name})" for record, title in titles)


# The command line


def command_tree() -> Iterator[tuple[str, click.Command]]:
    """Yield every command with its full name, parents first."""
    yield from below("orbitlog", cli)


def below(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    yield name, command
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=name)
        for child_name in command.list_commands(context):
            child = command.get_command(context, child_name)
            if child is not None and not child.hidden:
                yield from below(f"{name} {child_name}", child)


def command_help(name: str, command: click.Command) -> str:
    context = click.Context(command, info_name=name, terminal_width=HELP_WIDTH, max_content_width=HELP_WIDTH)
    return command.get_help(context)


def command_line(_: str) -> str:
    """The help of every command."""
    sections = (f"## {name}\n\n```text\n{command_help(name, command)}\n```" for name, command in command_tree())
    return "\n" + "\n\n".join(sections) + "\n"


def benchmark_figures(_: str) -> str:
    """The figures that are recorded in the repository, each group with the run that it was taken in."""
    recorded = json.loads((ROOT / "benchmarks" / "results" / "recorded.json").read_text())
    lines: list[str] = []
    taken = ""
    for group in recorded["groups"]:
        machine = f"{group['processor']}, {group['cores']} cores, {group['system']}, Python {group['python']}"
        if taken != (taken := f"Measured on {group['when'][:10]} on {machine}, commit {group['commit']}:"):
            lines += ["", taken]
        lines += ["", f"**{group['group']}**"]
        if group["figures"]:
            lines += ["", "| | GB/s | M msg/s | times as fast as |", "|---|---|---|---|"]
        for figure in group["figures"]:
            ratios = ", ".join(f"{name}: {ratio:.2f}" for name, ratio in figure["ratios"].items())
            speed = f"{figure['gigabytesPerSecond']:.2f} | {figure['messagesPerSecond'] / 1e6:.3f}"
            lines.append(f"| {figure['name']} | {speed} | {ratios} |")
        if group["readings"]:
            lines += ["", "| | |", "|---|---|"]
        lines += [f"| {reading['name']} | {reading['text']} |" for reading in group["readings"]]
    return "\n".join(lines[1:])


HEADLINE = (
    "start to first acknowledged send",
    "idle memory, name server and broker",
    "sync send, 64 threads, 128 B",
    "CPU of the broker, a million sync sends, 64 threads, 128 B",
    "async send, 1,000 in flight, 128 B",
    "batches of 32, 8 threads, 128 B",
    "backlog consumed",
    "CPU of the broker, a million consumed",
    "end to end at 1,000 msg/s: p99",
    "end to end at 10,000 msg/s: p50",
    "50 groups consuming 100 msg/s each: p99",
    "transactions committed and visible, 16 threads, 128 B",
    "sync send with sync flush, 64 threads, 128 B",
    "queues and index of 10 GB of 1 KB messages rebuilt by the doctor",
    "a store of 10 GB whose broker was killed: to the first acknowledged send",
)


# Rows whose ratio in the first recorded runs an independent run did not confirm, with that run's ratios.
DISPUTED = {"backlog consumed": "0.76 to 0.87", "end to end at 1,000 msg/s: p99": "0.97"}
# Rows that depend little on the client, for which the range over all recorded runs is stated.
STEADY = (
    "start to first acknowledged send",
    "idle memory, name server and broker",
    "CPU of the broker, a million sync sends, 64 threads, 128 B",
    "CPU of the broker, a million consumed",
)


def _compared() -> dict[str, Any]:
    """The last recorded run of `make compare`."""
    recorded: dict[str, Any] = json.loads((ROOT / "benchmarks" / "results" / "compare.json").read_text())
    return recorded


def _history() -> list[dict[str, Any]]:
    """The ratios of every recorded run of `make compare`, oldest first."""
    text = (ROOT / "benchmarks" / "results" / "compare-history.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def _range(values: Iterable[float]) -> str:
    """Return one value, or the lowest and the highest of several; a dash for none."""
    shown = sorted({f"{value:.2f}" for value in values}, key=float)
    return " to ".join((shown[0], shown[-1])[: len(shown)]) if shown else "-"


def _missed(recorded: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for row in recorded["rows"] if row["target"] is not None and row["ratio"] < row["target"]]


def headline(_: str) -> str:
    """The rows of the last `make compare` that a reader asks for first."""
    # A run without --full has stores of 1 GB.
    rows = {row["name"].replace(" 1 GB", " 10 GB"): row for row in _compared()["rows"]}
    lines = ["| row | Apache 5.5.0 | Orbitlog | ratio, more is better |", "|---|---:|---:|---:|"]
    for row in (rows[name] for name in HEADLINE if name in rows):
        sides = (f"{_rounded(median(row['values'][side]))} {row['unit']}" for side in ("apache", "orbitlog"))
        lines.append(f"| {row['name']} | {' | '.join(sides)} | {row['ratio']:.2f} |")
    return "\n".join(lines)


def comparison_verdict(_: str) -> str:
    """Targets met and missed in the last run of `make compare`, and ranges over all runs."""
    recorded, history = _compared(), _history()
    wanted = [row for row in recorded["rows"] if row["target"] is not None]
    missed = ", ".join(f"*{row['name']}* ({row['ratio']:.2f} for {row['target']:g})" for row in _missed(recorded))
    lines = [
        f"- **Targets**: {len(wanted) - len(_missed(recorded))} of {len(wanted)} rows with a target meet it."
        + (f" Missed: {missed}." if missed else ""),
        f"- **Range of the ratio in all {len(history)} recorded runs**:",
    ]
    for name in STEADY:
        lines.append(f"  - {name}: {_range(run['ratios'][name] for run in history if name in run['ratios'])}")
    if not recorded.get("warmUp"):
        lines.append("- **Disputed**: two rows; no run with warmed clients is recorded yet, so do not rely on them.")
    return "\n".join(lines)


def comparison_warm_up(_: str) -> str:
    """The rows that depend most on the warm-up of the client, in runs with and without one."""
    lines = [
        "| row | recorded runs without warm-up | independent run | recorded runs with warm-up |",
        "|---|---:|---:|---:|",
    ]
    for name, independent in DISPUTED.items():
        without, with_it = (
            _range(
                run["ratios"][name] for run in _history() if bool(run.get("warmUp")) is warm and name in run["ratios"]
            )
            for warm in (False, True)
        )
        lines.append(f"| {name} | {without} | {independent} | {with_it} |")
    return "\n".join(lines)


def comparison_missed(_: str) -> str:
    """The rows of the last run that miss their target, with the ratios of earlier runs."""
    recorded, history = _compared(), _history()
    lines = ["| row | ratio | target | ratio in earlier recorded runs |", "|---|---:|---:|---:|"]
    for row in _missed(recorded):
        earlier = _range(run["ratios"][row["name"]] for run in history[:-1] if row["name"] in run["ratios"])
        lines.append(f"| {row['name']} | {row['ratio']:.2f} | {row['target']:g} | {earlier} |")
    return "\n".join(lines)


def comparison_cpu(_: str) -> str:
    """CPU time of broker and client, in the rows of one run with and without access control and TLS."""
    recorded = json.loads((ROOT / "benchmarks" / "results" / "access.json").read_text())
    lines = [
        f"Measured on {recorded['when'][:10]}, commit {recorded['commit']}, {recorded['rounds']} rounds. Command:"
        f" `{recorded['command']}`.",
        "",
        "| row | Apache: broker | client | Orbitlog: broker | client | ratio of both | ratio of the rates |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for row in recorded["rows"]:
        if clients := row.get("clientCpuSecondsPerMillion"):
            spent = [
                median(side[broker])
                for broker in ("apache", "orbitlog")
                for side in (row["cpuSecondsPerMillion"], clients)
            ]
            ratio = (spent[0] + spent[1]) / (spent[2] + spent[3])
            cells = " | ".join(map(_rounded, spent))
            lines.append(f"| {row['name']} | {cells} | {ratio:.2f} | {row['ratio']:.2f} |")
    return "\n".join(lines)


def comparison(_: str) -> str:
    """The last recorded run of `make compare`: medians, spread, processor time, and whether a target was met."""
    recorded = _compared()
    machine = f"{recorded['processor']}, {recorded['cores']} cores, {recorded['system']}, Python {recorded['python']}"
    warm_up = "after a warm-up of each client" if recorded.get("warmUp") else "one uncounted round a row"
    lines = [
        f"Measured on {recorded['when'][:10]} on {machine}, commit {recorded['commit']}, {warm_up}. Medians of"
        f" {recorded['rounds']} rounds, with minimum and maximum in brackets. CPU is that of the broker,"
        f" in seconds for a million messages. Command: `{recorded['command']}`, on a machine without other load.",
        "",
        "| row | Apache 5.5.0 | CPU | Orbitlog | CPU | ratio, more is better | target |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for row in recorded["rows"]:
        sides = []
        for broker in ("apache", "orbitlog"):
            spent = row.get("cpuSecondsPerMillion", {}).get(broker)
            sides.append(
                f"{_with_spread(row['values'][broker])} {row['unit']} | {_rounded(median(spent)) if spent else ''}"
            )
        ratio, target = row["ratio"], row["target"]
        missed = "" if target is None else f"{target:g}" if ratio >= target else f"{target:g}, missed"
        origin = f" (commit {row['commit']})" if row.get("commit", recorded["commit"]) != recorded["commit"] else ""
        lines.append(f"| {row['name']}{origin} | {' | '.join(sides)} | {ratio:.2f} | {missed} |")
    return "\n".join(lines)


def _rounded(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _with_spread(values: list[float]) -> str:
    spread = f" ({_rounded(min(values))} to {_rounded(max(values))})" if len(values) > 1 else ""
    return _rounded(median(values)) + spread


def mqadmin_verbs(_: str) -> str:
    """The Orbitlog command for each verb of Apache's tool."""
    lines = ["| mqadmin | does | orbitlog |", "|---|---|---|"]
    for verb in VERBS.values():
        ours = ", ".join(f"`{each}`" if each != "-" else "-" for each in verb.orbitlog_command.split(", "))
        lines.append(f"| `{verb.name}` | {verb.help} | {ours} |")
    return "\n".join(lines)


# The Python API: a method is public if its docstring has an example; of blocking classes, every method is


class _Raw:
    """An annotation that is shown as it is written in the source."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def shown_signature(function: Callable[..., object], *, annotated: bool = True) -> str:
    """Return a signature as in the source, without `self`."""
    original = inspect.signature(function)

    def shown(annotation: object) -> object:
        if annotation is inspect.Parameter.empty or not annotated:
            return inspect.Parameter.empty
        return _Raw(annotation if isinstance(annotation, str) else inspect.formatannotation(annotation))

    parameters = [
        each.replace(annotation=shown(each.annotation), default=shown_default(each.default))
        for each in original.parameters.values()
        if each.name != "self"
    ]
    returns = inspect.Signature.empty if inspect.isclass(function) else shown(original.return_annotation)
    return str(original.replace(parameters=parameters, return_annotation=returns))


def shown_default(default: object) -> object:
    """Show an enum member by its name."""
    return _Raw(f"{type(default).__name__}.{default.name}") if isinstance(default, enum.Enum) else default


def wrapped_signature(name: str, text: str) -> str:
    """Break a signature into one line per parameter if it is long."""
    if len(name) + len(text) <= _SIGNATURE_WIDTH:
        return name + text
    inside, _, returns = text.removeprefix("(").rpartition(")")
    lines, depth = [""], 0
    for character in inside:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and not depth:
            lines.append("")
        else:
            lines[-1] += character
    return "\n".join([f"{name}(", *(f"    {line.strip()}," for line in lines), f"){returns}"])


def example_of(documented: object) -> str:
    """Return the example of a docstring, or an empty string."""
    text = textwrap.dedent((inspect.getdoc(documented) or "").partition("Example:\n")[2]).strip()
    return re.sub(r"(\n    [^\n]*)\n\n(?=\S)", r"\1\n\n\n", text)  # two blank lines after a function, as ruff formats


def description_of(documented: object) -> str:
    """Return a docstring without its example."""
    return (inspect.getdoc(documented) or "").partition("Example:\n")[0].strip()


def is_record(kind: type) -> bool:
    """Return whether users construct a class by its fields."""
    return dataclasses.is_dataclass(kind) or issubclass(kind, tuple)


def public_methods(kind: type) -> Iterator[tuple[str, Callable[..., object]]]:
    """Yield the public methods of a class, in the order of the source."""
    is_blocking = kind.__name__.startswith("Blocking")
    for name, value in vars(kind).items():
        if inspect.isfunction(value) and not name.startswith("_") and (is_blocking or example_of(value)):
            yield name, value


def public_properties(kind: type) -> Iterator[tuple[str, str]]:
    """Yield properties with their descriptions, of a class and of those it is derived from."""
    for name in dict.fromkeys(name for base in reversed(kind.__mro__) for name in vars(base)):
        value = inspect.getattr_static(kind, name)
        if isinstance(value, property) and not name.startswith("_") and value.__doc__:
            yield name, description_of(value)


def described_class(name: str, kind: type) -> Iterator[str]:
    """Yield the paragraphs about a class."""
    yield f"## {name}"
    if is_record(kind):
        yield f"```python\n{wrapped_signature(name, shown_signature(kind))}\n```"
    yield description_of(kind)
    if issubclass(kind, enum.Enum):
        yield "\n".join(f"- `{name}.{member.name}` = `{member.value!r}`" for member in kind)
    yield f"```python\n{example_of(kind)}\n```"
    if listed := list(public_properties(kind)):
        yield "\n".join(["| attribute | meaning |", "|---|---|", *(f"| `{key}` | {text} |" for key, text in listed)])
    for method_name, method in public_methods(kind):
        yield f"### {name}.{method_name}"
        prefix = "async " if inspect.iscoroutinefunction(method) and not name.startswith("Blocking") else ""
        shown = shown_signature(method)
        if name.startswith("Blocking"):
            shown = shown.partition(") ->")[0] + (")" if ") ->" in shown else "")
        yield f"```python\n{prefix}{wrapped_signature(method_name, shown)}\n```"
        yield description_of(method)
        if not name.startswith("Blocking") and example_of(method):
            yield f"```python\n{example_of(method)}\n```"


def described_errors() -> Iterator[str]:
    """Yield the section about the tree of errors."""
    yield "## errors"
    yield "Every error is a class in `orbitlog.errors`, below `OrbitlogError`."
    rows = ["| error | derived from | meaning | retriable |", "|---|---|---|---|"]
    for name, kind in vars(orbitlog.errors).items():
        if inspect.isclass(kind) and issubclass(kind, orbitlog.OrbitlogError) and kind is not orbitlog.OrbitlogError:
            retriable = "yes" if kind.retriable else "no"
            if kind is orbitlog.errors.BrokerRefused:
                retriable = "depends on `code`"
            meaning = description_of(kind).replace("\n", " ")
            rows.append(f"| `{name}` | `{kind.__mro__[1].__name__}` | {meaning} | {retriable} |")
    yield "\n".join(rows)


def python_reference(_: str) -> str:
    """Write the reference of all public names."""
    paragraphs: list[str] = []
    for name in sorted(orbitlog.__all__, key=lambda each: (each != "connect", each.startswith("Blocking"), each)):
        value = getattr(orbitlog, name)
        if isinstance(value, ModuleType):
            paragraphs += described_errors()
        elif inspect.isclass(value):
            paragraphs += described_class(name, value)
        else:
            fence = f"```python\n{wrapped_signature(name, shown_signature(value))}\n```"
            paragraphs += [f"## {name}", fence, description_of(value), f"```python\n{example_of(value)}\n```"]
    return "\n\n".join(paragraphs)


def console_endpoints(_: str) -> str:
    from orbitlog.console.web.endpoint import API_PREFIX
    from orbitlog.console.web.endpoint_table import ENDPOINTS

    rows = [f"| `{API_PREFIX}{endpoint.path}` | {endpoint.summary} |" for endpoint in ENDPOINTS]
    return "\n".join(("| GET | result |", "|---|---|", *sorted(rows)))


def console_changes(_: str) -> str:
    from orbitlog.console.web.change_table import CHANGES
    from orbitlog.console.web.endpoint import API_PREFIX

    rows = [f"| `{kind.method} {API_PREFIX}{kind.path}` | {kind.summary} | {kind.role.word} |" for kind in CHANGES]
    return "\n".join(("| method and path | change | role |", "|---|---|---|", *rows))


def metric_rows(_: str) -> str:
    """Every family with its type, labels and meaning."""
    lines = ["| family | type | labels | meaning |", "|---|---|---|---|"]
    for metric in ALL_METRICS:
        labels = ", ".join(metric.labels)
        lines.append(f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} |")
    return "\n".join(lines)


GENERATORS: dict[str, Callable[[str], str]] = {
    "chart-values": chart_value_table,
    "image-sizes": image_sizes,
    "benchmarks": benchmark_figures,
    "command-line": command_line,
    "comparison": comparison,
    "comparison-cpu": comparison_cpu,
    "comparison-missed": comparison_missed,
    "comparison-verdict": comparison_verdict,
    "comparison-warm-up": comparison_warm_up,
    "compat": compat_table,
    "console-changes": console_changes,
    "console-endpoints": console_endpoints,
    "decisions": decisions,
    "headline": headline,
    "layout": layout_table,
    "make-targets": make_targets,
    "metrics": metric_rows,
    "mqadmin-verbs": mqadmin_verbs,
    "other-layouts": other_layouts,
    "positions": position_table,
    "python-api": python_reference,
    "nameserver-settings": nameserver_settings_table,
    "settings": settings_table,
    "broker-settings": broker_settings_table,
    "setting-classes": setting_classes,
    "nameserver-setting-classes": nameserver_setting_classes,
}


# Rewriting


@contextmanager
def sandbox() -> Iterator[Path]:
    """A directory to run examples in, with the two stores that they talk about."""
    with tempfile.TemporaryDirectory() as scratch:
        for name, golden in GOLDEN_NAMES.items():
            unpacked = extract_golden(ROOT / "tests" / "golden" / golden, Path(scratch) / "unpacked" / name)
            unpacked.store.rename(Path(scratch) / name)
        yield Path(scratch)


def run_example(command: list[str], directory: Path) -> str:
    """Run an example as a reader would, in a plain terminal; it must succeed."""
    plain = {"COLUMNS": str(HELP_WIDTH), "LC_ALL": "C.UTF-8", "NO_COLOR": "1", "TERM": "dumb", "TZ": "UTC"}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command,
        cwd=directory,
        env={**os.environ, **plain, "PATH": path},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    if done.returncode != 0:
        raise SystemExit(f"{command[-1]}\nended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def rerun_console(content: str, directory: Path) -> str:
    """Keep the command lines of a console session and regenerate their output."""
    lines = []
    for command in re.findall(r"^\$ (.+)$", content, re.MULTILINE):
        output = run_example(["bash", "-o", "pipefail", "-c", command], directory)
        lines += [f"$ {command}", *(line.rstrip() for line in output.rstrip("\n").splitlines())]
    return "\n".join(lines) + "\n"


def rewrite(text: str) -> str:
    """Return the page as it should be now; its examples share a directory of their own."""

    def region(match: re.Match[str]) -> str:
        generator = GENERATORS[match["name"]]
        return f"{match['start']}{generator(match['argument'].strip())}\n{match['end']}"

    text = _REGION.sub(region, text)
    if not _FENCE.search(text):
        return text
    with sandbox() as directory:
        return _FENCE.sub(lambda match: rerun(match, directory), text)


def rerun(fence: re.Match[str], directory: Path) -> str:
    if fence["language"] == "python":
        run_example([sys.executable, "-W", "error", "-c", fence["content"]], directory)
        return fence.group()
    return f"```console run\n{rerun_console(fence['content'], directory)}```"


def pages() -> list[Path]:
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def out_of_date() -> Iterator[tuple[Path, str, str]]:
    """Yield each page that differs from what it should be: its path, its text, and what that should be."""
    for page in pages():
        text = page.read_text()
        expected = rewrite(text)
        if expected != text:
            yield page, text, expected


def main(arguments: list[str]) -> int:
    stale = 0
    for page, text, expected in out_of_date():
        stale += 1
        name = page.relative_to(ROOT).as_posix()
        if "--check" in arguments:
            print(
                "\n".join(difflib.unified_diff(text.splitlines(), expected.splitlines(), name, "now", lineterm="", n=1))
            )
        else:
            page.write_text(expected)
            print(f"docs: wrote {name}")
    if "--check" in arguments and stale:
        print("docs: out of date; run `make docs`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
