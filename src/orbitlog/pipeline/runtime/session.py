"""Spark session: creates one with the settings that matter, or prepares a session that the user created.

On a cluster the package is shipped as an archive that every executor unpacks, so workers run exactly the driver's
version. Other packages (numpy, numba, pyarrow) must be installed in the workers' Python. docs/spark.md explains each
setting.
"""

from __future__ import annotations

import atexit
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from orbitlog.errors import OrbitlogError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER_DEFAULT = "local[*]"
JAVA_VERSION_MIN = 17
_ATTEMPTS = 4
_PLAIN_LOCAL = re.compile(r"local(?:\[(\*|\d+)\])?")
_JAVA_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_JAVA_VERSION_TIMEOUT_S = 30
# Packages that a worker must be able to import; each is shipped as an archive of the same name.
_SHIPPED_PACKAGES = ("orbitlog", "pyspark_rocketmq", "pyspark_rocketmq_commitlog")
_EXCEPTION, _JAVA_MESSAGE = "Exception in thread ", ": "
_STDERR_READ_MAX = 1 << 20
_SHIPPED_MARK = "spark.orbitlog.shipped"

# Rows from Python reach the JVM as Arrow. Without a bounds check on each access reading them takes a fifth less time,
# and a collector without write barriers saves another fifth. Spark's planner calls some thousand methods often enough
# for C2 (tier 4), which then occupies a core for longer than a short job lasts; code that handles rows passes the
# fourfold threshold at once. (Java 17 and 25 have these options.)
_JVM_OPTIONS = (
    "-XX:+UseParallelGC -Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
    " -XX:Tier4InvocationThreshold=20000 -XX:Tier4MinInvocationThreshold=2400 -XX:Tier4CompileThreshold=60000"
)
# If no row reaches the JVM, C1 is enough: C2 still takes 16 to 49 ms of a core in a session's tenth rebuild.
_JVM_OPTIONS_FOR_TASKS = "-XX:+UseParallelGC -XX:TieredStopAtLevel=1"

SETTINGS: Mapping[str, str] = {
    # Over TCP, every task waits 40 ms for a delayed ACK between JVM and Python.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.buffer.size": str(1 << 20),
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "16384",
    # The default class takes 80 ms per micro-batch on a local disk, this one 23 ms.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.python.worker.faulthandler.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.enabled": "false",
}
# In local mode driver and executors are one process: listen on loopback only.
_LOCAL_SETTINGS: Mapping[str, str] = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
# Sockets are created in java.io.tmpdir. On YARN that is below the directory of the container, and the path is longer
# than the 107 bytes that a socket may have: no Python worker would start.
_YARN_SETTINGS: Mapping[str, str] = {"spark.python.unix.domain.socket.enabled": "false"}


class SparkUnavailable(OrbitlogError):
    """Spark could not be started; the message names what is missing and how to install it."""


def build_session(
    master: str = MASTER_DEFAULT,
    *,
    app_name: str = "orbitlog",
    settings: Mapping[str, str] | None = None,
    only_tasks: bool = False,
) -> SparkSession:
    """Start Spark, or return the session of this process; `settings` override the defaults.

    `only_tasks` is for rebuild, check, statistics and export, in which no row reaches the JVM. Data sources and SQL
    also work in such a session, but more slowly. Raise `SparkUnavailable` if PySpark or Java is missing.
    """
    session_class = _import_spark()
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    check_java()
    options = _JVM_OPTIONS_FOR_TASKS if only_tasks else _JVM_OPTIONS
    jvm_settings = {f"spark.{process}.extraJavaOptions": options for process in ("driver", "executor")}
    chosen = {**default_settings(master), **jvm_settings, **(settings or {})}
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = session_class.builder.master(with_retries(master)).appName(app_name).config(map=dict(chosen))
    with tempfile.TemporaryFile("w+") as stderr, _stderr_into(stderr.fileno()):
        try:
            spark = builder.getOrCreate()
        except (RuntimeError, OSError, Py4JError) as error:
            raise SparkUnavailable(f"Spark did not start: {_cause(stderr) or _reason(error)}") from error
    spark.sparkContext.setLogLevel("ERROR")
    return use_session(spark)


def use_session(spark: SparkSession) -> SparkSession:
    """Prepare a session that the user created: compile kernels, ship the package to workers, register data sources."""
    from orbitlog.pipeline.runtime.worker_setup import compile_kernels

    try:
        context = spark.sparkContext
    except AttributeError as error:
        raise SparkUnavailable("Spark Connect sessions have no SparkContext; pass a classic session") from error
    compile_kernels()
    # The mark is a conf entry of the session, so that a second call does not ship the archives twice.
    if not is_local(context.master or "") and not spark.conf.get(_SHIPPED_MARK, ""):
        ship_package(spark)
        spark.conf.set(_SHIPPED_MARK, "true")
    if not _spark_finds_sources():
        from orbitlog.pipeline.sources.commitlog_source import CommitLogSource
        from orbitlog.pipeline.sources.topic_source import TopicSource

        for source in (TopicSource, CommitLogSource):
            spark.dataSource.register(source)
    return spark


