"""Spark on a real YARN: the submit command of docs/spark.md, and the commands of Orbitlog with `--master yarn`."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from orbitlog.testing.running_broker import RunningBroker
from tests.interop.harness.packages import NotAvailable, yarn_jars
from tests.interop.harness.yarn import Yarn, running_yarn

pytestmark = [pytest.mark.interop, pytest.mark.spark]

COUNT = 500
MEMORY = {"spark.driver.memory": "512m", "spark.executor.memory": "512m", "spark.yarn.am.memory": "512m"}
SMALL = {**MEMORY, "spark.executor.instances": "1", "spark.executor.cores": "2", "spark.ui.enabled": "false"}
# What a user submits: a copy of a topic.
PROGRAM = """
import sys
from orbitlog.pipeline.runtime.session import use_session
from pyspark.sql import SparkSession

spark = use_session(SparkSession.builder.appName("copy").getOrCreate())
address, source, target = sys.argv[1:]
rows = spark.read.format("rocketmq").option("nameServer", address).option("subscribe", source).load()
sink = rows.select("body", "keys", "tags", "properties").write.format("rocketmq").mode("append")
sink.option("nameServer", address).option("topic", target).save()
print("copied from", rows.rdd.getNumPartitions() and spark.sparkContext.master)
"""


@pytest.fixture(scope="module")
def yarn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yarn]:
    try:
        yarn_jars()
    except NotAvailable as reason:
        pytest.skip(str(reason))
    home = os.environ.get("JAVA_HOME")
    java = Path(home, "bin", "java") if home else Path(shutil.which("java") or "java")
    with running_yarn(tmp_path_factory.mktemp("yarn"), java) as running:
        yield running


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path / "store", {"brokerName": "broker-a", "defaultTopicQueueNums": "4"}) as running:
        with running.connect() as mq:
            for number in range(COUNT):
                mq.send("Orders", f"order {number}", keys=[f"k{number}"], tags="paid")
        yield running


def environment(yarn: Yarn) -> dict[str, str]:
    return os.environ | {
        "HADOOP_CONF_DIR": str(yarn.configuration),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }


@pytest.mark.parametrize("mode", ["cluster", "client"])
def test_submitted_program_copies_a_topic(yarn: Yarn, broker: RunningBroker, mode: str, tmp_path: Path) -> None:
    import pyspark

    home = Path(pyspark.__file__).parent
    program = tmp_path / "copy_topic.py"
    program.write_text(PROGRAM)
    settings = SMALL | {
        "spark.app.name": "copy",  # in cluster mode YARN has a name before the program runs
        "spark.yarn.stagingDir": str(tmp_path),
        "spark.yarn.jars": f"local:{home}/jars/*",
        "spark.yarn.appMasterEnv.PYSPARK_PYTHON": sys.executable,
        "spark.executorEnv.PYSPARK_PYTHON": sys.executable,
        "spark.executorEnv.NUMBA_CACHE_DIR": str(tmp_path / "numba"),
    }
    words = [word for name, text in settings.items() for word in ("--conf", f"{name}={text}")]
    command = [home / "bin" / "spark-submit", "--master", "yarn", "--deploy-mode", mode, *words]
    ended = subprocess.run(
        [*command, program, broker.address, "Orders", f"Copied-{mode}"],
        env=environment(yarn) | {"SPARK_HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert ended.returncode == 0, ended.stderr[-3000:] + _logs(yarn)
    last = yarn.applications()[-1]
    assert (last["name"], last["finalStatus"], last["applicationType"]) == ("copy", "SUCCEEDED", "SPARK")
    assert _bodies(broker, f"Copied-{mode}") == {f"order {number}" for number in range(COUNT)}


def test_command_runs_its_tasks_in_containers(yarn: Yarn, broker: RunningBroker, tmp_path: Path) -> None:
    """The package is shipped to the containers, which do not need it installed."""
    settings = "\n".join(f"{name} {text}" for name, text in (SMALL | {"spark.yarn.stagingDir": tmp_path}).items())
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text(settings)
    command = [
        sys.executable,
        "-c",
        "from orbitlog.cli.main import main; main()",
        "pipeline",
        "export",
        "--name-server",
        broker.address,
    ]
    arguments = ["--topic", "Orders", "--to", str(tmp_path / "lake"), "--master", "yarn", "--json"]
    ended = subprocess.run(
        [*command, *arguments],
        env=environment(yarn) | {"SPARK_CONF_DIR": str(tmp_path / "conf")},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert ended.returncode == 0, ended.stderr[-3000:] + _logs(yarn)
    assert sum(json.loads(line)["messages"] for line in ended.stdout.splitlines()) == COUNT
    last = yarn.applications()[-1]
    assert (last["name"], last["finalStatus"]) == ("orbitlog export", "SUCCEEDED")


def _bodies(broker: RunningBroker, topic: str) -> set[str]:
    bodies: list[str] = []
    with broker.connect() as mq:
        for message in mq.consume(topic, group="reader", start_from="first"):
            bodies.append(message.text)
            if len(bodies) == COUNT:
                break
    return set(bodies)


def _logs(yarn: Yarn) -> str:
    """Return the ends of the containers' logs, without the lines of classes."""
    texts = [
        path.read_text(errors="replace")[-1500:] for path in sorted(yarn.logs.rglob("std*")) if path.stat().st_size
    ]
    return "\n".join(re.sub(r"\n\tat .*", "", text) for text in texts)[-4000:]
