"""The tidy rules hold, and every rule can fail."""

from __future__ import annotations

import ast
import subprocess
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tools import tidy
from tools.tidy import Module

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "orbitlog"
MODULES = tidy.modules_below(PACKAGE)
TESTS = tidy.modules_below(ROOT / "tests")
BINARY_SUFFIXES = (".xz", ".bin", ".png", ".gz", ".svg")


def repository_texts() -> Iterator[tuple[str, str]]:
    """Every text that is, or is about to be, under version control."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    answer = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True)
    if answer.returncode != 0:
        pytest.skip("not a git checkout")
    for name in filter(None, answer.stdout.split("\0")):
        path = ROOT / name
        if path.is_file() and not name.endswith(BINARY_SUFFIXES):
            yield name, path.read_text()


def none_of(findings: Iterable[str]) -> None:
    """Fail with every finding on its own line."""
    found = list(findings)
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize("rule", tidy.MODULE_RULES, ids=lambda rule: rule.__name__)
def test_every_module_keeps_the_rule(rule: tidy.Rule) -> None:
    assert MODULES
    none_of(finding for module in MODULES for finding in rule(module))


@pytest.mark.parametrize("rule", tidy.TEST_RULES, ids=lambda rule: rule.__name__)
def test_every_test_keeps_the_rule(rule: tidy.Rule) -> None:
    assert TESTS
    none_of(finding for test in TESTS for finding in rule(test))


def test_basenames_are_unique() -> None:
    none_of(tidy.doubled_basenames(MODULES))


def test_no_room_is_crowded() -> None:
    none_of(tidy.crowded_rooms(MODULES))


def test_no_module_is_dead() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    entry_points = [target.split(":")[0] for target in scripts.values()]
    outside = [*TESTS, *tidy.modules_below(ROOT / "benchmarks")]
    none_of(tidy.dead_modules(MODULES, entry_points, outside))


def test_nothing_in_the_repository_is_marked_unfinished() -> None:
    none_of(finding for path, text in repository_texts() for finding in tidy.unfinished(path, text))


def test_nothing_in_the_repository_knows_one_machine() -> None:
    none_of(finding for path, text in repository_texts() for finding in tidy.foreign_places(path, text))


def test_tests_mirror_the_package() -> None:
    """Place and name of a unit test file show which module it is about; integration tests may be about a room."""
    orphans: list[str] = []
    for test in sorted((ROOT / "tests" / "unit").rglob("test_*.py")):
        room = test.parent.relative_to(ROOT / "tests" / "unit")
        subject = test.stem.removeprefix("test_")
        if not any((PACKAGE / room / candidate).exists() for candidate in prefixes(subject)):
            orphans.append(test.relative_to(ROOT).as_posix())
    none_of(orphans)


def prefixes(subject: str) -> Iterator[str]:
    """`store_tree_names` may be about `store_tree.py` or `store.py`."""
    words = subject.split("_")
    for count in range(len(words), 0, -1):
        yield "_".join(words[:count]) + ".py"
        yield "_".join(words[:count])


# Each rule against something small that breaks it, and something near it that does not

HEAD = '"""Head."""\n'
LONG = "x = 1\n" * (tidy.MODULE_LINES_MAX + 1)
LONG_INIT = "x = 1\n" * (tidy.INIT_LINES_MAX + 1)


def function_of(lines: int, *, docstring_lines: int = 0) -> str:
    docstring = '    """' + "words\n" * docstring_lines + '    """\n' if docstring_lines else ""
    return "def f(a,\n      b):\n" + docstring + "    a += b\n" * lines


def class_of(attributes: int) -> str:
    assigned = "".join(f"        self.a{number}, b = b, self.c\n" for number in range(attributes))
    return "class C:\n    def f(self, b):\n" + assigned


@pytest.mark.parametrize(
    ("rule", "path", "text"),
    [
        (tidy.module_length, "formats/long.py", LONG),
        (tidy.module_length, "formats/__init__.py", LONG_INIT),
        (tidy.function_length, "formats/a.py", function_of(tidy.FUNCTION_LINES_MAX - 1)),
        (tidy.function_length, "formats/a.py", "class C:\n" + "    async def f(self):\n" + "        pass\n" * 70),
        (tidy.class_width, "store/a.py", class_of(tidy.CLASS_ATTRIBUTES_MAX + 1)),
        (tidy.class_width, "store/a.py", class_of(tidy.CLASS_ATTRIBUTES_MAX) + "    declared: int\n"),
        (tidy.head_docstring, "formats/a.py", "import re\n"),
        (tidy.banned_calls, "store/a.py", "eval('1')"),
        (tidy.banned_calls, "store/a.py", "exec('1')"),
        (tidy.banned_calls, "store/a.py", "import os\nos.system('ls')"),
        (tidy.banned_calls, "store/a.py", "subprocess.run('ls', shell=True)"),
        (tidy.banned_calls, "store/a.py", "subprocess.run('ls', shell=flag)"),
        (tidy.banned_calls, "store/a.py", "print('x')"),
        (tidy.banned_imports, "store/a.py", "import pickle"),
        (tidy.banned_imports, "store/a.py", "def f():\n    from pickle import loads"),
        (tidy.raw_file_calls, "doctor/a.py", "os.fsync(descriptor)"),
        (tidy.raw_file_calls, "jobs/a.py", "descriptor = os.open(path, os.O_RDONLY)"),
        (tidy.raw_file_calls, "store/a.py", "temporary.replace(path)"),
        (tidy.raw_file_calls, "doctor/a.py", "(root / 'old').rename(root / 'new')"),
        (tidy.raw_file_calls, "store/a.py", "file = path.open('xb')"),
        (tidy.raw_file_calls, "pipeline/a.py", "open(path, mode='r+b')"),
        (tidy.raw_file_calls, "pipeline/a.py", "(root / 'checkpoint').write_bytes(data)"),
        (tidy.raw_file_calls, "doctor/a.py", "path.unlink(missing_ok=True)"),
        (tidy.raw_file_calls, "doctor/a.py", "path.parent.mkdir(parents=True)"),
        (tidy.raw_file_calls, "jobs/a.py", "shutil.rmtree(directory)"),
        (tidy.raw_file_calls, "jobs/a.py", "mmap.mmap(descriptor, 0)"),
        (tidy.sentences_as_data, "doctor/a.py", "finding.reason.startswith('leads to')"),
        (tidy.sentences_as_data, "doctor/a.py", "number = int(one.finding.reason.rsplit(' ', 1)[-1])"),
        (tidy.sentences_as_data, "doctor/a.py", "found = 'follows' in finding.reason"),
        (tidy.sentences_as_data, "doctor/a.py", "found = finding.reason == 'is missing'"),
        (tidy.sentences_as_data, "doctor/a.py", "re.search('offset', finding.reason)"),
        (tidy.sentences_as_data, "cli/a.py", "key = str(error).partition('=')[0]"),
        (tidy.sentences_as_data, "cli/a.py", "text, _, advice = sentence.rpartition('; ')"),
        (tidy.sentences_as_data, "cli/a.py", "if 'PropCRC' in sentence: f()"),
        (tidy.purity, "formats/a.py", "import os"),
        (tidy.purity, "formats/a.py", "import os.path"),
        (tidy.purity, "formats/a.py", "from time import time"),
        (tidy.purity, "formats/a.py", "def f():\n    import mmap"),
        (tidy.purity, "wire/a.py", "import asyncio"),
        (tidy.purity, "wire/a.py", "import socket"),
        (tidy.purity, "formats/a.py", "import random"),
        (tidy.purity, "formats/a.py", "import threading"),
        (tidy.purity, "formats/a.py", "import numpy as np"),
        (tidy.purity, "formats/a.py", "from click import command"),
        (tidy.purity, "formats/a.py", "open('x')"),
        (tidy.purity, "formats/a.py", "import pathlib\npathlib.Path('x')"),
        (tidy.purity, "formats/a.py", "from datetime import datetime\ndatetime.now()"),
        (tidy.stepped, "store/a.py", "import time"),
        (tidy.stepped, "store/log/a.py", "from time import monotonic"),
        (tidy.stepped, "store/a.py", "from threading import Lock, Thread"),
        (tidy.stepped, "store/a.py", "import threading\nthreading.Timer(1, f)"),
        (tidy.broad_except, "store/a.py", "try:\n    f()\nexcept:\n    g()"),
        (tidy.broad_except, "store/a.py", "try:\n    f()\nexcept Exception as e:\n    g()"),
        (tidy.broad_except, "store/a.py", "try:\n    f()\nexcept (OSError, BaseException):\n    g()"),
        (tidy.broad_except, "store/a.py", "with contextlib.suppress(Exception):\n    f()"),
        (tidy.empty_words, "store/a.py", "class SegmentManager: ..."),
        (tidy.empty_words, "store/a.py", "class DefaultStore: ..."),
        (tidy.empty_words, "store/utils.py", "x = 1"),
        (tidy.borrowed_helpers, "unit/a.py", "from tests.unit.store.test_segments import fill"),
        (tidy.borrowed_helpers, "faults/a.py", "def f():\n    import benchmarks.measure"),
        (tidy.sleeping_unit_tests, "unit/a.py", "import time\ntime.sleep(0.1)"),
        (tidy.sleeping_unit_tests, "unit/a.py", "async def f(pause):\n    await asyncio.sleep(pause)"),
        (tidy.connected_unit_tests, "unit/a.py", "import socket"),
        (tidy.connected_unit_tests, "unit/a.py", "from tests.support.broker_desk import at_desk"),
        (tidy.connected_unit_tests, "unit/a.py", "async def f():\n    await asyncio.start_server(serve, port=0)"),
        (tidy.connected_unit_tests, "unit/a.py", "def test_send(orbitlog_broker): ..."),
    ],
)
def test_a_rule_notices(rule: tidy.Rule, path: str, text: str) -> None:
    findings = list(rule(Module(path, text)))
    assert len(findings) == 1
    assert findings[0].startswith(f"{path}:")


@pytest.mark.parametrize(
    ("rule", "path", "text"),
    [
        (tidy.module_length, "formats/a.py", "x = 1\n" * tidy.MODULE_LINES_MAX),
        (tidy.module_length, "formats/__init__.py", "x = 1\n" * tidy.INIT_LINES_MAX),
        (tidy.function_length, "formats/a.py", function_of(tidy.FUNCTION_LINES_MAX - 2, docstring_lines=30)),
        (tidy.class_width, "store/a.py", class_of(tidy.CLASS_ATTRIBUTES_MAX)),
        (tidy.head_docstring, "formats/a.py", HEAD),
        (tidy.banned_calls, "cli/a.py", "print('x')"),
        (tidy.banned_calls, "store/a.py", "run('ls', shell=False)\nast.literal_eval('1')\nevaluate()"),
        (tidy.banned_imports, "store/a.py", "import json, struct"),
        (tidy.purity, "formats/a.py", "import json, zlib\nfrom pathlib import PurePath\nPurePath('x')"),
        (tidy.purity, "formats/a.py", "def f():\n    import backports.zstd, lz4.frame"),
        (tidy.purity, "formats/a.py", "from orbitlog.errors import BadField\nfrom . import flags"),
        (tidy.purity, "store/a.py", "import os, mmap, time\nopen('x')"),
        (tidy.sentences_as_data, "doctor/a.py", "print(finding.reason, finding.kind == kind)"),
        (
            tidy.sentences_as_data,
            "cli/a.py",
            "if sentence is None or sentence != last: print(str(error).splitlines()[0])",
        ),
        (tidy.stepped, "store/a.py", "from threading import Lock\nimport threading\nthreading.Lock()"),
        (tidy.stepped, "store/a.py", "from orbitlog.store.reads import time_query"),
        (tidy.stepped, "broker/a.py", "import time, threading\nthreading.Thread()"),
        (tidy.raw_file_calls, "storefiles/disk.py", "os.fsync(descriptor)"),
        (tidy.raw_file_calls, "doctor/a.py", "text.replace('a', 'b')\nreplace(finding, count=1)\nos.pread(1, 2, 3)"),
        (tidy.raw_file_calls, "doctor/a.py", "path.open('rb')\nMessageStore.open(root, config)\nlog.write(record)"),
        (tidy.raw_file_calls, "doctor/a.py", "mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)"),
        (tidy.broad_except, "store/a.py", "try:\n    f()\nexcept (OSError, ValueError):\n    g()"),
        (
            tidy.borrowed_helpers,
            "unit/a.py",
            "from tests.support.logs import lay\nfrom tests.interop import test_sends",
        ),
        (tidy.sleeping_unit_tests, "unit/a.py", "async def f():\n    await asyncio.sleep(0)"),
        (tidy.sleeping_unit_tests, "integration/a.py", "import time\ntime.sleep(0.1)"),
        (tidy.connected_unit_tests, "integration/a.py", "import socket"),
        (tidy.connected_unit_tests, "unit/a.py", "from tests.support.fake_name_server import NameServer"),
        (tidy.empty_words, "store/a.py", "class Database: ...\nclass Defaults: ...\nclass Baseline: ..."),
    ],
)
def test_a_rule_lets_pass(rule: tidy.Rule, path: str, text: str) -> None:
    assert list(rule(Module(path, text))) == []


def test_a_doubled_basename_is_noticed() -> None:
    modules = [Module(path, HEAD) for path in ("formats/__init__.py", "store/__init__.py", "a/x.py", "b/x.py")]
    assert list(tidy.doubled_basenames(modules)) == ["x.py stands more than once: a/x.py, b/x.py"]


def test_a_crowded_room_is_noticed() -> None:
    modules = [tidy.Module(f"store/part_{number}.py", "") for number in range(tidy.ROOM_MODULES_MAX + 1)]
    assert list(tidy.crowded_rooms(modules))
    assert not list(tidy.crowded_rooms(modules[1:]))


def test_a_dead_module_is_noticed() -> None:
    modules = [
        Module("cli/main.py", "from orbitlog.formats import used\nLAZY = 'orbitlog.cli.lazy:command'"),
        Module("cli/lazy.py", "from . import sibling\nimport orbitlog.formats.direct"),
        Module("cli/sibling.py", HEAD),
        Module("formats/__init__.py", HEAD),
        Module("formats/used.py", "from orbitlog.formats.deeper import name"),
        Module("formats/deeper.py", HEAD),
        Module("formats/direct.py", HEAD),
        Module("formats/dead.py", "from orbitlog.formats import dead"),
        Module("formats/offered.py", HEAD),
        Module("cli/tested_only.py", HEAD),
    ]
    outside = [Module("test_a.py", "from orbitlog.formats import offered\nfrom orbitlog.store import tested_only")]
    findings = list(tidy.dead_modules(modules, ["orbitlog.cli.main"], outside))
    assert findings == ["formats/dead.py: nothing imports it", "cli/tested_only.py: nothing imports it"]


@pytest.mark.parametrize("marker", ["TO" + "DO", "FIX" + "ME", "X" * 3])
def test_an_unfinished_marker_is_noticed(marker: str) -> None:
    assert list(tidy.unfinished("a.md", f"fine\n# {marker}: later")) == [f"a.md:2: {marker} marks unfinished work"]


def test_a_name_with_four_x_is_no_marker() -> None:
    assert list(tidy.unfinished("a.py", "SCHEDULE_TOPIC_XXXX = todo_list")) == []


@pytest.mark.parametrize(
    "line",
    [
        "see /" + "work/main",
        "cd /" + "root",
        "`/" + "home/ann/store`",
        "path='/" + "Users/ann'",
        "from ../" + "shared/spec",
        "--index-url https://py" + "pi.org/simple",
        "https://files.pythonhosted" + ".org/x",
    ],
)
def test_a_foreign_place_is_noticed(line: str) -> None:
    assert len(list(tidy.foreign_places("a.md", f"fine\n{line}\n"))) == 1


@pytest.mark.parametrize("line", ["https://example.com/home", "docs/work/x", "$HOME/store", "~/root", "a /rootless b"])
def test_what_only_looks_like_a_foreign_place_passes(line: str) -> None:
    assert list(tidy.foreign_places("a.md", line)) == []


@pytest.mark.parametrize(("lines", "docstring_lines"), [(1, 0), (5, 0), (5, 3), (0, 2)])
def test_a_function_is_counted_with_its_signature_and_without_its_docstring(lines: int, docstring_lines: int) -> None:
    function = ast.parse(function_of(lines, docstring_lines=docstring_lines)).body[0]
    assert isinstance(function, ast.FunctionDef)
    assert tidy.function_lines(function) == lines + 2
