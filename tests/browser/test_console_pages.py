"""Pages of the console in Chromium: accessible in both schemes, no console message, keyboard, live updates, tail."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from orbitlog.testing.running_broker import RunningBroker
from tests.integration.console.conftest import options_of
from tests.support.console_browser import Page, violations
from tests.support.console_site import ConsoleSite

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.xdist_group("browser")]

ROOT = "/clusters/shop"
FLOOD_RATE, FLOOD_BATCH, FLOOD_SECONDS = 5_000, 50, 5.0
FRAME_MS_MAX = 1_000.0
WATCH_FRAMES = """() => {
  window.longestFrameMs = 0;
  let last = performance.now();
  const step = (now) => {
    window.longestFrameMs = Math.max(window.longestFrameMs, now - last);
    last = now;
    requestAnimationFrame(step);
  };
  requestAnimationFrame(step);
}"""
PAGES = (
    f"{ROOT}/overview",
    f"{ROOT}/topics",
    f"{ROOT}/topics/Orders",
    f"{ROOT}/topics/Orders/messages",
    f"{ROOT}/topics/Orders/live",
    f"{ROOT}/groups",
    f"{ROOT}/groups/billing",
    f"{ROOT}/brokers",
    f"{ROOT}/settings",
    f"{ROOT}/find",
    "/api",
    "/sign-in",
)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_is_accessible_and_obeys_the_policy(
    site: ConsoleSite, browser: Any, axe: str, screenshots: Path, scheme: str
) -> None:
    with Page(browser, site, color_scheme=scheme, viewport={"width": 1280, "height": 800}) as shown:
        for path in PAGES:
            shown.page.goto(site.url + path)
            assert shown.page.locator("h1").count() == 1
            assert violations(shown.page, axe) == [], path
            name = path.strip("/").replace("/", "-")
            shown.page.screenshot(path=screenshots / f"{name}-{scheme}.png", full_page=True)


def test_pages_fit_a_narrow_screen(site: ConsoleSite, browser: Any, axe: str) -> None:
    with Page(browser, site, viewport={"width": 400, "height": 800}) as shown:
        for path in PAGES[:6]:
            shown.page.goto(site.url + path)
            assert violations(shown.page, axe) == [], path
            assert shown.page.evaluate("document.documentElement.scrollWidth") <= 400, path


def test_hostile_bodies_and_properties_stay_text(site: ConsoleSite, browser: Any) -> None:
    with Page(browser, site) as shown:
        shown.page.on("dialog", lambda dialog: shown.seen.append("a script ran"))
        shown.page.goto(f"{site.url}{ROOT}/topics/Orders/messages")
        shown.page.locator("main tbody th a").first.click()
        shown.page.wait_for_selector("pre.body")
        assert "<script>alert(1)</script>" in shown.page.locator("pre.body").first.inner_text()
        assert shown.page.locator("main script").count() == 0


def test_keys_open_pages_and_move_in_tables(site: ConsoleSite, browser: Any) -> None:
    with Page(browser, site) as shown:
        page = shown.page
        page.goto(f"{site.url}{ROOT}/overview")
        page.keyboard.press("g")
        page.keyboard.press("t")
        page.wait_for_url("**/topics")
        page.keyboard.press("j")
        assert page.evaluate("document.activeElement.closest('tbody') !== null")
        page.keyboard.press("Enter")
        page.wait_for_url("**/topics/*")
        page.keyboard.press("?")
        assert page.locator("dialog[open]").count() == 1
        page.keyboard.press("Escape")
        assert page.locator("dialog[open]").count() == 0
        page.keyboard.press("p")
        assert page.locator("#pause").get_attribute("aria-pressed") == "true"


def test_live_part_is_refreshed_without_losing_the_focus(
    site: ConsoleSite, browser: Any, busy_broker: RunningBroker
) -> None:
    with Page(browser, site) as shown:
        page = shown.page
        busy_broker.client.admin.create_topic("Refreshed", 1)
        busy_broker.client.send("Refreshed", "one")
        page.goto(f"{site.url}{ROOT}/topics/Refreshed")
        page.locator("#live a, #live [tabindex]").first.focus()
        busy_broker.client.send("Refreshed", "two")
        page.wait_for_function("() => document.querySelector('#live .tile dd').textContent.trim() === '2'")
        assert page.evaluate("document.activeElement !== document.body")


def test_pages_can_be_read_without_javascript(site: ConsoleSite, browser: Any) -> None:
    with Page(browser, site, java_script_enabled=False) as shown:
        shown.page.goto(f"{site.url}{ROOT}/groups")
        assert "billing" in shown.page.locator("main").inner_text()


def test_tail_shows_messages_as_they_arrive(site: ConsoleSite, browser: Any, busy_broker: RunningBroker) -> None:
    with Page(browser, site) as shown:
        busy_broker.client.admin.create_topic("Tailed", 1)
        shown.page.goto(f"{site.url}{ROOT}/topics/Tailed/live?tags=wanted")
        status = "document.querySelector('ob-tail [role=status]').textContent"
        shown.page.wait_for_function(f"() => {status}.includes('0 seen')")
        # The feed reads the ends in its first round; a message of before would not be part of the tail.
        for _ in range(100):
            busy_broker.client.send("Tailed", "<b>unwanted</b>", tags="other")
            shown.page.wait_for_timeout(100)
            if not shown.page.evaluate(f"{status}.includes(' 0 seen')"):
                break
        busy_broker.client.send("Tailed", "<b>hello</b>", tags="wanted")
        shown.page.wait_for_selector("ob-tail tbody tr")
        assert shown.page.locator("ob-tail tbody tr td").last.inner_text() == "<b>hello</b>"
        assert shown.page.locator("ob-tail tbody tr").count() == 1


def test_tail_of_very_many_messages_does_not_freeze_the_page(
    site: ConsoleSite, browser: Any, busy_broker: RunningBroker
) -> None:
    with Page(browser, site) as shown:
        busy_broker.client.admin.create_topic("Flood", 1)
        shown.page.goto(f"{site.url}{ROOT}/topics/Flood/live")
        status = "document.querySelector('ob-tail [role=status]').textContent"
        shown.page.wait_for_function(f"() => {status}.includes('0 seen')")
        shown.page.evaluate(WATCH_FRAMES)
        sent, began = 0, time.monotonic()
        while time.monotonic() < began + FLOOD_SECONDS:
            busy_broker.client.send_batch("Flood", ["x" * 100] * FLOOD_BATCH)
            sent += FLOOD_BATCH
            time.sleep(max(0.0, began + sent / FLOOD_RATE - time.monotonic()))
        shown.page.wait_for_function(f"() => {status}.includes('dropped')")
        shown.page.get_by_role("button", name="Pause").click()
        assert shown.page.evaluate("window.longestFrameMs") < FRAME_MS_MAX
        assert shown.page.locator("ob-tail tbody tr").count() <= 1000


def test_last_message_to_a_topic_is_remembered(busy_broker: RunningBroker, browser: Any, tmp_path: Path) -> None:
    with ConsoleSite(options_of(busy_broker, tmp_path, may_write=True)) as site, Page(browser, site) as shown:
        shown.page.goto(site.facts["sign-in"])
        for remembered in ("", "once more"):
            shown.page.goto(f"{site.url}{ROOT}/topics/Orders/send")
            assert shown.page.locator("textarea[name=body]").input_value() == remembered
            shown.page.locator("textarea[name=body]").fill("once more")
            shown.page.get_by_role("button", name="Show the plan").press("Enter")
            shown.page.wait_for_selector("table.plan")
