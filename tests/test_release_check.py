"""Release check: the changelog and the versions of this checkout hold, and mistakes in them are reported."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import orbitlog
from tools import release_check
from tools.release_check import Failed, check_changelog, check_versions

ROOT = Path(__file__).resolve().parent.parent
GOOD = "# Changes\n\n## Unreleased\n\n## 1.2.0 - 2026-01-31\n\n### Fixed\n\n- x\n\n## 1.1.0 - 2026-01-02\n"


def test_this_changelog_has_the_form() -> None:
    check_changelog((ROOT / "CHANGELOG.md").read_text(), None)
    assert check_changelog(GOOD, "1.2.0") == "2 releases"


@pytest.mark.parametrize(
    ("wrong", "version", "problem"),
    [
        (GOOD.replace("## Unreleased\n", ""), None, "must start"),
        (GOOD.replace("1.2.0 - 2026-01-31", "1.2.0"), None, "is not `## VERSION - DATE`"),
        (GOOD.replace("1.1.0", "1.3.0"), None, "descending"),
        (GOOD.replace("### Fixed", "### Repaired"), None, "unknown sections"),
        (GOOD, "1.3.0", "no section for 1.3.0"),
    ],
)
def test_mistake_in_the_changelog_is_reported(wrong: str, version: str | None, problem: str) -> None:
    with pytest.raises(Failed, match=problem):
        check_changelog(wrong, version)


def test_versions_agree_everywhere() -> None:
    assert release_check.stated_version() == orbitlog.__version__
    check_versions(orbitlog.__version__, f"v{orbitlog.__version__}")
    with pytest.raises(Failed, match="the tag is"):
        check_versions(orbitlog.__version__, "v9.9.9")


def test_python_of_pyenv_is_found_behind_a_shim_that_is_switched_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for program, code in (("shims/python3.12", 1), ("versions/3.12.1/bin/python3.12", 0), ("shims/python3.13", 1)):
        (tmp_path / program).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / program).write_text(f"#!/bin/sh\nexit {code}\n")
        (tmp_path / program).chmod(0o755)
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "shims"))
    found = dict(release_check.interpreters([]))
    assert found["python3.12"] == str(tmp_path / "versions/3.12.1/bin/python3.12")
    assert found["python3.13"] is None and found["python3.14"] is None


def installer(directory: Path, name: str, printed: str) -> str:
    """Return a program that installs a command `orbitlog` into the home directory."""
    program = directory / name
    command = f"printf '#!/bin/sh\\necho {printed}\\n' > $HOME/.local/bin/orbitlog"
    program.write_text(f"#!/bin/sh\nmkdir -p $HOME/.local/bin\n{command}\nchmod +x $HOME/.local/bin/orbitlog\n")
    program.chmod(0o755)
    return str(program)


def test_installer_must_give_a_command_of_the_version_and_pipx_its_man_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "orbitlog-1.2.0-py3-none-any.whl").touch()
    monkeypatch.setattr(release_check, "DIST", tmp_path)
    assert release_check.check_installer("1.2.0", installer(tmp_path, "uv", "orbitlog 1.2.0"), ()).startswith("the com")
    with pytest.raises(Failed, match=r"the command printed 'orbitlog 1\.1\.0'"):
        release_check.check_installer("1.2.0", installer(tmp_path, "uv", "orbitlog 1.1.0"), ())
    with pytest.raises(Failed, match="the man pages are not linked"):
        release_check.check_installer("1.2.0", installer(tmp_path, "pipx", "orbitlog 1.2.0"), ())
    (tmp_path / "uv").write_text("#!/bin/sh\necho no such package >&2\nexit 1\n")
    with pytest.raises(Failed, match="cannot install: no such package"):
        release_check.check_installer("1.2.0", str(tmp_path / "uv"), ())


def test_workflows_run_targets_that_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for workflow in (ROOT / ".github" / "workflows").iterdir():
        commands = re.findall(r"^\s*- run: (.+)$", workflow.read_text(), re.MULTILINE)
        assert commands, workflow
        for command in commands:
            program, target, *_ = command.split()
            assert program == "make" and target in targets, command


def test_devcontainer_is_json_that_runs_a_target() -> None:
    described = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
    assert described["postCreateCommand"] == "make setup"
