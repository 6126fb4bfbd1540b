"""What others may build on changes on purpose only: tests/public_api.txt is reviewed like code.

Read from the sources, so that nothing has to be imported or compiled. After a change that is meant: `make api`.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "orbitlog"
RECORD = Path(__file__).with_name("public_api.txt")
_CLIENT = (
    "administration",
    "connecting",
    "consuming",
    "delivery",
    "reading",
    "receipts",
    "received",
    "rocketmq",
    "signature",
)
FROZEN = (
    *("__init__.py", "errors.py", "formats", "kernels", *(f"client/{module}.py" for module in _CLIENT)),
    *("testing/pytest_plugin.py", "testing/running_broker.py"),
)
# What numba compiles takes addresses and trusts them: for the kernels themselves, not for others.
COMPILED = {"kernel", "inlined", "intrinsic"}


def public_api() -> str:
    """Describe every public name of the frozen rooms, a line each."""
    lines: list[str] = []
    for room in FROZEN:
        place = PACKAGE / room
        for path in [place] if place.is_file() else sorted(place.rglob("*.py")):
            dotted = "orbitlog." + path.relative_to(PACKAGE).with_suffix("").as_posix().replace("/", ".")
            lines += [f"{dotted.removesuffix('.__init__')}: {name}" for name in public_names(path.read_text())]
    return "\n".join(lines) + "\n"


def public_names(source: str) -> list[str]:
    """List a module's own public names in order; a class is followed by its public members."""
    return [line for node in ast.parse(source).body for line in described(node)]


def described(node: ast.stmt, owner: str = "") -> Iterator[str]:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() if is_public(node.name):
            marks = {ast.unparse(mark) for mark in node.decorator_list}
            if marks & COMPILED:
                return
            is_property = bool(marks & {"property", "cached_property"})
            yield f"{owner}{node.name}" if is_property else f"{owner}{node.name}({parameters(node.args)})"
        case ast.ClassDef() if is_public(node.name):
            bases = ", ".join(map(ast.unparse, node.bases))
            yield f"{owner}{node.name}({bases})"
            for member in node.body:
                yield from described(member, f"{owner}{node.name}.")
        case ast.Assign():
            names = [name.id for target in node.targets for name in ast.walk(target) if isinstance(name, ast.Name)]
            if names == ["__all__"]:
                yield f"__all__ = {ast.unparse(node.value)}"
            yield from (owner + name for name in names if is_public(name))
        case ast.AnnAssign(target=ast.Name(id=name)) if is_public(name):
            yield f"{owner}{name}"


def is_public(name: str) -> bool:
    return not name.startswith("_") or name == "__init__"


def parameters(arguments: ast.arguments) -> str:
    """Render names and defaults; annotations are mypy's business."""
    for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        argument.annotation = None
    for rest in (arguments.vararg, arguments.kwarg):
        if rest:
            rest.annotation = None
    return ast.unparse(arguments)


def test_public_names_are_the_reviewed_ones(request: pytest.FixtureRequest) -> None:
    current = public_api()
    if request.config.getoption("--accept-public-api"):
        RECORD.write_text(current)
    recorded = RECORD.read_text()
    if current != recorded:
        lines = difflib.unified_diff(
            recorded.splitlines(), current.splitlines(), "public_api.txt", "now", "", "", 0, ""
        )
        pytest.fail("\n".join(("if this is meant, run `make api`:", *lines)), pytrace=False)


def test_every_kind_of_public_name_is_seen_and_no_private_one() -> None:
    source = """
from __future__ import annotations
import re
LIMIT = 5
A, (B, _C) = 1, (2, 3)
_private = 1
size: int = 3
def encode(entry: int, *, at: int = 0, **rest: str) -> bytes: ...
async def read(): ...
def _hidden(): ...
@kernel
def walk(address): ...
class Entry(NamedTuple):
    offset: int
    _cache: int
    def __init__(self, offset: int = 1) -> None: ...
    def __str__(self) -> str: ...
    @property
    def end(self) -> int: ...
    def _own(self): ...
class _Inner:
    x: int
"""
    assert public_names(source) == [
        "LIMIT",
        "A",
        "B",
        "size",
        "encode(entry, *, at=0, **rest)",
        "read()",
        "Entry(NamedTuple)",
        "Entry.offset",
        "Entry.__init__(self, offset=1)",
        "Entry.end",
    ]


def test_a_change_of_a_default_shows() -> None:
    assert public_names("def f(a=1): ...") != public_names("def f(a=2): ...")
