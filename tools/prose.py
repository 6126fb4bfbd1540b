"""Prose ratchet: counts idioms in docstrings, comments, message strings and Markdown, and compares them with ceilings.

    python tools/prose.py                    check every area against tools/prose_ceilings.json; exit 1 above a ceiling
    python tools/prose.py --lower            write today's counts as ceilings if they are lower
    python tools/prose.py --lines PATH...    print each hit in these files or directories, with the words to use instead
    python tools/prose.py --idioms           list the idioms and their replacements

The standard is docs/writing.md. Generated parts and fenced examples of Markdown are not counted: their text comes from
sources that are. A ceiling is a number of hits, so it holds while an area grows, and `--lower` never raises one.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
CEILINGS = ROOT / "tools" / "prose_ceilings.json"
AREAS: dict[str, tuple[str, ...]] = {
    "src": ("src",),
    "docs": ("docs",),
    "README": ("README.md",),
    "CHANGELOG": ("CHANGELOG.md",),
    "contributing": ("AGENTS.md", "CONTRIBUTING.md"),
}
SENTENCE_WORDS_MAX = 25
COLUMNS_MAX = 120
LONG_SENTENCE = "long sentence"
LONG_LINE = "long line"


class Idiom(NamedTuple):
    """A phrase of the house that a reader from the field does not know, and the words to use instead."""

    pattern: str
    instead: str


IDIOMS: dict[str, Idiom] = {
    "tell": Idiom(r"\b(?:tells?|told|telling)\b", "return whether; infer, report, show, detect"),
    "say": Idiom(r"\b(?:says|said|saying)\b", "contains, states, records, reports"),
    "whoever": Idiom(
        r"\b(?:whoever|nobody|somebody|everybody|those who|whom?"
        r" (?:asks|asked|made|makes|wants|waits|opens|writes|wrote|sends|sent|reads|knows|has))\b",
        "caller, client, process, consumer",
    ),
    "again": Idiom(
        r"\b(?:anew|once more|(?:made|begun|begins?|started|read|tried|derived|written|sent|comes?|delivered) again)\b",
        "rebuilt, restarted, retried, redelivered",
    ),
    "go on": Idiom(r"\b(?:go|goes|went|going|gone) on\b", "continues, resumes"),
    "lie": Idiom(r"\b(?:lies?|lay|lying)\b", "is stored, is, starts at"),
    "is no": Idiom(
        r"\b(?:cannot be(?=[.,;:\"]|$)|cannot be (?:had|true)|(?<!there )is no (?!longer|more)[a-z]+"
        r"|(?:is|are) (?-i:none)|not possible)",  # `is None` is Python
        "is invalid, is out of range, is not a valid X",
    ),
    "so many": Idiom(r"\b(?:so many|how far|as far as|so long as|so long ago)\b", "N, up to, offset, progress, lag"),
    "moment": Idiom(r"\b(?:for a moment|its moment|moment of its own|moments|a moment)\b", "timestamp, scheduled"),
    "mend": Idiom(
        r"\b(?:mend(?:s|ed|ing)?|aside|vouch(?:es|ed)?|fooled|straighten(?:s|ed)?|believed?)\b",
        "repair, quarantine, verify, misaligned",
    ),
    "short way": Idiom(r"\b(?:short|long|quick|usual) way\b", "fast path, slow path"),
    "lend": Idiom(r"\b(?:lends?|lent|lending)\b", "yield, return"),
    "behind": Idiom(r"\bbehind\b", "after, past (`behind` is for lag alone)"),
    "too": Idiom(r", (?:too|either)\b", "also"),
    "where": Idiom(r"\bwhere (?:there|it|they|that|nothing|none|no)\b", "if, when"),
    "what clause": Idiom(
        r"(?:^|\. )What(?:ever)? (?:is|are|was|were|has|have|cannot|can)\b(?![^.]*\?)", "name the noun"
    ),
    "ours": Idiom(r"\b(?:ours|theirs|of our own)\b", "Orbitlog, Apache's broker"),
}
_PATTERNS = {name: re.compile(idiom.pattern, re.IGNORECASE) for name, idiom in IDIOMS.items()}
_WORD = re.compile(r"[A-Za-z0-9'_-]+")
_SENTENCE_END = re.compile(r"(?<=[.!?:])[)*\"]*\s+(?=[A-Z0-9*(\[\"])")
_GENERATED = re.compile(r"^<!-- generated: .*?^<!-- end generated -->$", re.DOTALL | re.MULTILINE)
_FENCE = re.compile(r"^( *)```.*?^\1```$", re.DOTALL | re.MULTILINE)
_LIST_ITEM = re.compile(r"^\s*(?:[-*]|\d+\.) ")


class Hit(NamedTuple):
    """One idiom in one line of a file."""

    path: Path
    line: int
    idiom: str
    text: str


def python_prose(source: str) -> Iterator[tuple[int, str]]:
    """Yield line number and text of each comment line, and of each line of strings with at least three spaces."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("# ")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.count(" ") >= 3:
            for number, line in enumerate(node.value.splitlines()):
                yield node.lineno + number, line


def markdown_prose(text: str) -> Iterator[tuple[int, str]]:
    """Yield line number and text of each line outside of fences and generated parts."""
    for pattern in (_GENERATED, _FENCE):
        text = pattern.sub(lambda part: "\n" * part[0].count("\n"), text)
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            yield number, line


