"""Apache's packages and our small Java programs: resolved by Maven, compiled by javac, kept in the user's cache.

Maven is asked as it is set up on this machine, by coordinates alone. A class path that was resolved once is taken
from the cache while its files exist, so a second run downloads nothing.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

MAVEN_SECONDS_MAX = 600
JAVAC_SECONDS_MAX = 120
OLD_SECONDS = 86_400
JAVA_SOURCES = Path(__file__).resolve().parent.parent / "java"

_GROUP = "org.apache.rocketmq"
OTEL_AGENT = "2.10.0"
ICEBERG = "1.10.0"
JETTY = "11.0.24"  # the version that Iceberg's servlet is compiled for
HADOOP = "3.5.0"  # the version of the client in PySpark 4.3
_ARTIFACTS = ("namesrv", "broker", "tools", "client")


class NotAvailable(Exception):
    """The reason, in one sentence, why Apache's brokers are not available: tests are skipped."""


@dataclass(frozen=True)
class ApachePackages:
    """One version of Apache RocketMQ, ready to run: its class path with our programs in front."""

    version: str
    java: Path
    class_path: str

    @property
    def is_5x(self) -> bool:
        return self.version.startswith("5.")


def cache_directory() -> Path:
    """A directory below the user's cache directory."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "orbitlog" / "interop"


@cache
def apache_packages(version: str, maven_seconds_max: int = MAVEN_SECONDS_MAX) -> ApachePackages:
    """Return the packages of a version; raises `NotAvailable` if Java, Maven or the packages are missing."""
    java, javac = _program("java"), _program("javac")
    directory = cache_directory() / version
    directory.mkdir(parents=True, exist_ok=True)
    jars = _cached_jars(directory) or _resolve(directory, version, maven_seconds_max)
    classes = _compile(directory, javac, jars, [] if version.startswith("4.") else ["since5"])
    return ApachePackages(version, java, os.pathsep.join([str(classes), *jars]))


@cache
def proxy_jars(version: str, maven_seconds_max: int = MAVEN_SECONDS_MAX) -> tuple[str, ...]:
    """Return the class path of Apache's proxy; raises `NotAvailable` if it cannot be downloaded."""
    directory = cache_directory() / f"proxy-{version}"
    directory.mkdir(parents=True, exist_ok=True)
    return tuple(_cached_jars(directory) or _resolve(directory, version, maven_seconds_max, ("proxy",)))


@cache
def yarn_jars(version: str = HADOOP, maven_seconds_max: int = MAVEN_SECONDS_MAX) -> tuple[str, ...]:
    """Return the class path of YARN's resource and node manager; raises `NotAvailable` if it cannot be downloaded."""
    directory = cache_directory() / f"yarn-server-{version}"
    directory.mkdir(parents=True, exist_ok=True)
    # The resource manager names classes of the timeline service, which its own package leaves out.
    artifacts = ("yarn-server-resourcemanager", "yarn-server-nodemanager", "yarn-server-timelineservice", "common")
    jars = _cached_jars(directory) or _resolve(
        directory, version, maven_seconds_max, artifacts, group="org.apache.hadoop", prefix="hadoop-"
    )
    return tuple(jars)


@cache
def hadoop_aws_jars(version: str = HADOOP, maven_seconds_max: int = MAVEN_SECONDS_MAX) -> tuple[str, ...]:
    """Return the class path of Hadoop's s3a, 690 MB with Amazon's SDK; raises `NotAvailable` without it."""
    directory = cache_directory() / f"hadoop-aws-{version}"
    directory.mkdir(parents=True, exist_ok=True)
    jars = _cached_jars(directory) or _resolve(
        directory, version, maven_seconds_max, ("aws",), group="org.apache.hadoop", prefix="hadoop-"
    )
    return tuple(jars)


@cache
def iceberg_rest_jars(version: str = ICEBERG, maven_seconds_max: int = MAVEN_SECONDS_MAX) -> tuple[str, ...]:
    """Return the class path of Iceberg's REST catalog, which is in its test jar; raises `NotAvailable` without it."""
    directory = cache_directory() / f"iceberg-rest-{version}"
    directory.mkdir(parents=True, exist_ok=True)
    more = _dependency("org.apache.iceberg", "iceberg-core", version, "tests")
    more += _dependency("org.eclipse.jetty", "jetty-servlet", JETTY)
    jars = _cached_jars(directory) or _resolve(
        directory, version, maven_seconds_max, ("core",), group="org.apache.iceberg", prefix="iceberg-", more=more
    )
    return tuple(jars)


