"""The session helper: errors if Spark cannot start, and what is shipped to the executors."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitlog.pipeline.runtime.session import (
    SparkUnavailable,
    check_java,
    default_settings,
    is_local,
    use_session,
    with_retries,
)


@pytest.fixture
def fake_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    return java


def say(java: Path, text: str) -> None:
    java.write_text(f"#!/bin/sh\necho '{text}' >&2\n")
    java.chmod(0o755)


@pytest.mark.parametrize("version", ["17.0.15", "21", "25.0.1"])
def test_a_java_that_spark_runs_on_is_taken(fake_java: Path, version: str) -> None:
    say(fake_java, f'openjdk version "{version}" 2025-04-15')
    check_java()


@pytest.mark.parametrize(("version", "named"), [("11.0.2", "Java 11"), ("1.8.0_312", "Java 8")])
def test_an_old_java_is_named_with_the_one_that_is_needed(fake_java: Path, version: str, named: str) -> None:
    say(fake_java, f'java version "{version}"')
    with pytest.raises(SparkUnavailable, match=f"needs Java 17 or newer, and .* is {named}; install Java 17"):
        check_java()


def test_a_java_home_without_java_is_named(fake_java: Path) -> None:
    with pytest.raises(SparkUnavailable, match=f"{fake_java} failed to run .*JAVA_HOME"):
        check_java()


def test_something_else_called_java(fake_java: Path) -> None:
    say(fake_java, "hello")
    with pytest.raises(SparkUnavailable, match="prints no version"):
        check_java()


def test_no_java_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SparkUnavailable, match="needs Java, and no java is on the PATH; install Java 17 or newer"):
        check_java()


@pytest.mark.parametrize(
    ("master", "expected"),
    [
        ("local", "local[1,4]"),
        ("local[*]", "local[*,4]"),
        ("local[2]", "local[2,4]"),
        ("local[2,1]", "local[2,1]"),
        ("spark://127.0.0.1:7077", "spark://127.0.0.1:7077"),
        ("local-cluster[2,1,1024]", "local-cluster[2,1,1024]"),
    ],
)
def test_local_masters_try_failed_tasks_again(master: str, expected: str) -> None:
    assert with_retries(master) == expected
    assert is_local(master) == (master.startswith("local") and "cluster" not in master)


@pytest.mark.parametrize(
    ("master", "uses_sockets"), [("local[2]", "true"), ("spark://127.0.0.1:7077", "true"), ("yarn", "false")]
)
def test_workers_of_yarn_use_no_socket_with_a_long_path(master: str, uses_sockets: str) -> None:
    assert default_settings(master)["spark.python.unix.domain.socket.enabled"] == uses_sockets


def test_a_session_without_a_context_is_refused_in_one_sentence() -> None:
    with pytest.raises(SparkUnavailable, match="Spark Connect sessions have no SparkContext"):
        use_session(object())  # type: ignore[arg-type]
