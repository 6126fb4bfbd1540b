"""What a user installs works on its own: the wheel in a fresh environment, no extra, no file of this repository."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from orbitlog.testing.golden import GoldenStore
from tests.support.doctor_outcomes import outcome_of

ROOT = Path(__file__).resolve().parent.parent
# A machine without a package index cannot run this test; anything else that goes wrong is a failure.
UNREACHABLE = re.compile(
    "Failed to establish a new connection|Temporary failure in name resolution|NameResolutionError"
)

# One group, so that the two workers do not build the environment twice.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("clean-install")]


def run_pip(python: Path, *arguments: str) -> None:
    constrained = {"PIP_CONSTRAINT": "constraints.txt", "PIP_BUILD_CONSTRAINT": "constraints.txt"}
    command = [python, "-I", "-m", "pip", "--disable-pip-version-check", "--no-input", "--quiet", *arguments]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **constrained}, capture_output=True, text=True)
    if done.returncode != 0 and UNREACHABLE.search(done.stderr):
        pytest.skip("no package index can be reached")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    run_pip(Path(sys.executable), "wheel", "--no-deps", "--wheel-dir", str(directory), ".")
    (built,) = directory.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def clean_bin(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment that holds the wheel and what it requires, and nothing else."""
    venv = tmp_path_factory.mktemp("clean") / "an environment"
    subprocess.run([sys.executable, "-I", "-m", "venv", venv], check=True)
    run_pip(venv / "bin" / "python", "install", str(wheel))
    return venv / "bin"


def run_there(program: Path, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run([program, *arguments], cwd=cwd, env=environment, capture_output=True, text=True)


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    tops = {name.split("/")[0] for name in names}
    sources = {"pyspark_rocketmq", "pyspark_rocketmq_commitlog"}
    assert {top for top in tops if not top.endswith((".data", ".dist-info"))} == {"orbitlog", *sources}
    assert "orbitlog/py.typed" in names
    assert any(name.endswith("/licenses/LICENSE") for name in names)
    assert any(name.endswith("/licenses/NOTICE") for name in names)
    sources = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src").rglob("*.py")}
    assert sources <= set(names)


@pytest.mark.parametrize("command", [["--help"], ["--version"], ["dump", "--help"]])
def test_commands_start_without_any_extra(clean_bin: Path, tmp_path: Path, command: list[str]) -> None:
    answer = run_there(clean_bin / "orbitlog", *command, cwd=tmp_path)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert "orbitlog" in answer.stdout


def test_core_is_below_35_mb_as_pip_leaves_it(clean_bin: Path) -> None:
    """pip and setuptools belong to the environment; the table in docs/install.md has the size of each package."""
    (packages,) = clean_bin.parent.glob("lib/*/site-packages")
    sizes: dict[str, int] = {}
    bytecode = 0
    for path in packages.rglob("*"):
        top = path.relative_to(packages).parts[0]
        if path.is_file() and not top.startswith(("pip", "setuptools", "pkg_resources", "_distutils", "distutils")):
            sizes[top] = sizes.get(top, 0) + path.stat().st_size
            bytecode += path.stat().st_size if path.suffix == ".pyc" else 0
    assert {"orbitlog", "uvloop"} <= set(sizes) and sum(sizes.values()) < 35_000_000, sizes
    assert bytecode > 5_000_000, "pip compiles what it installs"


KINDS_OF_FILES = ("commitlog", "consumequeue", "index", "checkpoint", "config")


def test_dump_without_any_extra_prints_the_same(clean_bin: Path, tmp_path: Path, golden_497: GoldenStore) -> None:
    for kind in KINDS_OF_FILES:
        command = ["dump", kind, str(golden_497.store)]
        core = run_there(clean_bin / "orbitlog", *command, cwd=tmp_path)
        whole = run_there(Path(sys.executable).parent / "orbitlog", *command, cwd=tmp_path)
        assert (core.returncode, core.stderr) == (0, ""), command
        assert core.stdout and core.stdout == whole.stdout, command


def test_doctor_without_any_extra_makes_the_same_bytes(
    clean_bin: Path, tmp_path: Path, golden_497: GoldenStore
) -> None:
    """Check, rebuild and repair of a damaged store: same findings and same files as with compiled kernels."""
    rebuilding = [("doctor", "rebuild", "--json"), ("doctor", "check", "--json")]
    repairing = [("doctor", "check", "--json"), ("doctor", "repair", "--apply", "--json")]
    for is_damaged, steps in ((False, rebuilding), (True, repairing)):
        core, whole = (
            outcome_of([str(bin_directory / "orbitlog")], tmp_path, golden_497, steps, is_damaged=is_damaged)
            for bin_directory in (clean_bin, Path(sys.executable).parent)
        )
        assert core == whole


def test_kernels_run_without_any_extra(clean_bin: Path, tmp_path: Path) -> None:
    script = "import orbitlog.kernels.dispatch as kernels; print(kernels.np.__name__)"
    answer = run_there(clean_bin / "python", "-W", "error", "-c", script, cwd=tmp_path)
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "orbitlog.kernels.plain.plain_numpy\n", "")


def test_first_minute_goes_as_the_readme_states(clean_bin: Path, tmp_path: Path) -> None:
    """A message sent, consumed, and found by its key, with what stands in the README and nothing else."""
    (example,) = re.findall(
        r"^```python\n(import orbitlog\n.*?)^```$", (ROOT / "README.md").read_text(), re.DOTALL | re.M
    )
    ports = ("--name-server-port", "0", "--broker-port", "0")
    with subprocess.Popen(
        [clean_bin / "orbitlog", "up", "--store", tmp_path / "store", *ports], stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None
            address = dict(word.split("=", 1) for word in server.stdout.readline().split()[1:])["name-server"]
            (tmp_path / "first.py").write_text(example.replace("127.0.0.1:9876", address))
            answer = run_there(clean_bin / "python", "-W", "error", "first.py", cwd=tmp_path)
        finally:
            server.terminate()
    assert (answer.returncode, answer.stderr) == (0, "")
    assert answer.stdout.startswith("hello\n[<Received ")


@pytest.mark.parametrize("extra", ["lz4", "fast", "spark", "lake", "dev"])
def test_nothing_of_an_extra_came_along(clean_bin: Path, tmp_path: Path, extra: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for requirement in project["optional-dependencies"][extra]:
        distribution = re.split(r"[^\w-]", requirement)[0]
        if distribution == project["name"]:
            continue  # an extra that includes another one
        answer = run_there(clean_bin / "python", "-m", "pip", "show", distribution, cwd=tmp_path)
        assert answer.returncode != 0, f"{distribution} is installed, though only {extra!r} asks for it"