@cache
def otel_javaagent(version: str = OTEL_AGENT, maven_seconds_max: int = MAVEN_SECONDS_MAX) -> Path:
    """Return OpenTelemetry's Java agent, which instruments RocketMQ's clients; raises `NotAvailable` without it."""
    directory = cache_directory() / f"otel-javaagent-{version}"
    directory.mkdir(parents=True, exist_ok=True)
    artifacts = ("opentelemetry-javaagent",)
    jars = _cached_jars(directory) or _resolve(
        directory, version, maven_seconds_max, artifacts, group="io.opentelemetry.javaagent", prefix=""
    )
    return Path(jars[0])


def _program(name: str) -> Path:
    home = os.environ.get("JAVA_HOME")
    if home and (program := Path(home, "bin", name)).exists():
        return program
    found = shutil.which(name)
    if found is None:
        raise NotAvailable(f"{name} was not found: install a JDK, 17 or newer, or set JAVA_HOME")
    return Path(found)


def _cached_jars(directory: Path) -> list[str] | None:
    kept = directory / "class_path.txt"
    if not kept.exists():
        return None
    jars = kept.read_text().strip().split(os.pathsep)
    return jars if all(Path(jar).exists() for jar in jars) else None


def _resolve(
    directory: Path,
    version: str,
    seconds_max: int,
    artifacts: tuple[str, ...] = _ARTIFACTS,
    *,
    group: str = _GROUP,
    prefix: str = "rocketmq-",
    more: str = "",
) -> list[str]:
    maven = shutil.which("mvn")
    if maven is None:
        raise NotAvailable("mvn was not found: install Maven to fetch the packages of Apache RocketMQ")
    (directory / "pom.xml").write_text(_pom(version, [prefix + name for name in artifacts], group, more))
    # Written by Maven under another name, so that an interrupted run leaves nothing that looks complete.
    fresh = directory / "class_path.new"
    command = [maven, "--batch-mode", "--quiet", "dependency:build-classpath", f"-Dmdep.outputFile={fresh}"]
    log = directory / "maven.log"
    try:
        with log.open("w") as output:
            done = subprocess.run(
                command,
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=seconds_max,
            )
    except subprocess.TimeoutExpired:
        raise NotAvailable(f"Maven did not fetch {group} {version} within {seconds_max} s; see {log}") from None
    if done.returncode != 0:
        raise NotAvailable(f"Maven cannot fetch {group} {version} (exit {done.returncode}); see {log}")
    fresh.replace(directory / "class_path.txt")
    jars = _cached_jars(directory)
    assert jars, "Maven names files that do not exist"
    return jars


def _dependency(group: str, artifact: str, version: str, classifier: str = "") -> str:
    kind = f"<classifier>{classifier}</classifier>" if classifier else ""
    return (
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version>{kind}</dependency>\n"
    )


def _pom(version: str, artifacts: Sequence[str], group: str, more: str) -> str:
    dependencies = "".join(_dependency(group, name, version) for name in artifacts) + more
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>\n'
        "<groupId>orbitlog</groupId><artifactId>interop</artifactId><version>1</version><packaging>pom</packaging>\n"
        f"<dependencies>\n{dependencies}</dependencies></project>\n"
    )


def _compile(directory: Path, javac: Path, jars: list[str], more: list[str]) -> Path:
    """Compile our programs, those of some directories too, into a directory named after their sources, once."""
    sources = sorted([*JAVA_SOURCES.glob("*.java"), *(each for one in more for each in (JAVA_SOURCES / one).iterdir())])
    digest = hashlib.sha256(os.pathsep.join(jars).encode() + b"".join(source.read_bytes() for source in sources))
    classes = directory / f"classes-{digest.hexdigest()[:16]}"
    if classes.exists():
        return classes
    unfinished = directory / f"classes.{os.getpid()}"
    command = [javac, "-encoding", "UTF-8", "-nowarn", "-d", unfinished, "-cp", os.pathsep.join(jars), *sources]
    done = subprocess.run(command, capture_output=True, text=True, timeout=JAVAC_SECONDS_MAX)
    assert done.returncode == 0, done.stderr
    for old in directory.glob("classes-*"):
        # Another session may still load classes from a younger one.
        if time.time() - old.stat().st_mtime > OLD_SECONDS:
            shutil.rmtree(old)
    try:
        unfinished.replace(classes)
    except OSError:
        # Another session has compiled the same sources in the meantime.
        if not classes.is_dir():
            raise
        shutil.rmtree(unfinished)
    return classes