def sibling_session(spark: SparkSession) -> SparkSession:
    """Return a session of the same Spark with its own views and SQL settings."""
    sibling = spark.newSession()
    sibling.conf.set(_SHIPPED_MARK, spark.conf.get(_SHIPPED_MARK, "") or "")
    return use_session(sibling)


def _spark_finds_sources() -> bool:
    """Return whether Spark discovers data sources: it starts Python through a shell without quoting the path."""
    python = os.environ.get("PYSPARK_DRIVER_PYTHON") or os.environ.get("PYSPARK_PYTHON") or "python3"
    return shlex.quote(python) == python


def default_settings(master: str) -> dict[str, str]:
    """Return Orbitlog's settings for a master, without JVM options."""
    if is_local(master):
        return {**SETTINGS, **_LOCAL_SETTINGS}
    return {**SETTINGS, **(_YARN_SETTINGS if master == "yarn" else {})}


def is_local(master: str) -> bool:
    """Return whether tasks run in the driver's JVM."""
    return master.partition("[")[0] == "local"


def with_retries(master: str) -> str:
    """Return `master` with retries enabled: plain `local[N]` fails the job when one task fails."""
    match = _PLAIN_LOCAL.fullmatch(master)
    return f"local[{match[1] or '1'},{_ATTEMPTS}]" if match else master


def check_java() -> None:
    """Raise `SparkUnavailable` unless Spark will find a Java of a supported version."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    advice = f"install Java {JAVA_VERSION_MIN} or newer, or set JAVA_HOME to its directory"
    if java is None:
        raise SparkUnavailable(f"Spark needs Java, and no java is on the PATH; {advice}")
    try:
        result = subprocess.run(  # noqa: S603 (the user's own Java)
            [java, "-version"], capture_output=True, text=True, check=False, timeout=_JAVA_VERSION_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SparkUnavailable(
            f"Spark needs Java, and {java} failed to run ({_first_line(error)}); {advice}"
        ) from error
    version = _JAVA_VERSION.search(result.stderr + result.stdout)
    if version is None:
        raise SparkUnavailable(f"Spark needs Java, and {java} -version prints no version; {advice}")
    if int(version[1]) < JAVA_VERSION_MIN:
        raise SparkUnavailable(
            f"Spark needs Java {JAVA_VERSION_MIN} or newer, and {java} is Java {version[1]}; {advice}"
        )


def ship_package(spark: SparkSession) -> None:
    """Ship the package to every executor, which unpacks it into the import path of its workers."""
    from orbitlog.pipeline.runtime.shipping import pack_package, pack_with_redirect

    directory = Path(tempfile.mkdtemp(prefix="orbitlog-ship-"))
    # Executors that start later fetch the archives from here, so the directory stays until the driver exits.
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    root = Path(__file__).resolve().parents[3]
    archives = {
        "orbitlog": pack_with_redirect(root / "orbitlog", directory / "orbitlog.zip"),
        "pyspark_rocketmq": pack_package(root / "pyspark_rocketmq", directory / "pyspark_rocketmq.zip"),
    }
    for name, archive in archives.items():
        spark.sparkContext.addArchive(f"{archive}#{name}")  # unpacked under the name after '#'


@contextmanager
def _stderr_into(target: int) -> Iterator[None]:
    """Redirect file descriptor 2 while the block runs: a JVM that starts in it prints warnings that help no user."""
    sys.stderr.flush()
    original = os.dup(2)
    os.dup2(target, 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(original, 2)
        os.close(original)


def end_session(spark: SparkSession) -> None:
    """Stop Spark; ignore a JVM that has already exited, as when a signal stopped the whole process group."""
    from py4j.protocol import Py4JError

    try:
        spark.stop()
    except (Py4JError, OSError):
        return


def has_spark_ended(spark: SparkSession) -> bool:
    """Return whether the session cannot run anything more: Spark was stopped, or its JVM is gone."""
    from py4j.protocol import Py4JError

    try:
        return bool(spark.sparkContext._jsc.sc().isStopped())
    except (Py4JError, OSError):
        return True


def _cause(stderr: IO[str]) -> str:
    """Return the exception that the JVM printed before it exited, or an empty text."""
    stderr.seek(0)
    exceptions = [line.strip() for line in stderr.read(_STDERR_READ_MAX).splitlines() if _EXCEPTION in line]
    return exceptions[0].partition(_EXCEPTION)[2].partition(" ")[2] if exceptions else ""


def _reason(error: BaseException) -> str:
    """Return Java's message, which py4j puts on its own line after the call, or else the first line."""
    messages = [line for line in str(error).splitlines() if line.startswith(_JAVA_MESSAGE)]
    return messages[0].removeprefix(_JAVA_MESSAGE) if messages else _first_line(error)


def _import_spark() -> type[SparkSession]:
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        advice = "install it with: pip install 'orbitlog[spark]'"
        raise SparkUnavailable(f"the pipeline needs PySpark, and importing it failed ({error}); {advice}") from error
    return SparkSession


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
