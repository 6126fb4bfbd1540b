"""Changes through the API of a console: dry run, change, and the audit log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.support.console_site import ConsoleSite, Reply


class Changer:
    """A console that may change its cluster, and an admin's session."""

    def __init__(self, site: ConsoleSite, directory: Path) -> None:
        self.site = site
        self.csrf = site.sign_in_locally()
        self._audit = directory / "audit.jsonl"

    def plan(self, method: str, path: str, **fields: Any) -> Any:
        reply = self.site.change(method, f"/clusters/shop{path}?plan=true", self.csrf, fields)
        assert reply.status == 200, reply.text
        return reply.json

    def apply(self, method: str, path: str, plan: Any, *, confirm: str | None = None, **fields: Any) -> Reply:
        given = plan["confirm"] if confirm is None else confirm
        query = f"?planId={plan['planId']}&confirm={quote(given)}"
        return self.site.change(method, f"/clusters/shop{path}{query}", self.csrf, fields)

    def both(self, method: str, path: str, **fields: Any) -> Any:
        reply = self.apply(method, path, self.plan(method, path, **fields), **fields)
        assert reply.status == 200, reply.text
        return reply.json

    @property
    def audit(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._audit.read_text().splitlines()]
