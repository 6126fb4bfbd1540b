"""SQL of the console: who may run it, over what, and how a child process that fails, or is cancelled, is shown."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitlog.console.console_options import ConsoleOptions
from orbitlog.console.work import child_process, sql_jobs
from orbitlog.testing.golden import GoldenStore
from orbitlog.testing.running_broker import RunningBroker
from tests.integration.console.conftest import options_of
from tests.support.console_site import ConsoleSite

PRINTER = "import json, sys; [print(json.dumps({'topic': 'T', 'n': n})) for n in range(3)]; sys.exit(%d)"
SLEEPER = "import time; time.sleep(600)"


def options(broker: RunningBroker, directory: Path, golden: GoldenStore) -> ConsoleOptions:
    made = options_of(broker, directory, allows_sql=True)
    return dataclasses.replace(made, stores={"golden": golden.store})


@pytest.fixture(scope="module")
def sql_site(
    busy_broker: RunningBroker, golden_497: GoldenStore, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[ConsoleSite, str]]:
    with ConsoleSite(options(busy_broker, tmp_path_factory.mktemp("sql"), golden_497)) as site:
        assert site.get("/sql").status == 403
        yield site, site.sign_in_locally()


def run(sql_site: tuple[ConsoleSite, str], broker: RunningBroker, **fields: str) -> dict[str, object]:
    site, csrf = sql_site
    reply = site.change("POST", "/sql", csrf, {"sql": "select 1", "store": "golden", **fields})
    assert reply.status == 202, reply.text
    job = str(reply.json["job"])
    broker.wait_for(lambda: site.api(f"/jobs/{job}")["isFinished"], seconds=60)
    return dict(site.api(f"/jobs/{job}"))


def test_rows_of_a_query_are_kept_and_its_failure_is_named(
    sql_site: tuple[ConsoleSite, str], busy_broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = (child_process._PROGRAM[0], "-c")
    monkeypatch.setattr(child_process, "_PROGRAM", (*program, PRINTER % 0))
    answer = run(sql_site, busy_broker)
    assert (answer["columns"], answer["items"]) == (["topic", "n"], [["T", 0], ["T", 1], ["T", 2]])
    monkeypatch.setattr(child_process, "_PROGRAM", (*program, "import sys; sys.exit('orbitlog: no such column x')"))
    failed = run(sql_site, busy_broker)
    assert failed["job"]["state"] == "failed" and failed["job"]["problem"] == "no such column x"  # type: ignore[index]


def test_a_running_query_is_cancelled(
    sql_site: tuple[ConsoleSite, str], busy_broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_process, "_PROGRAM", (child_process._PROGRAM[0], "-c", SLEEPER))
    site, csrf = sql_site
    job = site.change("POST", "/sql", csrf, {"sql": "select 1", "store": "golden"}).json["job"]
    busy_broker.wait_for(lambda: site.api(f"/jobs/{job}")["job"]["state"] == "running", seconds=60)
    assert site.post(f"/jobs/{job}/cancel", {"csrf": "x" * 43}).status == 403
    assert site.post(f"/jobs/{job}/cancel", {"csrf": csrf}).status == 303
    busy_broker.wait_for(lambda: site.api(f"/jobs/{job}")["job"]["state"] == "cancelled", seconds=60)


def test_only_configured_sources_are_queried(sql_site: tuple[ConsoleSite, str]) -> None:
    site, csrf = sql_site
    for fields, status in (
        ({"sql": "select 1"}, 400),
        ({"sql": "select 1", "store": "/etc"}, 404),
        ({"sql": "select 1", "cluster": "10.0.0.1:9876", "topic": "T"}, 404),
        ({"sql": "select 1", "cluster": "shop"}, 400),
        ({"sql": "", "store": "golden"}, 400),
    ):
        assert site.change("POST", "/sql", csrf, fields).status == status, fields
    assert site.change("POST", "/sql", "", {"sql": "select 1", "store": "golden"}).status == 403
    assert "select topic, count(*)" in site.get("/sql").text


def test_page_names_the_extra_if_spark_is_missing(
    sql_site: tuple[ConsoleSite, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_jobs, "find_spec", lambda name: None)
    assert "orbitlog[console,spark]" in sql_site[0].get("/sql").text


def test_console_without_the_option_has_no_sql(site: ConsoleSite) -> None:
    assert site.get("/sql").status == 404
    assert site.change("POST", "/sql", "", {"sql": "select 1"}).status == 404
