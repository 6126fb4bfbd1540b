"""The public API: tests/public_api.txt lists what users may build on, and is reviewed like code.

Promised are the names in `orbitlog.__all__` with their members, the errors, the test tools, and the record formats
below. After an intended change: `make api`. Each public name has a docstring, an example, and a place in the reference.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import orbitlog
from orbitlog.client.exports import MODULE_OF
from tools.generate_docs import (
    description_of,
    example_of,
    is_record,
    public_methods,
    public_properties,
    shown_signature,
)

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "orbitlog"
RECORD = Path(__file__).with_name("public_api.txt")
REFERENCE = ROOT / "docs" / "reference" / "python.md"
LINES_MAX = 300
# The stable bytes API: records of a log and units of a queue, for programs that read store files themselves.
FORMATS = (
    "formats/hosts.py",
    "formats/records/message.py",
    "formats/records/message_id.py",
    "formats/records/message_scan.py",
    "formats/derived/queue_entry.py",
)
PROMISED_FILES = ("errors.py", *FORMATS, "testing/pytest_plugin.py", "testing/running_broker.py")


def public_api() -> str:
    """Describe every promised name, one line each."""
    lines = [line for name in orbitlog.__all__ for line in described_export(name)]
    for path in PROMISED_FILES:
        dotted = "orbitlog." + path.removesuffix(".py").replace("/", ".")
        lines += [f"{dotted}: {name}" for name in public_names((PACKAGE / path).read_text())]
    return "\n".join(lines) + "\n"


def described_export(name: str) -> Iterator[str]:
    """Describe one name of `orbitlog.__all__` with its public members."""
    value = getattr(orbitlog, name)
    if isinstance(value, ModuleType):
        yield f"orbitlog.{name}"
    elif not inspect.isclass(value):
        yield f"orbitlog.{name}{shown_signature(value, annotated=False)}"
    else:
        yield f"orbitlog.{name}{shown_signature(value, annotated=False) if is_record(value) else ''}"
        yield from (f"orbitlog.{name}.{key}" for key, _ in public_properties(value) if key in vars(value))
        for key, method in public_methods(value):
            yield f"orbitlog.{name}.{key}{shown_signature(method, annotated=False)}"


def public_names(source: str) -> list[str]:
    """List a module's own public names in order; a class is followed by its public members."""
    return [line for node in ast.parse(source).body for line in described(node)]


def described(node: ast.stmt, owner: str = "") -> Iterator[str]:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() if is_public(node.name):
            marks = {ast.unparse(mark) for mark in node.decorator_list}
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
    """Render names and defaults; annotations are checked by mypy."""
    for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        argument.annotation = None
    for rest in (arguments.vararg, arguments.kwarg):
        if rest:
            rest.annotation = None
    return ast.unparse(arguments)


def test_public_names_equal_the_reviewed_ones(request: pytest.FixtureRequest) -> None:
    current = public_api()
    if request.config.getoption("--accept-public-api"):
        RECORD.write_text(current)
    recorded = RECORD.read_text()
    assert len(current.splitlines()) < LINES_MAX
    if current != recorded:
        lines = difflib.unified_diff(
            recorded.splitlines(), current.splitlines(), "public_api.txt", "now", "", "", 0, ""
        )
        pytest.fail("\n".join(("if this is intended, run `make api`:", *lines)), pytrace=False)


def test_public_names_lists_public_names_of_every_kind_and_no_private_one() -> None:
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


def test_public_names_differ_if_a_default_changes() -> None:
    assert public_names("def f(a=1): ...") != public_names("def f(a=2): ...")


def test_exports_are_the_type_checked_imports() -> None:
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    guarded = next(node for node in tree.body if isinstance(node, ast.If))
    imported = {
        alias.name: node.module for node in guarded.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert imported == {**MODULE_OF, "errors": "orbitlog"}
    assert sorted(orbitlog.__all__) == sorted(imported)


def test_unknown_attribute_of_the_package_raises() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        orbitlog.nothing  # noqa: B018 - the access is the test


@pytest.mark.parametrize("name", orbitlog.__all__)
def test_export_has_docstring_example_and_reference(name: str) -> None:
    value = getattr(orbitlog, name)
    assert description_of(value)
    assert isinstance(value, ModuleType) or example_of(value)
    assert re.search(rf"^## {name}$", REFERENCE.read_text(), re.MULTILINE)


def test_reference_contains_every_public_method_and_error() -> None:
    reference = REFERENCE.read_text()
    for name in orbitlog.__all__:
        value = getattr(orbitlog, name)
        for method, _ in public_methods(value) if inspect.isclass(value) else ():
            assert f"### {name}.{method}\n" in reference
    for name, value in vars(orbitlog.errors).items():
        if inspect.isclass(value):
            assert f"`{name}`" in reference or f"## {name}" in reference
