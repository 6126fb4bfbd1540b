"""The Spark session that jobs run on: made here with the settings that matter, or made by the user and taken as it is.

On a cluster the package goes along as an archive that every executor unpacks, so that workers run the driver's very
version; other packages (numpy, numba, pyarrow) must be in the workers' Python. Why each setting: docs/spark.md.
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
_JAVA_ANSWERS_WITHIN_S = 30
# Packages that a worker must be able to import; each becomes an archive of its own name.
_SHIPPED_PACKAGES = ("orbitlog", "pyspark_rocketmq", "pyspark_rocketmq_commitlog")
_EXCEPTION, _JAVA_SAID = "Exception in thread ", ": "
_STDERR_READ_MAX = 1 << 20
_SHIPPED_MARK = "spark.orbitlog.shipped"

# Rows from Python reach the JVM as Arrow: reading them without a check of each access saves a fifth of its time, and
# a collector without barriers another one. Spark's planning calls some thousand methods often enough for the second
# compiler, which then takes a core from short jobs for longer than they last; what each row goes through passes four
# times the threshold at once. (Java 17 and 25 know these options.)
_JVM_OPTIONS = (
    "-XX:+UseParallelGC -Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
    " -XX:Tier4InvocationThreshold=20000 -XX:Tier4MinInvocationThreshold=2400 -XX:Tier4CompileThreshold=60000"
)
# Where no row reaches the JVM the first compiler is enough: the second one is still at work in a session's tenth
# rebuild, where it takes 16 to 49 ms of a core.
_JVM_OPTIONS_FOR_TASKS = "-XX:+UseParallelGC -XX:TieredStopAtLevel=1"

SETTINGS: Mapping[str, str] = {
    # A TCP socket between JVM and Python waits 40 ms for a delayed acknowledgement in every task.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.buffer.size": str(1 << 20),
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "16384",
    # The default one costs 80 ms a micro-batch on a local disk, this one 23.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.python.worker.faulthandler.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.enabled": "false",
}
# Where driver and executors are one process nothing needs to listen to the network.
_LOCAL_SETTINGS: Mapping[str, str] = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


class SparkUnavailable(OrbitlogError):
    """Spark cannot be started here; the sentence says what is missing and how to get it."""


def build_session(
    master: str = MASTER_DEFAULT,
    *,
    app_name: str = "orbitlog",
    settings: Mapping[str, str] | None = None,
    only_tasks: bool = False,
) -> SparkSession:
    """Start Spark, or return the session that already runs in this process; `settings` win over ours.

    `only_tasks`: for rebuild, check, statistics and export, in which the JVM gives tasks to workers and no row reaches
    it. Data sources and SQL work in such a session, too, but slower.
    """
    session_class = _import_spark()
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    check_java()
    options = _JVM_OPTIONS_FOR_TASKS if only_tasks else _JVM_OPTIONS
    of_the_jvm = {f"spark.{process}.extraJavaOptions": options for process in ("driver", "executor")}
    chosen = {**SETTINGS, **of_the_jvm, **(_LOCAL_SETTINGS if is_local(master) else {}), **(settings or {})}
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = session_class.builder.master(with_retries(master)).appName(app_name).config(map=dict(chosen))
    with tempfile.TemporaryFile("w+") as said, _stderr_into(said.fileno()):
        try:
            spark = builder.getOrCreate()
        except (RuntimeError, OSError, Py4JError) as error:
            raise SparkUnavailable(f"Spark did not start: {_cause(said) or _reason(error)}") from error
    spark.sparkContext.setLogLevel("ERROR")
    return use_session(spark)


def use_session(spark: SparkSession) -> SparkSession:
    """Make a session that somebody else built ready for our jobs: kernels compiled, workers able to import us."""
    from orbitlog.pipeline.runtime.warm_up import warm_kernels

    try:
        context = spark.sparkContext
    except AttributeError as error:
        raise SparkUnavailable("a session of Spark Connect has no context of its own; give a classic one") from error
    warm_kernels()
    if not is_local(context.master or "") and not spark.conf.get(_SHIPPED_MARK, ""):
        ship_package(spark)
        spark.conf.set(_SHIPPED_MARK, "true")
    if not _spark_finds_sources():
        from orbitlog.pipeline.sources.commitlog_source import CommitLogSource
        from orbitlog.pipeline.sources.topic_source import TopicSource

        for source in (TopicSource, CommitLogSource):
            spark.dataSource.register(source)
    return spark


def _spark_finds_sources() -> bool:
    """Tell whether Spark finds data sources by itself: it asks a shell for its Python first, and quotes no path."""
    python = os.environ.get("PYSPARK_DRIVER_PYTHON") or os.environ.get("PYSPARK_PYTHON") or "python3"
    return shlex.quote(python) == python


def is_local(master: str) -> bool:
    """Tell whether tasks run in the driver's own JVM."""
    return master.partition("[")[0] == "local"


