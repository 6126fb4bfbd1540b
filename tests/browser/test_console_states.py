"""Pages of the console in Chromium over clusters in every state: with changes, empty, very large, down, damaged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orbitlog.console.console_options import ConsoleOptions
from orbitlog.testing.golden import GoldenStore
from orbitlog.testing.running_broker import RunningBroker
from tests.integration.console.conftest import options_of
from tests.support.console_browser import Looker, Page
from tests.support.console_site import ConsoleSite
from tests.support.console_states import add_waiting_messages, write_many_names

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.xdist_group("browser")]

ROOT = "/clusters/shop"
LISTS = ("overview", "topics", "groups", "brokers", "settings", "find", "later", "dead-letters", "transactions")
TOPICS, GROUPS = 1000, 500


@pytest.fixture
def full_broker(tmp_path: Path) -> Iterator[RunningBroker]:
    """A broker with waiting messages of every kind."""
    with RunningBroker(tmp_path / "full") as broker:
        add_waiting_messages(broker)
        yield broker


def test_changes_are_made_by_keyboard_and_every_step_is_accessible(
    full_broker: RunningBroker, browser: Any, axe: str, pictures: Path | None, tmp_path: Path
) -> None:
    options = options_of(full_broker, tmp_path / "data", may_write=True)
    with ConsoleSite(options) as site, Page(browser, site, viewport={"width": 1280, "height": 800}) as shown:
        look = Looker(shown.page, axe, pictures, "busy")
        shown.page.goto(site.facts["sign-in"])
        for path in ("overview", "later", "dead-letters/refunds", "transactions", "groups/refunds", "topics/Payments"):
            look.open(f"{site.url}{ROOT}/{path}")
        look.open(f"{site.url}{ROOT}/dead-letters/refunds/replay?key=k1")
        shown.page.locator("select[name=to]").select_option("origin")
        shown.page.get_by_role("button", name="Show the plan").press("Enter")
        shown.page.wait_for_selector("table.plan")
        look.check(f"{site.url}/plan")
        assert shown.page.locator("table.plan tbody tr").count() == 1
        shown.page.get_by_role("button", name="Replay dead letters: refunds").press("Enter")
        shown.page.wait_for_url("**/jobs/*")
        shown.page.wait_for_selector(".state-done")
        look.check(f"{site.url}/job")
        assert "letter 1" in look.open(f"{site.url}{ROOT}/topics/Payments/messages")
        for path in ("/audit", "/jobs", "/api"):
            look.open(site.url + path)


def test_pages_of_an_empty_cluster_state_that_nothing_is_there(
    browser: Any, axe: str, pictures: Path | None, tmp_path: Path
) -> None:
    with (
        RunningBroker(tmp_path / "store") as broker,
        ConsoleSite(options_of(broker, tmp_path / "data")) as site,
        Page(browser, site) as shown,
    ):
        look = Looker(shown.page, axe, pictures, "empty")
        texts = {path: look.open(f"{site.url}{ROOT}/{path}") for path in LISTS}
        assert "Nothing is wrong" in texts["overview"]
        assert "No topic yet" in texts["topics"] and "No group yet" in texts["groups"]
        assert "Nothing waits" in texts["later"] and "No group has dead letters" in texts["dead-letters"]


def test_pages_of_a_broker_that_is_down_name_it(browser: Any, axe: str, pictures: Path | None, tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "store") as broker:
        broker.client.admin.create_topic("Orders", 1)
        with ConsoleSite(options_of(broker, tmp_path / "data")) as site, Page(browser, site) as shown:
            look = Looker(shown.page, axe, pictures, "down")
            site.api(f"{ROOT}/overview")
            broker.stop_broker()
            site.server.console.clusters["shop"]._watched_until = 0.0  # the next page takes a fresh sample
            assert "no broker is registered" in look.open(f"{site.url}{ROOT}/overview")
            for path in LISTS[1:]:
                look.open(f"{site.url}{ROOT}/{path}")


def test_pages_of_very_many_topics_and_groups_are_paged(
    browser: Any, axe: str, pictures: Path | None, tmp_path: Path
) -> None:
    write_many_names(tmp_path / "store", TOPICS, GROUPS)
    with (
        RunningBroker(tmp_path / "store") as broker,
        ConsoleSite(options_of(broker, tmp_path / "data")) as site,
        Page(browser, site) as shown,
    ):
        look = Looker(shown.page, axe, pictures, "many")
        for path in (*LISTS, "topics/topic-00007", "topics/topic-00007/messages", "groups/group-00007"):
            look.open(f"{site.url}{ROOT}/{path}")
        assert f"{TOPICS:,} in all" in look.open(f"{site.url}{ROOT}/topics")
        assert shown.page.locator("main tbody tr").count() == 50
        shown.page.get_by_role("link", name="next page").click()
        shown.page.wait_for_url("**after=50**")
        assert f"{GROUPS:,} in all" in look.open(f"{site.url}{ROOT}/groups?sort=group")


def test_pages_of_a_damaged_store_show_the_damage(
    golden_497: GoldenStore, browser: Any, axe: str, pictures: Path | None, tmp_path: Path
) -> None:
    store = golden_497.copy_to(tmp_path / "damaged").store
    with min((store / "commitlog").iterdir()).open("r+b") as segment:
        segment.seek(400)
        segment.write(b"\xff" * 20)
    options = ConsoleOptions(
        data_directory=tmp_path / "data",
        port=0,
        stores={"damaged": store},
        requests_per_second=1e6,
        request_burst=1_000_000,
    )
    with ConsoleSite(options) as site, Page(browser, site) as shown:
        look = Looker(shown.page, axe, pictures, "damaged")
        topic = site.api("/stores/damaged")["topics"][0]["topic"]
        queue = f"/damaged/queues/0/{topic}"
        for path in ("", "/damaged", "/damaged/log", "/damaged/log/0", queue, "/damaged/index/0"):
            look.open(f"{site.url}/stores{path}")
        assert "Findings" in look.open(f"{site.url}/stores/damaged/doctor")
        assert "orbitlog doctor repair" in look.open(f"{site.url}/stores/damaged/repair-plan")
