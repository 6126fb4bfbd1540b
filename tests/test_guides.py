"""Guide and docstring tests: every marked example runs at a broker, in the order of its page."""

from __future__ import annotations

import ast
import asyncio
import doctest
import inspect
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from types import ModuleType

import pytest

import orbitlog
from orbitlog.client.admin.administration import Administration
from orbitlog.client.connection import addresses
from orbitlog.client.consumer.delivery import Delivery
from orbitlog.client.consumer.group_consumer import Consumer
from orbitlog.client.consumer.topic_reader import Reader
from orbitlog.client.rocketmq import RocketMQ
from orbitlog.filters import sql_filter
from orbitlog.testing.running_broker import RunningBroker


def public_functions(kind: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")}


ROOT = Path(__file__).resolve().parent.parent
GUIDES = sorted((ROOT / "docs" / "guides").glob("*.md"))
SECONDS_MAX = 60


def fences(page: Path, mark: str) -> list[tuple[int, str]]:
    """Return the examples of a kind, each with its first line in the page."""
    text = page.read_text()
    examples = re.finditer(rf"^```python {mark}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [(text[: example.start(1)].count("\n"), example[1]) for example in examples]


async def run(code: object, names: dict[str, object]) -> None:
    result = eval(code, names)  # type: ignore[arg-type]
    if isinstance(result, Awaitable):
        async with asyncio.timeout(SECONDS_MAX):
            await result


@pytest.mark.parametrize("page", [page for page in GUIDES if fences(page, "broker")], ids=lambda page: page.stem)
def test_examples_run(page: Path, orbitlog_broker: RunningBroker, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {"address": f"rocketmq://{orbitlog_broker.address}"}
    for line, source in fences(page, "broker"):
        tree = ast.parse(source, page.name)
        ast.increment_lineno(tree, line)
        code = compile(tree, page.name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        if code.co_flags & inspect.CO_COROUTINE:
            asyncio.run(run(code, names))
        else:
            exec(code, names)
    assert capsys.readouterr().err == ""


def console_steps(page: Path) -> list[tuple[str, list[str]]]:
    """Return the commands of a page that run at a broker, each with its expected output."""
    steps: list[tuple[str, list[str]]] = []
    for fence in re.findall(r"^```console broker\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE):
        for line in fence.splitlines():
            if line.startswith("$ "):
                steps.append((line[2:], []))
            else:
                steps[-1][1].append(line)
    return steps


@pytest.mark.parametrize("page", [page for page in GUIDES if console_steps(page)], ids=lambda page: page.stem)
def test_commands_print_the_output_on_the_page(page: Path, orbitlog_broker: RunningBroker, tmp_path: Path) -> None:
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    settings = {"ORBITLOG_NAME_SERVER": orbitlog_broker.address, "XDG_CONFIG_HOME": str(tmp_path), "COLUMNS": "140"}
    kept = {name: value for name, value in os.environ.items() if name != "ORBITLOG_CONTEXT"}
    for command, expected in console_steps(page):
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command],
            env={**kept, **settings, "PATH": programs},
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS_MAX,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}"
        printed = done.stdout.splitlines()
        # Values that differ between runs are … on the page.
        patterns = [".*".join(map(re.escape, re.split(r"\s*…\s*", line.rstrip()))) for line in expected]
        matched = [re.fullmatch(pattern, line.rstrip()) for pattern, line in zip(patterns, printed, strict=False)]
        assert len(printed) == len(expected) and all(matched), f"{command}\n{done.stdout}"


def test_pytest_examples_pass(tmp_path: Path) -> None:
    source = "\n\n".join(text for _, text in fences(ROOT / "docs" / "guides" / "testing.md", "test"))
    (tmp_path / "test_of_the_guide.py").write_text(source)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_other_examples_are_valid_python(page: Path) -> None:
    for _, source in fences(page, "(?:broker|test)") + fences(page, "?"):
        compile(source, page.name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


# Client classes, with their public methods.
EXPLAINED: dict[type, set[str]] = {
    RocketMQ: public_functions(RocketMQ),
    Reader: public_functions(Reader),
    Administration: public_functions(Administration),
    Consumer: {"next", "batches", "run", "commit", "close"},
    Delivery: {"ack", "retry"},
}


def example_of(function: Callable[..., object]) -> str:
    """Return the example in the docstring of a function."""
    return textwrap.dedent((inspect.getdoc(function) or "").partition("Example:\n")[2])


async def run_example(source: str, title: str, **names: object) -> None:
    code = compile(source, title, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    await run(code, {"orbitlog": orbitlog, "asyncio": asyncio, **names})


def test_docstring_examples_run(orbitlog_broker: RunningBroker, capsys: pytest.CaptureFixture[str]) -> None:
    async def scenario(address: str) -> None:
        await run_example(example_of(orbitlog.connect), "connect")
        async with orbitlog.connect(address) as mq:
            await mq.admin.create_topic("Orders", 1)
            for kind, methods in EXPLAINED.items():
                for method in sorted(methods):
                    source, title = example_of(getattr(kind, method)), f"{kind.__name__}.{method}"
                    assert source, f"{title} has no example"
                    names: dict[str, object] = {"mq": mq, "address": address}
                    await mq.send("Orders", "order 42", tags="new", keys=["42"])
                    async with AsyncExitStack() as around:
                        if kind is Reader:
                            names["reader"] = await around.enter_async_context(await mq.read("Orders"))
                        if kind in (Consumer, Delivery):
                            joining = mq.consume("Orders", group=f"example-{method}", start_from="first")
                            names["consumer"] = consumer = await around.enter_async_context(joining)
                        if kind is Delivery:
                            names["message"] = await consumer.next(SECONDS_MAX)
                        await run_example(source, title, **names)

    asyncio.run(scenario(f"rocketmq://{orbitlog_broker.address}"))
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("module", [addresses, sql_filter], ids=lambda module: module.__name__)
def test_doctests_pass(module: ModuleType) -> None:
    failed, tried = doctest.testmod(module)
    assert tried and not failed
