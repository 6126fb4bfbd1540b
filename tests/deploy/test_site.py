"""Documentation site, as built by `make site`: complete, without requests to other hosts, searchable from files."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from urllib.parse import unquote

import pytest

pytestmark = pytest.mark.interop

ROOT = Path(__file__).resolve().parent.parent.parent
SITE = ROOT / "build" / "site"
PAGES = sorted(SITE.rglob("*.html"))
LOADED = re.compile(r"<(?:script|img|link|iframe)\b[^>]*?\b(?:src|href)=\"?([^\"\s>]+)")
LINK = re.compile(r"<a\b[^>]*?\bhref=\"?([^\"\s>]+)")


def test_every_page_of_the_documentation_is_there() -> None:
    wanted = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    wanted |= {Path("project", f"{name}.html") for name in ("CHANGELOG", "CONTRIBUTING", "AGENTS", "SECURITY")}
    assert wanted - {page.relative_to(SITE) for page in PAGES} == set()


def test_pages_load_nothing_from_other_hosts() -> None:
    outside = {
        target
        for page in PAGES
        for target in LOADED.findall(page.read_text())
        if re.match(r"(https?:)?//", target) and not target.startswith("https://127.0.0.1")
    }
    assert outside == set()


def test_links_between_pages_have_targets() -> None:
    ids = {page: set(re.findall(r"\bid=\"?([^\"\s>]+)", page.read_text())) for page in PAGES}
    broken = []
    for page in PAGES:
        if page.name == "404.html":
            continue
        for target in LINK.findall(page.read_text()):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, anchor = unquote(target).partition("#")
            linked = (page.parent / path).resolve() if path else page
            linked = linked / "index.html" if linked.is_dir() else linked
            if not linked.exists() or (anchor and linked in ids and anchor not in ids[linked] and anchor != "__top"):
                broken.append(f"{page.relative_to(SITE)}: {target}")
    assert broken == []


def test_landing_page_leads_every_role_to_its_quick_start() -> None:
    landing = (SITE / "index.html").read_text()
    for role in ("developer", "operator", "data-engineer", "tester"):
        assert f"guides/quick-start-{role}.html" in landing
    assert "images/console-overview.png" in landing


def test_fences_are_code() -> None:
    for page in PAGES:
        assert "```" not in re.sub(r"<code>.*?</code>", "", page.read_text(), flags=re.DOTALL), page


def test_search_works_from_files() -> None:
    playwright = pytest.importorskip("playwright.sync_api")
    found = subprocess.run([ROOT / "tools" / "find_chromium"], capture_output=True, text=True)
    if found.returncode != 0:
        pytest.skip(found.stderr.strip())
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found.stdout.strip(), args=["--no-sandbox"])
        page = browser.new_page()
        page.context.set_offline(True)
        page.goto((SITE / "index.html").as_uri())
        page.locator("input.md-search__input").fill("dead letters", timeout=60_000)
        results = page.locator("a.md-search-result__link")
        results.first.wait_for(timeout=60_000, state="attached")
        assert any("messages.html" in (link.get_attribute("href") or "") for link in results.all())
        browser.close()


def test_versions_are_directories(tmp_path: Path) -> None:
    """`mike` puts each version into a directory, with a list for the menu."""
    tools = os.environ.get("ORBITLOG_SITE_TOOLS")
    if not tools:
        pytest.skip("mike is installed by `make site`")
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    environment = {
        **os.environ,
        "PATH": f"{tools}:{os.environ['PATH']}",
        "NO_MKDOCS_2_WARNING": "1",
        **{f"GIT_{who}_{what}": "docs@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    }
    for version, alias in (("0.1", "latest"), ("0.2", "latest")):
        command = [f"{tools}/mike", "deploy", "--update-aliases", version, alias]
        done = subprocess.run(command, cwd=clone, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    listed = subprocess.run([f"{tools}/mike", "list"], cwd=clone, env=environment, capture_output=True, text=True)
    assert re.findall(r"0\.\d", listed.stdout) == ["0.2", "0.1"] and "latest" in listed.stdout
