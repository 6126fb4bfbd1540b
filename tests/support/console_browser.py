"""Pages of a console in a browser: checks of accessibility, of console messages and of requests to other hosts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.console_site import ConsoleSite

# Structure does not depend on the scheme: a page that was checked in one scheme needs only its colours in another.
COLOURS = "{runOnly: {type: 'rule', values: ['color-contrast', 'link-in-text-block']}}"
RULES = "{runOnly: {type: 'tag', values: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa']}}"


class Page:
    """A page that fails the test on console messages, script errors and requests to other hosts."""

    def __init__(self, browser: Any, site: ConsoleSite, **options: Any) -> None:
        self._context = browser.new_context(reduced_motion="reduce", **options)
        self.page = self._context.new_page()
        self.page.set_default_timeout(60_000)
        self.seen: list[str] = []
        self.page.on("console", lambda message: self.seen.append(message.text))
        self.page.on("pageerror", lambda error: self.seen.append(str(error)))
        self.page.on("request", lambda request: self._check(request.url, site.url))

    def _check(self, url: str, own: str) -> None:
        if not url.startswith((own, "data:")):
            self.seen.append(f"request to {url}")

    def __enter__(self) -> Page:
        return self

    def __exit__(self, *_: object) -> None:
        self._context.close()
        assert self.seen == []


def violations(page: Any, axe: str, rules: str = RULES) -> list[str]:
    """Return what axe-core finds wrong with a page."""
    page.evaluate(axe)
    result = page.evaluate(f"axe.run({rules})")
    return [f"{found['id']}: {[node['target'] for node in found['nodes']]}" for found in result["violations"]]


class Looker:
    """Opens pages, each checked in both schemes, and keeps pictures."""

    def __init__(self, page: Any, axe: str, pictures: Path | None, name: str) -> None:
        self.page = page
        self._axe = axe
        self._pictures = pictures
        self._name = name

    def open(self, url: str) -> str:
        """Open a page and check it; return its text."""
        response = self.page.goto(url)
        assert response.status == 200, url
        self.check(url)
        return str(self.page.locator("main").inner_text())

    def check(self, what: str) -> None:
        assert self.page.locator("h1").count() == 1, what
        file_name = what.split("//")[-1].partition("/")[2].replace("/", "-").partition("?")[0]
        for scheme, rules in (("light", RULES), ("dark", COLOURS)):
            self.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            assert violations(self.page, self._axe, rules) == [], (what, scheme)
            if self._pictures is not None:
                path = self._pictures / f"{self._name}-{file_name}-{scheme}.png"
                self.page.screenshot(path=path, full_page=True)
        self.page.emulate_media(color_scheme="light", reduced_motion="reduce")
