"""Dead letters, scheduled messages, transactions, jobs and the audit log: pages, replay, recall."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from orbitlog.console.web.job_routes import csv_cell
from orbitlog.testing.running_broker import RunningBroker
from tests.integration.console.conftest import options_of
from tests.support.console_changer import Changer
from tests.support.console_site import ConsoleSite
from tests.support.console_states import LETTERS, SCHEDULED, add_waiting_messages

ROOT = "/clusters/shop"


@pytest.fixture(scope="module")
def waiting_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A broker with dead letters, scheduled messages and a pending transaction."""
    with RunningBroker(tmp_path_factory.mktemp("waiting") / "store") as broker:
        add_waiting_messages(broker)
        yield broker


@pytest.fixture(scope="module")
def waiting(waiting_broker: RunningBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Changer]:
    directory: Path = tmp_path_factory.mktemp("waiting-data")
    with ConsoleSite(options_of(waiting_broker, directory, may_write=True)) as site:
        yield Changer(site, directory)


def finished(waiting: Changer, broker: RunningBroker, job: str) -> Any:
    broker.wait_for(lambda: waiting.site.api(f"/jobs/{job}")["isFinished"], seconds=60)
    return waiting.site.api(f"/jobs/{job}")


def test_dead_letters_are_listed_and_replayed_once(waiting: Changer, waiting_broker: RunningBroker) -> None:
    row = waiting.site.api(f"{ROOT}/dead-letters")["items"][0]
    assert (row["group"], row["letters"]) == ("refunds", LETTERS)
    letters = waiting.site.api(f"{ROOT}/dead-letters/refunds")["items"]
    assert [letter["preview"] for letter in letters] == ["letter 0", "letter 1", "letter 2"]
    assert {letter["originTopic"] for letter in letters} == {"Payments"}
    assert len(waiting.site.api(f"{ROOT}/dead-letters/refunds?key=k1")["items"]) == 1
    path, fields = "/dead-letters/refunds/replays", {"to": "origin"}
    one = waiting.plan("POST", path, **fields, key="k1")
    assert len(one["lines"]) == 1 and one["lines"][0]["after"] == "new message in Payments"
    plan = waiting.plan("POST", path, **fields)
    assert len(plan["lines"]) == LETTERS
    assert waiting.site.api(f"{ROOT}/topics/Payments/messages")["items"] == []
    reply = waiting.apply("POST", path, plan, **fields)
    assert reply.status == 202, reply.text
    job = finished(waiting, waiting_broker, reply.json["job"])
    assert (job["job"]["state"], job["job"]["stepsDone"]) == ("done", LETTERS)
    assert {row[1] for row in job["items"]} == {"sent"}
    sent = waiting.site.api(f"{ROOT}/topics/Payments/messages")["items"]
    assert {message["preview"] for message in sent} == {"letter 0", "letter 1", "letter 2"}
    again = waiting.plan("POST", path, **fields)
    assert again["isEmpty"] is True and "replayed already" in again["warnings"][0]
    text = waiting.site.get(f"/jobs/{reply.json['job']}/download?format=csv").text
    assert text.splitlines()[0].startswith("letter,state,target") and len(text.splitlines()) == LETTERS + 1
    assert waiting.site.get(f"/jobs/{reply.json['job']}").status == 200


def test_scheduled_messages_are_counted_by_day_and_recalled(waiting: Changer, waiting_broker: RunningBroker) -> None:
    later = waiting.site.api(f"{ROOT}/later")
    assert later["total"] == SCHEDULED and later["complete"] is True
    days = {day["day"]: day["count"] for week in later["weeks"] for day in week if day["count"]}
    timers = [row for row in later["items"] if row["canRecall"]]
    assert len(timers) == 3 and [row["topic"] for row in timers] == ["Payments"] * 3
    day = datetime.fromtimestamp(timers[-1]["due"] / 1000, UTC).date().isoformat()
    if day in days:  # else it is in the next month
        shown = waiting.site.api(f"{ROOT}/later?day={day}")
        assert sum(hour["count"] for hour in shown["hours"]) == days[day] == len(shown["items"])
    path = f"/later/{timers[0]['msgId']}"
    plan = waiting.plan("DELETE", path)
    assert plan["lines"][0]["after"] == "never"
    assert waiting.site.api(f"{ROOT}/later")["total"] == SCHEDULED
    assert waiting.apply("DELETE", path, plan).json["done"] is True
    assert "recall message" in {row["action"] for row in waiting.site.api("/audit")["items"]}
    waiting_broker.wait_for(lambda: waiting.site.api(f"{ROOT}/later")["total"] == SCHEDULED - 1, seconds=60)
    level = next(row for row in later["items"] if not row["canRecall"])
    refused = waiting.site.change("DELETE", f"{ROOT}/later/{level['msgId']}?plan=true", waiting.csrf, {})
    assert refused.status == 409 and "delay level" in refused.json["detail"]
    assert waiting.site.get(f"{ROOT}/later?month=2026-13").status == 400


def test_pages_of_waiting_messages_are_served(waiting: Changer) -> None:
    for path in ("later", "later?month=2026-12", "transactions", "dead-letters", "dead-letters/refunds"):
        assert waiting.site.get(f"{ROOT}/{path}").status == 200, path
    for path in ("/audit", "/jobs"):
        assert waiting.site.get(path).status == 200, path


def test_transactions_that_did_not_end_are_listed(waiting: Changer) -> None:
    answer = waiting.site.api(f"{ROOT}/transactions")
    assert (answer["total"], answer["complete"]) == (1, True)
    row = answer["items"][0]
    assert (row["topic"], row["checks"]) == ("Payments", 0) and row["group"] and row["ageMs"] >= 0
    path = f"{ROOT}/transactions/{row['msgId']}/checks"
    plan = waiting.site.change("POST", f"{path}?plan=true", waiting.csrf, {})
    assert plan.status == 200 and plan.json["target"] == row["msgId"]
    refused = waiting.site.change("POST", f"{path}?planId={plan.json['planId']}", waiting.csrf, {})
    assert refused.status == 502 and refused.json["code"] == 3  # Orbitlog's broker does not serve this request
    unknown = waiting.site.change("POST", f"{ROOT}/transactions/{'0' * 32}/checks?plan=true", waiting.csrf, {})
    assert unknown.status == 404


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\tx"])
def test_cells_that_a_spreadsheet_would_run_are_quoted(text: str) -> None:
    assert csv_cell(text) == f"'{text}"
    assert (csv_cell("a=b"), csv_cell(-1), csv_cell(None)) == ("a=b", -1, None)
