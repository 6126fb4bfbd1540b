"""Documentation tests: generated parts are current, examples run, links and names point to something."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from orbitlog.settings.store_settings import SETTINGS
from tools import generate_docs

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "orbitlog"
PAGES = [*generate_docs.pages(), ROOT / "tests" / "golden" / "README.md"]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def page_name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


# Generated parts and examples


def test_generated_parts_are_current_and_examples_run() -> None:
    stale = [
        "\n".join(difflib.unified_diff(text.splitlines(), expected.splitlines(), page_name(page), "now", lineterm=""))
        for page, text, expected in generate_docs.out_of_date()
    ]
    assert not stale, "run `make docs`:\n" + "\n".join(stale)


def test_stale_region_is_regenerated() -> None:
    stale = "before\n<!-- generated: compat -->\nSTALE\n<!-- end generated -->\nafter\n"
    fresh = generate_docs.rewrite(stale)
    assert "STALE" not in fresh
    assert fresh.startswith("before\n<!-- generated: compat -->\n| rule |")
    assert fresh.endswith("<!-- end generated -->\nafter\n")
    assert generate_docs.rewrite(fresh) == fresh


def test_output_of_an_example_is_regenerated() -> None:
    stale = "```console run\n$ echo one; echo two\nthree\n$ true\n$ printf '%s\\n' x >&2\n```\n"
    fresh = generate_docs.rewrite(stale)
    assert fresh == "```console run\n$ echo one; echo two\none\ntwo\n$ true\n$ printf '%s\\n' x >&2\nx\n```\n"


def test_unmarked_fence_is_not_changed() -> None:
    page = "```console\n$ false\n```\n```python\nraise SystemExit(1)\n```\n"
    assert generate_docs.rewrite(page) == page


@pytest.mark.parametrize("page", ["```console run\n$ false | true\n```\n", "```python run\nassert 1 == 2\n```\n"])
def test_failing_example_is_reported(page: str) -> None:
    with pytest.raises(SystemExit, match="ended with 1"):
        generate_docs.rewrite(page)


def test_every_region_has_a_generator_and_an_end() -> None:
    for page in PAGES:
        names = re.findall(r"^<!-- generated: ([a-z-]+)", page.read_text(), re.MULTILINE)
        assert set(names) <= set(generate_docs.GENERATORS), page_name(page)
        assert page.read_text().count("\n<!-- end generated -->") == len(names), page_name(page)


# Commands, settings, layouts, dependencies


def test_every_command_and_option_is_documented() -> None:
    reference = (ROOT / "docs" / "reference" / "cli.md").read_text()
    sections = dict(re.findall(r"^## (orbitlog[^\n]*)\n(.*?)(?=^## |\Z)", reference, re.DOTALL | re.MULTILINE))
    commands = dict(generate_docs.command_tree())
    assert sections.keys() == commands.keys()
    for name, command in commands.items():
        for option in command.params:
            if isinstance(option, click.Option) and not option.hidden:
                assert option.help, f"{name} {option.opts[0]} has no help"
                for spelling in (*option.opts, *option.secondary_opts):
                    assert re.search(rf"(?<![\w-]){re.escape(spelling)}(?![\w-])", sections[name]), spelling


@pytest.mark.parametrize("key", SETTINGS)
def test_setting_is_documented(key: str) -> None:
    assert f"| `{key}` |" in (ROOT / "docs" / "reference" / "settings.md").read_text()


def test_every_layout_is_drawn() -> None:
    page = (ROOT / "docs" / "formats.md").read_text()
    for title, layout in generate_docs.all_layouts().items():
        assert title in page or title.startswith("CommitLog record, fixed prefix"), title
        for field in layout.fields:
            assert f"`{field.name}`" in page, f"{title}: {field.name}"


def dependencies_of_project() -> set[str]:
    groups = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    # An extra may include others of this package.
    return {canonicalize_name(Requirement(text).name) for group in groups for text in group} - {PROJECT["name"]}


def test_every_dependency_has_its_reason() -> None:
    page = (ROOT / "docs" / "dependencies.md").read_text()
    reasons = dict(re.findall(r"^\| `([^`]+)` \| ([^|]+) \|", page, re.MULTILINE))
    assert set(reasons) == dependencies_of_project()
    assert all(len(reason) > 8 for reason in reasons.values())


def test_every_dependency_is_pinned_within_its_bounds() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    assert all(re.fullmatch(r"[0-9][0-9a-z.]*", version) for version in pins.values())
    assert dependencies_of_project() <= set(pins)
    assert "hatchling" in pins
    for group in (PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()):
        for requirement in (one for one in map(Requirement, group) if one.name != PROJECT["name"]):
            assert requirement.specifier.contains(pins[canonicalize_name(requirement.name)]), requirement


# Links, commands and names in prose

FILE_SUFFIXES = (".conf", ".py", ".xz", ".json", ".md")
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


def broken_links(page: Path, text: str) -> Iterator[str]:
    for target in LINK.findall(without_fences(text)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        linked = page if not path else (page.parent / path).resolve()
        if not linked.exists():
            yield f"{target}: no such file"
        elif anchor and anchor not in anchors(linked.read_text()):
            yield f"{target}: no such heading"


def without_fences(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


def anchors(text: str) -> set[str]:
    """Return the anchors of the headings, as GitHub names them."""
    headings = re.findall(r"^#+ (.+)$", without_fences(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_links_have_targets(page: Path) -> None:
    assert list(broken_links(page, page.read_text())) == []


def test_every_page_can_be_reached_from_the_index() -> None:
    reached: set[Path] = set()
    waiting = [ROOT / "docs" / "index.md"]
    while waiting:
        page = waiting.pop()
        if page in reached or page.suffix != ".md" or not page.exists():
            continue
        reached.add(page)
        links = LINK.findall(page.read_text())
        waiting += [(page.parent / link.partition("#")[0]).resolve() for link in links if ":" not in link]
    assert {page_name(page) for page in PAGES} - {page_name(page) for page in reached} == set()


def test_broken_link_is_reported(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# A heading, here\n```\n# no heading\n```\n")
    page = tmp_path / "page.md"
    text = "[a](other.md) [b](other.md#a-heading-here) [c](https://example.com/x) [d](gone.md) [e](other.md#no-heading)"
    page.write_text(text)
    assert list(broken_links(page, text)) == ["gone.md: no such file", "other.md#no-heading: no such heading"]


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_make_commands_in_prose_exist(page: Path) -> None:
    mentioned = re.findall(r"(?:^|`|\$ )make ((?:[A-Z_]+=\S+ )*)([a-z-]+)", page.read_text(), re.MULTILINE)
    assert {target for _, target in mentioned} <= make_targets()


def test_readme_names_its_two_commands() -> None:
    assert "\nmake demo " in (ROOT / "README.md").read_text()
    assert "\nmake test " in (ROOT / "README.md").read_text()


def test_every_make_target_is_phony_and_described() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert set(re.findall(r"^\.PHONY: (\S+)$", makefile, re.MULTILINE)) == make_targets()
    assert {row.split("`")[1] for row in generate_docs.make_targets("").splitlines()[2:]} == {
        f"make {target}" for target in make_targets()
    }


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_code_named_in_prose_exists(page: Path) -> None:
    """A name such as `formats.records.message.decode_message` in backticks must exist."""
    rooms = "|".join(path.name.removesuffix(".py") for path in PACKAGE.iterdir() if not path.name.startswith("_"))
    for dotted in re.findall(rf"`(?:orbitlog\.)?((?:{rooms})(?:\.\w+)+)`", page.read_text()):
        if not dotted.endswith(FILE_SUFFIXES):
            assert exists(dotted.split(".")), dotted


def exists(parts: list[str]) -> bool:
    """Follow directories to a module; the remaining parts must be names in the module."""
    place = PACKAGE
    for count, part in enumerate(parts):
        if (place / part).is_dir():
            place /= part
        elif (place / f"{part}.py").exists():
            source = (place / f"{part}.py").read_text()
            return all(re.search(rf"\b{re.escape(name)}\b", source) for name in parts[count + 1 :])
        else:
            return False
    return True


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_files_named_in_prose_exist(page: Path) -> None:
    """A path such as `jobs/log_splits.py` or `tests/faults/test_many_lives.py` in backticks must exist."""
    assert missing_files(page.read_text()) == []


def missing_files(text: str) -> list[str]:
    rooms = "|".join(path.name for path in PACKAGE.iterdir() if path.is_dir() and not path.name.startswith("_"))
    named = re.findall(rf"`((?:{rooms}|tests|benchmarks|tools)/[\w/]+\.py)`", text)
    return [name for name in named if not (ROOT / name).exists() and not (PACKAGE / name).exists()]


def test_missing_file_is_reported() -> None:
    text = "`tests/test_docs.py` `jobs/log_splits.py` `jobs/no_such_module.py` `interop/elsewhere.py`"
    assert missing_files(text) == ["jobs/no_such_module.py"]


def test_changelog_has_one_line_an_entry() -> None:
    lines = (ROOT / "CHANGELOG.md").read_text().splitlines()
    kinds = [line.removeprefix("### ") for line in lines if line.startswith("### ")]
    assert set(kinds) <= {"Added", "Changed", "Fixed", "Removed", "Security"}
    start = next(number for number, line in enumerate(lines) if line.startswith("### "))
    assert all(line.startswith(("- ", "#")) or not line for line in lines[start:])


@pytest.mark.parametrize(
    ("dotted", "is_present"),
    [
        ("formats", True),
        ("formats.layout", True),
        ("formats.layout.Layout.position", True),
        ("formats.no_such_module", False),
        ("formats.layout.no_such_name", False),
    ],
)
def test_missing_name_is_reported(dotted: str, is_present: bool) -> None:
    assert exists(dotted.split(".")) is is_present