def with_retries(master: str) -> str:
    """Let failed tasks be tried again: plain `local[N]` gives up at the first failure."""
    match = _PLAIN_LOCAL.fullmatch(master)
    return f"local[{match[1] or '1'},{_ATTEMPTS}]" if match else master


def check_java() -> None:
    """Raise one helpful sentence unless a Java that Spark runs on is found where Spark will look for it."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    advice = f"install Java {JAVA_VERSION_MIN} or newer, or let JAVA_HOME name its directory"
    if java is None:
        raise SparkUnavailable(f"Spark needs Java, and none is found; {advice}")
    try:
        answer = subprocess.run(  # noqa: S603 (the user's own Java)
            [java, "-version"], capture_output=True, text=True, check=False, timeout=_JAVA_ANSWERS_WITHIN_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SparkUnavailable(
            f"Spark needs Java, and {java} cannot be run ({_first_line(error)}); {advice}"
        ) from error
    version = _JAVA_VERSION.search(answer.stderr + answer.stdout)
    if version is None:
        raise SparkUnavailable(f"Spark needs Java, and {java} does not tell its version; {advice}")
    if int(version[1]) < JAVA_VERSION_MIN:
        raise SparkUnavailable(
            f"Spark needs Java {JAVA_VERSION_MIN} or newer, and {java} is Java {version[1]}; {advice}"
        )


def ship_package(spark: SparkSession) -> None:
    """Give the package to every executor, which unpacks it on the import path of its workers."""
    from orbitlog.pipeline.runtime.shipping import pack_package, pack_with_leading_init

    directory = Path(tempfile.mkdtemp(prefix="orbitlog-ship-"))
    # Executors that start later fetch the archives from here: they stay as long as the driver does.
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    root = Path(__file__).resolve().parents[3]
    archives = {
        "orbitlog": pack_with_leading_init(root / "orbitlog", directory / "orbitlog.zip"),
        "pyspark_rocketmq": pack_package(root / "pyspark_rocketmq", directory / "pyspark_rocketmq.zip"),
    }
    for name, archive in archives.items():
        spark.sparkContext.addArchive(f"{archive}#{name}")  # unpacked under the name behind '#'


@contextmanager
def _stderr_into(target: int) -> Iterator[None]:
    """Give a JVM that is started meanwhile another stderr than the user's: it greets with warnings for nobody."""
    sys.stderr.flush()
    kept = os.dup(2)
    os.dup2(target, 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)


def end_session(spark: SparkSession) -> None:
    """Stop Spark, whose JVM may be gone already: whoever ends a whole group of processes ends it, too."""
    from py4j.protocol import Py4JError

    try:
        spark.stop()
    except (Py4JError, OSError):
        return


def _cause(said: IO[str]) -> str:
    """Return what the JVM gave as the reason for its end."""
    said.seek(0)
    found = [line.strip() for line in said.read(_STDERR_READ_MAX).splitlines() if _EXCEPTION in line]
    return found[0].partition(_EXCEPTION)[2].partition(" ")[2] if found else ""


def _reason(error: BaseException) -> str:
    """Return what Java said, which is in a line of its own behind what was called, or else the first line."""
    said = [line for line in str(error).splitlines() if line.startswith(_JAVA_SAID)]
    return said[0].removeprefix(_JAVA_SAID) if said else _first_line(error)


def _import_spark() -> type[SparkSession]:
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        advice = "install it with: pip install 'orbitlog[spark]'"
        raise SparkUnavailable(f"the pipeline needs PySpark, and it cannot be imported ({error}); {advice}") from error
    return SparkSession


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
