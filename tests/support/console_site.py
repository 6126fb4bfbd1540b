"""A console in a thread of the test, and a small HTTP client for it."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode, urlsplit

from orbitlog.console.console_options import ConsoleOptions
from orbitlog.console.console_server import ConsoleServer


@dataclass
class Reply:
    """One response."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class ConsoleSite:
    """A console that serves until the block ends; requests carry the cookie of the last sign-in."""

    options: ConsoleOptions
    cookie: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)

    def __enter__(self) -> ConsoleSite:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="console", daemon=True)
        self._thread.start()
        self.server = ConsoleServer(self.options)
        self.facts = self._run(self.server.start())
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self.server.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def _run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    @property
    def url(self) -> str:
        return self.facts["console"].rstrip("/")

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Reply:
        parts = urlsplit(self.url)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=120)
        try:
            cookie = {"cookie": self.cookie} if self.cookie else {}
            with suppress(BrokenPipeError):  # a refusal may come, and the connection end, before a large body is sent
                connection.request(method, path, body, {**cookie, **(headers or {})})
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            reply = Reply(response.status, found, response.read())
        finally:
            connection.close()
        if "set-cookie" in found:
            self.cookie = found["set-cookie"].split(";")[0]
        return reply

    def get(self, path: str, **headers: str) -> Reply:
        return self.request("GET", path, headers=headers)

    def api(self, path: str) -> Any:
        """Return the JSON of an API path; fail unless the status is 200."""
        reply = self.get(f"/api/v1{path}")
        assert reply.status == 200, (path, reply.status, reply.text)
        return reply.json

    def post(self, path: str, fields: Mapping[str, str], **headers: str) -> Reply:
        """Submit a form as a browser on a page of the console does."""
        sent = {"content-type": "application/x-www-form-urlencoded", "sec-fetch-site": "same-origin"}
        return self.request("POST", path, urlencode(fields).encode(), {**sent, **headers})

    def sign_in_locally(self) -> str:
        """Use the one-time address of the start; return the CSRF token of the session."""
        address = urlsplit(self.facts["sign-in"])
        assert self.get(f"{address.path}?{address.query}").status == 303
        return self.csrf_token()

    def csrf_token(self) -> str:
        """Return the CSRF token of the session, as a page contains it."""
        return self.get("/api").text.split('name="csrf" value="')[1].split('"')[0]

    def change(self, method: str, path: str, csrf: str, fields: Mapping[str, Any]) -> Reply:
        """Send a change to the API."""
        headers = {"sec-fetch-site": "same-origin", "x-csrf-token": csrf, "content-type": "application/json"}
        return self.request(method, f"/api/v1{path}", json.dumps(fields).encode(), headers)
