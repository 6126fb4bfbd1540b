"""The prose ratchet counts what it should, fails above a ceiling, and never raises one."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tools import prose

DOCUMENTATION = ("docs", "README", "CHANGELOG")
RATE_MAX = 0.3  # hits of one idiom per 1,000 words of documentation


@pytest.fixture(scope="module")
def counts() -> dict[str, dict[str, int]]:
    """Hits of each idiom in each area of this repository: counting takes seconds."""
    return prose.count_areas(prose.ROOT)


@pytest.mark.xdist_group("prose")
def test_every_area_is_within_its_ceilings(counts: dict[str, dict[str, int]]) -> None:
    ceilings = json.loads(prose.CEILINGS.read_text())
    assert prose.excesses(counts, ceilings) == []


@pytest.mark.xdist_group("prose")
def test_documentation_keeps_every_idiom_rare(counts: dict[str, dict[str, int]]) -> None:
    pages = prose.files_below(prose.ROOT / path for area in DOCUMENTATION for path in prose.AREAS[area])
    words = sum(len(line.split()) for page in pages for _, line in prose.markdown_prose(page.read_text()))
    rates = {idiom: sum(counts[area].get(idiom, 0) for area in DOCUMENTATION) / words * 1000 for idiom in prose.IDIOMS}
    assert {idiom: rate for idiom, rate in rates.items() if rate > RATE_MAX} == {}


@pytest.fixture
def small_root(tmp_path: Path) -> Path:
    """A repository of one file in each area, with one hit in the documentation."""
    (tmp_path / "src").mkdir()
    (tmp_path / "docs").mkdir()
    (tmp_path / "src" / "module.py").write_text('"""Return whether the log is closed."""\n')
    (tmp_path / "docs" / "page.md").write_text("The checkpoint says nothing.\n")
    for name in ("README.md", "CHANGELOG.md", "AGENTS.md", "CONTRIBUTING.md"):
        (tmp_path / name).write_text("Plain words.\n")
    return tmp_path


def check(root: Path, ceilings: dict[str, dict[str, int]], *arguments: str) -> tuple[int, dict[str, dict[str, int]]]:
    file = root / "ceilings.json"
    file.write_text(json.dumps(ceilings))
    status = prose.main(list(arguments), root=root, ceilings_file=file)
    return status, json.loads(file.read_text())


def test_a_count_at_its_ceiling_passes_and_one_above_fails(
    small_root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(small_root, {"docs": {"say": 1}})[0] == 0
    (small_root / "docs" / "page.md").write_text("The checkpoint says nothing.\n\nThe state says more.\n")
    assert check(small_root, {"docs": {"say": 1}})[0] == 1
    assert "docs: `say` occurs 2 times, at most 1 are allowed" in capsys.readouterr().out


def test_an_idiom_without_a_ceiling_fails(small_root: Path) -> None:
    assert check(small_root, {})[0] == 1
    (small_root / "src" / "module.py").write_text("# whoever opens it\n")
    assert check(small_root, {"docs": {"say": 1}})[0] == 1


def test_lowering_drops_ceilings_and_raises_none(small_root: Path) -> None:
    status, ceilings = check(small_root, {"src": {"tell": 4}, "docs": {"say": 7, "lie": 2}}, "--lower")
    assert (status, ceilings) == (0, {"src": {}, "docs": {"say": 1}})
    (small_root / "docs" / "page.md").write_text("It says a, says b and says c.\n")
    assert check(small_root, ceilings, "--lower") == (1, ceilings)


def test_strings_comments_and_docstrings_are_prose_and_names_are_not() -> None:
    source = (
        '"""A head. It goes on."""\nsays = 1  # told\nraise ValueError("this is the long way round")\nkey = "told"\n'
    )
    assert [line for line, _ in prose.python_prose(source)] == [2, 1, 3]


def test_generated_parts_and_fences_are_not_counted() -> None:
    page = "one\n<!-- generated: x -->\ntold\n<!-- end generated -->\n```text\ntold\n```\ntwo\n"
    assert list(prose.markdown_prose(page)) == [(1, "one"), (8, "two")]


def test_long_sentences_are_found_across_lines_and_not_across_items() -> None:
    words = " ".join(["word"] * 20)
    assert list(prose.long_sentences(f"- {words}\n- {words}\n\n{words}. {words.capitalize()}\n")) == []
    assert [line for line, _ in prose.long_sentences(f"short\n\n{words}\n{words}\n")] == [3]
    assert list(prose.long_sentences(f"| {words} {words} |\n")) == []


def test_long_lines_are_found_outside_of_tables() -> None:
    wide = "word " * 30
    assert [number for number, _ in prose.long_lines(f"{wide}\n| {wide} |\n")] == [1]


@pytest.mark.parametrize("idiom", prose.IDIOMS)
def test_every_idiom_has_a_replacement_that_is_not_one(idiom: str) -> None:
    instead = prose.IDIOMS[idiom].instead
    assert instead
    if "`" not in instead:
        assert not re.search(prose.IDIOMS[idiom].pattern, instead, re.IGNORECASE)
