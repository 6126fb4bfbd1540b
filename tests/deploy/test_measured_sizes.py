"""Sizes of packages: debug information is counted as `strip` removes it, and bytecode as Python writes it."""

from __future__ import annotations

import py_compile
import shutil
import subprocess
import zipfile
from pathlib import Path

import lz4.frame._frame
import pytest

from tools.measure_sizes import Parts, core_table, debug_bytes, parts_of

MODULE = Path(lz4.frame._frame.__file__)


@pytest.mark.skipif(shutil.which("strip") is None, reason="strip is missing; install the package binutils")
def test_debug_information_is_what_strip_removes(tmp_path: Path) -> None:
    stripped = tmp_path / "stripped.so"
    subprocess.run(["strip", "--strip-unneeded", "-o", stripped, MODULE], check=True)
    removed = MODULE.stat().st_size - stripped.stat().st_size
    assert debug_bytes(MODULE.read_bytes()) == pytest.approx(removed, rel=0.02)
    assert debug_bytes(stripped.read_bytes()) == 0


def test_text_and_other_formats_have_no_debug_information() -> None:
    assert [debug_bytes(data) for data in (b"", b"print()", b"\xcf\xfa\xed\xfe" + bytes(100))] == [0, 0, 0]


def test_parts_of_an_archive_add_up_to_its_files_and_bytecode(tmp_path: Path) -> None:
    source = tmp_path / "module.py"
    source.write_text('"""A module."""\nNUMBER = 1\n')
    py_compile.compile(str(source), cfile=str(tmp_path / "module.pyc"), dfile="module.py")
    with zipfile.ZipFile(tmp_path / "a.whl", "w") as wheel:
        wheel.write(source, "a/module.py")
        wheel.writestr("a/broken.py", "def")
        wheel.write(MODULE, "a/_frame.so")
    parts = parts_of(tmp_path / "a.whl")
    assert parts.unpacked_bytes == source.stat().st_size + len("def") + MODULE.stat().st_size
    assert parts.debug_bytes == debug_bytes(MODULE.read_bytes())
    assert parts.bytecode_bytes == (tmp_path / "module.pyc").stat().st_size


def test_table_of_the_core_is_sorted_and_has_the_sum() -> None:
    rows = core_table({"small": Parts(0, 0, 100_000, 200_000), "large": Parts(1_000_000, 2_000_000, 0, 0)}).splitlines()
    assert rows[2:] == [
        "| `large` | 0.0 MB | 1.0 MB | 2.0 MB | 0.0 MB | 3.0 MB |",
        "| `small` | 0.1 MB | 0.0 MB | 0.0 MB | 0.2 MB | 0.3 MB |",
        "| all | 0.1 MB | 1.0 MB | 2.0 MB | 0.2 MB | 3.3 MB |",
    ]