def long_sentences(text: str) -> Iterator[tuple[int, str]]:
    """Yield the sentences of Markdown paragraphs and list items that have too many words, with their first line."""
    for number, paragraph in _paragraphs(text):
        for sentence in _SENTENCE_END.split(_without_links(paragraph)):
            if len(_WORD.findall(sentence)) > SENTENCE_WORDS_MAX:
                yield number, sentence


def _paragraphs(text: str) -> Iterator[tuple[int, str]]:
    first, last, gathered = 0, 0, ""
    for number, line in markdown_prose(text):
        if line.lstrip().startswith(("|", "#", "![")) or (line.startswith("    ") and not gathered):
            continue
        if gathered and (number != last + 1 or _LIST_ITEM.match(line)):
            yield first, gathered
            gathered = ""
        first = first if gathered else number
        gathered = f"{gathered} {line.strip()}".strip()
        last = number
    if gathered:
        yield first, gathered


def _without_links(text: str) -> str:
    """Replace targets of links by nothing and code by one word: neither is read as words."""
    text = re.sub(r"\]\([^)]*\)", "]", text)
    return re.sub(r"`[^`]*`", "Code", text)


def long_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of prose that are too wide; rows of tables, headings and pictures are not wrapped."""
    for number, line in markdown_prose(text):
        if len(line) > COLUMNS_MAX and not line.startswith(("|", "#", "![", "    ", "<!--")):
            yield number, line


def hits_in(path: Path) -> Iterator[Hit]:
    """Yield every hit in one Python or Markdown file."""
    text = path.read_text(encoding="utf-8")
    is_markdown = path.suffix == ".md"
    for number, line in markdown_prose(text) if is_markdown else python_prose(text):
        for name, pattern in _PATTERNS.items():
            for _ in pattern.finditer(line):
                yield Hit(path, number, name, line.strip())
    if is_markdown:
        yield from (Hit(path, number, LONG_SENTENCE, sentence) for number, sentence in long_sentences(text))
        yield from (Hit(path, number, LONG_LINE, line.strip()) for number, line in long_lines(text))


def files_below(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            yield from (file for file in sorted(path.rglob("*")) if file.suffix in (".py", ".md"))
        else:
            yield path


def count_areas(root: Path, areas: Mapping[str, tuple[str, ...]] = AREAS) -> dict[str, dict[str, int]]:
    """Return the number of hits of each idiom in each area."""
    names = [*IDIOMS, LONG_SENTENCE, LONG_LINE]
    counts: dict[str, dict[str, int]] = {}
    for area, paths in areas.items():
        files = files_below(root / path for path in paths)
        found = Counter(hit.idiom for file in files for hit in hits_in(file))
        counts[area] = {name: found[name] for name in names if found[name]}
    return counts


def excesses(counts: Mapping[str, Mapping[str, int]], ceilings: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Return one line for each count above its ceiling; an idiom without a ceiling may not occur."""
    return [
        f"{area}: `{idiom}` occurs {count} times, at most {ceilings.get(area, {}).get(idiom, 0)} are allowed"
        for area, found in counts.items()
        for idiom, count in found.items()
        if count > ceilings.get(area, {}).get(idiom, 0)
    ]


def lowered(
    counts: Mapping[str, Mapping[str, int]], ceilings: Mapping[str, Mapping[str, int]]
) -> dict[str, dict[str, int]]:
    """Return the ceilings with each one lowered to its count; none is raised, and one that reaches zero is dropped."""
    result: dict[str, dict[str, int]] = {}
    for area, limits in ceilings.items():
        least = {idiom: min(limit, counts.get(area, {}).get(idiom, 0)) for idiom, limit in limits.items()}
        result[area] = {idiom: limit for idiom, limit in least.items() if limit}
    return result


def show_lines(paths: Iterable[Path]) -> None:
    for file in files_below(paths):
        for hit in sorted(hits_in(file), key=lambda hit: hit.line):
            instead = f" (instead: {IDIOMS[hit.idiom].instead})" if hit.idiom in IDIOMS else ""
            print(f"{hit.path}:{hit.line}: {hit.idiom}{instead}: {hit.text[:140]}")


def main(arguments: list[str] | None = None, *, root: Path = ROOT, ceilings_file: Path = CEILINGS) -> int:
    parser = argparse.ArgumentParser(description="Count idioms in prose and compare them with their ceilings.")
    parser.add_argument("--lower", action="store_true", help="write today's counts as ceilings if they are lower")
    parser.add_argument("--lines", nargs="+", type=Path, metavar="PATH", help="print each hit in these files")
    parser.add_argument("--idioms", action="store_true", help="list the idioms and their replacements")
    options = parser.parse_args(arguments)
    if options.idioms:
        print("\n".join(f"{name:12} {idiom.instead}" for name, idiom in IDIOMS.items()))
        return 0
    if options.lines:
        show_lines(options.lines)
        return 0
    counts = count_areas(root)
    ceilings = json.loads(ceilings_file.read_text())
    problems = excesses(counts, ceilings)
    if options.lower:
        ceilings_file.write_text(json.dumps(lowered(counts, ceilings), indent=2) + "\n")
    for problem in problems:
        print(problem)
    if problems:
        print("show them with `python tools/prose.py --lines PATH...`; the standard is docs/writing.md")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
