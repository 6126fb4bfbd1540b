"""Hooks of mkdocs: adapt pages that are written for plain Markdown to the site.

* Pages of the repository's root become pages of the site below project/.
* Links to other files of the repository, such as tests or sources, become the names of those files.
* Marks of fences that only tests read, such as `run` in `console run`, are removed.
* The script with which the search works from files is the copy in tools/site instead of one of another host.
* The navigation gets every page that it does not name: decisions and benchmark records.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PROJECT_PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "AGENTS.md", "SECURITY.md")
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^(```+)(\w+) [^\n`]+$", re.MULTILINE)
_REST = "..."
_SHIM = ROOT / "tools" / "site" / "iframe-worker-shim.js"  # iframe-worker 1.0.3, MIT
_SHIM_URL, _SHIM_PATH = "https://unpkg.com/iframe-worker/shim", "assets/javascripts/iframe-worker-shim.js"


def on_config(config: Any) -> Any:
    """Replace `...` in the navigation by the pages that it does not name."""
    named = set(_named_pages(config["nav"]))
    docs = Path(config["docs_dir"])
    pages = sorted(path.relative_to(docs).as_posix() for path in docs.rglob("*.md"))
    rest = [page for page in pages if page not in named and not page.endswith("/template.md")]
    for section in config["nav"]:
        for title, entries in section.items():
            if _REST in entries:
                decisions = [page for page in rest if page.startswith("adr/")]
                others = [page for page in rest if not page.startswith("adr/")]
                section[title] = [entry for entry in entries if entry != _REST] + others + [{"Decisions": decisions}]
    return config


def _named_pages(entries: Any) -> list[str]:
    if isinstance(entries, str):
        return [entries]
    values = entries.values() if isinstance(entries, dict) else entries
    return [page for value in values for page in _named_pages(value)]


def on_files(files: Any, config: Any) -> Any:
    """Add the pages of the repository's root."""
    from mkdocs.structure.files import File

    for name in PROJECT_PAGES:
        files.append(File.generated(config, f"project/{name}", content=(ROOT / name).read_text()))
    files.append(File.generated(config, _SHIM_PATH, content=_SHIM.read_text()))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Adapt links and fences of a page."""
    return _FENCE.sub(r"\1\2", adapted_links(markdown, page.file.src_uri))


def on_post_page(output: str, *, page: Any, **_: Any) -> str:
    """Load the script from the site itself."""
    start = posixpath.dirname(page.file.dest_uri) or "."
    return output.replace(_SHIM_URL, posixpath.relpath(_SHIM_PATH, start))


def on_post_template(output: str, **_: Any) -> str:
    """The same for pages that are no Markdown, such as 404.html."""
    return output.replace(_SHIM_URL, _SHIM_PATH)


def adapted_links(markdown: str, source: str) -> str:
    """Return the text with links that hold on the site; `source` is the page's path below docs/."""
    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.DOTALL | re.MULTILINE)
    return "".join(
        part if part.startswith("```") else _LINK.sub(lambda link: _adapted(link, source), part) for part in parts
    )


def _adapted(link: re.Match[str], source: str) -> str:
    is_image, text, target = link.groups()
    if re.match(r"[a-z]+:|#", target):
        return link[0]
    path, separator, anchor = target.partition("#")
    in_repository = _repository_path(path, source)
    if in_repository in PROJECT_PAGES:
        in_repository = f"docs/project/{in_repository}"
    if not in_repository.startswith("docs/"):
        return f"{text} (`{in_repository}`)" if text.strip("`") != in_repository else f"`{in_repository}`"
    below_docs = in_repository.removeprefix("docs/")
    if not Path(ROOT, "docs", below_docs).suffix:
        return f"{text} (`{in_repository}`)"
    relative = posixpath.relpath(below_docs, posixpath.dirname(source) or ".")
    return f"{is_image}[{text}]({relative}{separator}{anchor})"


def _repository_path(path: str, source: str) -> str:
    """Return the path of a linked file from the repository's root."""
    directory = "" if source.startswith("project/") else posixpath.join("docs", posixpath.dirname(source))
    return posixpath.normpath(posixpath.join(directory, path))
