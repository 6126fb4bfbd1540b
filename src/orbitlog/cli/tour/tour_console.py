"""Web console of the tour: `orbitlog console` for the tour's cluster, asked for the cluster's overview over HTTP."""

from __future__ import annotations

import json
import urllib.request
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote

from orbitlog.cli.tour.tour_servers import Server

_PACKAGES = ("starlette", "uvicorn", "jinja2", "msgspec")
_SECONDS_MAX = 30


def why_no_console() -> str | None:
    """Return the reason why the console is unavailable, or None."""
    if any(find_spec(package) is None for package in _PACKAGES):
        return "its packages are not installed: pip install 'orbitlog[console]'"
    return None


class TourConsole:
    """A console process; it runs until the end of the tour."""

    def __init__(self, directory: Path, name_server: str) -> None:
        words = ("console", "--port", "0", "-n", name_server, "--data", str(directory / "console"))
        self._server = Server("console", words, directory / "console.log")
        self.url = str(self._server.facts["console"])

    def stop(self) -> None:
        self._server.stop()

    def topics(self) -> list[str]:
        """Return the topics that the console shows."""
        (cluster,) = self._get("/clusters")["items"]
        return [
            str(topic["topic"]) for topic in self._get(f"/clusters/{quote(cluster['name'], safe='')}/topics")["items"]
        ]

    def _get(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self.url.rstrip('/')}/api/v1{path}", timeout=_SECONDS_MAX) as answer:  # noqa: S310 - our own
            return json.load(answer)
