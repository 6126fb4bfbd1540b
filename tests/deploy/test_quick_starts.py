"""Quick starts: each role has one whose commands exist; `make newcomer` runs them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.support.command_words import check_words
from tools import newcomer

PAGES = {role: (newcomer.GUIDES / f"{newcomer.PREFIX}{role}.md").read_text() for role in newcomer.roles()}


def test_each_role_has_a_quick_start() -> None:
    assert list(PAGES) == ["data-engineer", "developer", "operator", "tester"]


@pytest.mark.parametrize("role", PAGES)
def test_every_command_block_is_run(role: str) -> None:
    blocks = re.findall(r"^```(.*)$", PAGES[role], re.MULTILINE)[::2]
    assert blocks and all(mark.startswith("sh newcomer") for mark in blocks)


@pytest.mark.parametrize("role", PAGES)
def test_commands_of_orbitlog_exist(role: str) -> None:
    text = "\n".join(commands for _, commands in newcomer.steps(PAGES[role]))
    lines = [line.strip() for line in text.splitlines() if line.strip().startswith("orbitlog ")]
    assert lines or role == "tester"
    for line in lines:
        check_words(shlex.split(re.split(r" (?:>|\|\|) ", line)[0])[1:])


def test_failing_command_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def empty_account(home: Path) -> tuple[Path, dict[str, str]]:
        return home, {"PATH": "/usr/bin:/bin"}

    monkeypatch.setattr(newcomer, "new_account", empty_account)
    monkeypatch.setattr(newcomer, "GUIDES", tmp_path)
    (tmp_path / "quick-start-x.md").write_text(
        "```sh newcomer server\necho ready now\n```\n```sh newcomer\ntrue\n```\n"
    )
    assert newcomer.follow("x", tmp_path) >= 0
    (tmp_path / "quick-start-x.md").write_text("```sh newcomer\necho first\nfalse\necho second\n```\n")
    with pytest.raises(newcomer.NewcomerFailed, match="first"):
        newcomer.follow("x", tmp_path)
