"""Pages of the HTTP listener: `/metrics`, and the health of a server at `/livez`, `/readyz` and `/healthz`.

A server is alive if its event loop answers. It is ready if nothing keeps it from serving clients: a server that is
alive and not ready should get no new clients, and a restart would not help it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from orbitlog.observe.condition_pages import condition_rows
from orbitlog.observe.conditions import Conditions
from orbitlog.observe.exposition import Exposition, format_for
from orbitlog.observe.http_listener import Page, PageMaker

METRICS, LIVE, READY, HEALTH = "/metrics", "/livez", "/readyz", "/healthz"
_JSON = "application/json"
Problems = Callable[[], list[str]]
"""Returns the reasons why a server is not ready; none of them may contain text of a request."""


def health_pages(problems: Problems, conditions: Conditions) -> dict[str, PageMaker]:
    """Return the pages of a server's health; `/healthz` also lists its conditions."""

    def live(_: str) -> Page:
        return _page(200, {"status": "alive"})

    def ready(_: str) -> Page:
        found = problems()
        return _page(503 if found else 200, _summary(found))

    def health(_: str) -> Page:
        return _page(200, {**_summary(problems()), "conditions": condition_rows(conditions)})

    return {LIVE: live, READY: ready, HEALTH: health}


def metrics_and_health(exposition: Exposition, problems: Problems, conditions: Conditions) -> Mapping[str, PageMaker]:
    """Return all pages."""

    def metrics(accept: str) -> Page:
        text_format = format_for(accept)
        return Page(200, text_format.content_type, exposition.pieces(text_format))

    return {METRICS: metrics, **health_pages(problems, conditions)}


def _summary(problems: list[str]) -> dict[str, object]:
    return {"status": "not ready" if problems else "ready", "problems": problems}


def _page(status: int, content: Mapping[str, object]) -> Page:
    return Page(status, _JSON, json.dumps(content).encode() + b"\n")
