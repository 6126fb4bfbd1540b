"""docs/journey.md: modules of a send and a pull in the order of their calls; questions that a search answers."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

from tests.support.hot_path import QUEUES, TOPIC, HotPath, hot_path_at, pulls, sends

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "orbitlog"
PAGE = ROOT / "docs" / "journey.md"


def section(title: str) -> str:
    text = PAGE.read_text()
    return text[text.index(f"\n## {title}\n") :].split("\n## ", 2)[1]


def linked_modules(text: str) -> list[Path]:
    """Return the files and directories of the package that a text links to, in its order."""
    return [(PAGE.parent / link).resolve() for link in re.findall(r"\]\((\.\./src/orbitlog/[^)#]+)\)", text)]


def called_files(work: Callable[[], None]) -> list[Path]:
    """Run `work` and return the source file of each call inside the package, in order."""
    names: list[str] = []

    def note(stack_frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            names.append(stack_frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return [Path(name) for name in names if name.startswith(f"{PACKAGE}/")]


def first_out_of_order(steps: list[Path], called: list[Path]) -> Path | None:
    """Return the first step that is not called after the steps before it; None if all are."""
    remaining = iter(called)
    for step in steps:
        if not any(file == step or step in file.parents for file in remaining):
            return step
    return None


def hold_pulls(path: HotPath) -> None:
    """Pull every queue at its end, so that the next message wakes a held pull."""
    for queue_id in range(QUEUES):
        end = path.broker.state.max_offset(TOPIC, queue_id)
        path.feed(pulls([end], queue_id)[0])


def test_send_calls_the_modules_of_the_page_in_their_order(tmp_path: Path) -> None:
    table = "\n".join(line for line in section("How does a send get stored?").splitlines() if line.startswith("| "))
    steps = linked_modules(table)
    assert len(steps) == 12

    async def scenario() -> list[Path]:
        async with hot_path_at(tmp_path, kernels=False) as path:
            hold_pulls(path)
            [request] = sends(1, first=100)

            def work() -> None:
                path.feed(request)
                path.dispatch()

            return called_files(work)

    assert first_out_of_order(steps, asyncio.run(scenario())) is None


def test_pull_calls_the_modules_of_the_page_in_their_order(tmp_path: Path) -> None:
    text = section("How does a pull get its messages?")
    steps = linked_modules(text[: text.index("5. ")])
    assert len(steps) == 4

    async def scenario() -> list[Path]:
        async with hot_path_at(tmp_path, kernels=False) as path:
            requests = pulls([0, 0, 0])
            for request in requests[:-1]:
                path.feed(request)
            return called_files(lambda: path.feed(requests[-1]))

    assert first_out_of_order(steps, asyncio.run(scenario())) is None


def questions() -> list[str]:
    return re.split(r"\n(?=\*\*\d+\. )", section("Ten questions of newcomers"))[1:]


def sources_with(words: str) -> list[Path]:
    return [path for path in PACKAGE.rglob("*.py") if words.lower() in path.read_text().lower()]


def test_page_answers_ten_questions() -> None:
    assert [int(re.findall(r"\d+", question)[0]) for question in questions()] == list(range(1, 11))


@pytest.mark.parametrize("question", questions()[:9], ids=lambda question: str(question)[2:50])
def test_words_to_search_for_lead_to_the_module_of_the_answer(question: str) -> None:
    match = re.search(r"Search for `([^`]+)`", question)
    assert match is not None
    found, answer = sources_with(match[1]), linked_modules(question)[0]
    assert any(path == answer or answer in path.parents for path in found)
    assert len(found) <= 12, f"a search for {match[1]!r} finds too many files"


@pytest.mark.parametrize(
    ("steps", "missing"), [(["a.py", "b"], None), (["b", "a.py"], "a.py"), (["a.py", "c.py"], "c.py")]
)
def test_step_out_of_order_is_reported(steps: list[str], missing: str | None) -> None:
    called = [PACKAGE / "a.py", PACKAGE / "b" / "module.py"]
    expected = None if missing is None else PACKAGE / missing
    assert first_out_of_order([PACKAGE / step for step in steps], called) == expected
