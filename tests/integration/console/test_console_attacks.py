"""Attacks on the console: each is refused, and none changes or reveals anything."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest

from orbitlog.console.console_options import ClusterChoice
from orbitlog.console.session.console_roles import Role
from orbitlog.console.session.console_users import UserFile
from orbitlog.testing.running_broker import RunningBroker
from tests.integration.console.conftest import EVIL, options_of
from tests.support.console_site import ConsoleSite

ROOT = "/clusters/shop"
PASSWORD = "correct horse"


@pytest.fixture
def locked_site(busy_broker: RunningBroker, tmp_path: Path) -> Iterator[ConsoleSite]:
    """A console with two users."""
    users = UserFile(tmp_path)
    users.put("anna", Role.ADMIN, PASSWORD)
    users.put("viktor", Role.VIEWER, PASSWORD)
    with ConsoleSite(options_of(busy_broker, tmp_path)) as site:
        yield site


def test_policy_allows_no_inline_code_and_no_frames(site: ConsoleSite) -> None:
    for path in (f"{ROOT}/overview", "/api/v1/clusters", "/nowhere", "/sign-in"):
        headers = site.get(path).headers
        policy = headers["content-security-policy"]
        assert "script-src 'self'" in policy and "frame-ancestors 'none'" in policy and "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize("path", [f"{ROOT}/topics/{quote(EVIL)}", f"{ROOT}/topics?q={quote(EVIL)}", f"/{quote(EVIL)}"])
def test_markup_in_names_and_filters_is_escaped(site: ConsoleSite, path: str) -> None:
    assert EVIL not in site.get(path).text


def test_pages_have_no_inline_script_or_style(site: ConsoleSite) -> None:
    text = site.get(f"{ROOT}/groups/billing").text
    assert "<script>" not in text and "style=" not in text and " onclick" not in text


def test_unknown_host_names_are_refused(site: ConsoleSite) -> None:
    for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "a b", "localhost@evil.example"):
        assert site.get("/", host=host).status in (400, 421), host
    assert site.get(f"{ROOT}/overview", host="localhost:1234").status == 200


def test_requests_of_other_sites_cannot_change_anything(locked_site: ConsoleSite) -> None:
    form = {"name": "anna", "password": PASSWORD}
    for headers in (
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "none"},
    ):
        assert locked_site.post("/sign-in", form, **headers).status == 403
    encoded = b"name=anna&password=correct+horse"
    kind = {"content-type": "application/x-www-form-urlencoded"}
    assert locked_site.request("POST", "/sign-in", encoded, kind).status == 403
    assert locked_site.request("POST", "/sign-in", encoded, {**kind, "origin": "http://evil.example"}).status == 403
    assert locked_site.request("POST", "/sign-in", encoded, {**kind, "origin": "null"}).status == 403


def test_forms_need_the_token_of_their_session(locked_site: ConsoleSite) -> None:
    assert locked_site.post("/sign-in", {"name": "anna", "password": PASSWORD}).status == 303
    assert locked_site.post("/sign-out", {"csrf": ""}).status == 403
    assert locked_site.post("/sign-out", {"csrf": "x" * 43}).status == 403
    assert locked_site.get(f"{ROOT}/overview").status == 200


def test_users_must_sign_in_and_may_sign_out(locked_site: ConsoleSite) -> None:
    assert locked_site.get(f"{ROOT}/overview").headers["location"] == "/sign-in"
    assert locked_site.get("/api/v1/clusters").status == 401
    assert locked_site.post("/sign-in", {"name": "viktor", "password": PASSWORD}).status == 303
    page = locked_site.get(f"{ROOT}/overview")
    assert page.status == 200
    token = page.text.split('name="csrf" value="')[1].split('"')[0]
    kept = locked_site.cookie
    assert locked_site.post("/sign-out", {"csrf": token}).status == 303
    locked_site.cookie = kept
    assert locked_site.get("/api/v1/clusters").status == 401


def test_a_session_that_was_set_before_the_sign_in_is_not_continued(locked_site: ConsoleSite) -> None:
    locked_site.cookie = "orbitlog=chosen-by-an-attacker"
    reply = locked_site.post("/sign-in", {"name": "anna", "password": PASSWORD})
    assert "chosen-by-an-attacker" not in reply.headers["set-cookie"]
    for word in ("HttpOnly", "SameSite=strict", "Path=/"):
        assert word.lower() in reply.headers["set-cookie"].lower()
    first = locked_site.cookie
    locked_site.post("/sign-in", {"name": "viktor", "password": PASSWORD})
    assert locked_site.cookie != first
    locked_site.cookie = first
    assert locked_site.get("/api/v1/clusters").status == 401


def test_guessing_passwords_is_slowed_down(locked_site: ConsoleSite) -> None:
    statuses = [locked_site.post("/sign-in", {"name": "anna", "password": f"guess {n}"}).status for n in range(7)]
    assert statuses[:5] == [403] * 5
    assert 429 in statuses[5:]
    assert locked_site.post("/sign-in", {"name": "nobody-here", "password": "x"}).status == 429


def test_one_time_address_works_once(busy_broker: RunningBroker, tmp_path: Path) -> None:
    with ConsoleSite(options_of(busy_broker, tmp_path, may_write=True)) as site:
        address = urlsplit(site.facts["sign-in"])
        wrong = site.get("/sign-in?token=wrong")
        assert wrong.status == 403
        reply = site.get(f"{address.path}?{address.query}")
        assert reply.status == 303
        assert "local admin" in site.get(f"{ROOT}/overview").text
        site.cookie = ""
        assert site.get(f"{address.path}?{address.query}").status == 403


def test_console_with_credentials_shows_nothing_without_its_one_time_address(tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "store", secured=True) as broker:
        broker.client.send("Orders", "confidential", keys=["k"])
        choice = ClusterChoice("shop", broker.address, broker.credentials, broker.tls)
        with ConsoleSite(options_of(broker, tmp_path / "data", clusters=(choice,))) as site:
            for path in (f"{ROOT}/overview", f"{ROOT}/topics", f"{ROOT}/topics/Orders", f"{ROOT}/settings"):
                assert site.get(path).headers["location"] == "/sign-in", path
            for path in (
                "clusters",
                "clusters/shop/topics",
                "clusters/shop/topics/Orders",
                "clusters/shop/topics/Orders/tail",
            ):
                reply = site.get(f"/api/v1/{path}")
                assert reply.status == 401 and "Orders" not in reply.text, path
            assert "sign-in address that it printed" in site.get("/sign-in").text
            address = urlsplit(site.facts["sign-in"])
            assert site.get(f"{address.path}?{address.query}").status == 303
            assert "Orders" in site.get(f"{ROOT}/topics").text
            assert site.get(f"{ROOT}/topics").headers.get("location") is None


def test_large_requests_are_refused(locked_site: ConsoleSite) -> None:
    kind = {"content-type": "application/x-www-form-urlencoded", "sec-fetch-site": "same-origin"}
    assert locked_site.request("POST", "/sign-in", b"x" * (2 << 20), kind).status == 413
    multipart = {**kind, "content-type": "multipart/form-data; boundary=x"}
    assert locked_site.request("POST", "/sign-in", b"--x--", multipart).status == 415
    many = b"&".join(b"a%d=1" % number for number in range(5000))
    assert locked_site.request("POST", "/sign-in", many, kind).status in (400, 413)


def test_a_chunked_body_without_length_is_cut_off(locked_site: ConsoleSite) -> None:
    parts = urlsplit(locked_site.url)
    head = (
        "POST /sign-in HTTP/1.1\r\nhost: 127.0.0.1\r\nsec-fetch-site: same-origin\r\n"
        "content-type: application/x-www-form-urlencoded\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    with socket.create_connection((parts.hostname, parts.port), timeout=20) as peer:
        peer.sendall(head.encode())
        try:
            for _ in range(64):
                peer.sendall(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
            peer.sendall(b"0\r\n\r\n")
            answer = peer.recv(100)
        except OSError:
            return  # the console closed the connection
    assert b" 413 " in answer or answer == b""


@pytest.mark.parametrize(
    "path",
    ["/static/x/../console_app.py", "/static/x/%2e%2e/%2e%2e/etc/passwd", "/static/x//etc/passwd", "/static/x/vendor"],
)
def test_static_files_do_not_reach_the_file_system(site: ConsoleSite, path: str) -> None:
    assert site.get(path).status == 404


def test_only_configured_clusters_and_registered_brokers_are_dialled(site: ConsoleSite) -> None:
    with socket.create_server(("127.0.0.1", 0)) as trap:
        trap.settimeout(0.2)
        address = f"127.0.0.1:{trap.getsockname()[1]}"
        for path in (f"/clusters/{address}/overview", f"{ROOT}/brokers/{address}"):
            assert site.get(f"/api/v1{path}").status == 404
        with pytest.raises(TimeoutError):
            trap.accept()


def test_too_many_requests_are_refused(busy_broker: RunningBroker, tmp_path: Path) -> None:
    options = options_of(busy_broker, tmp_path, requests_per_second=0.001, request_burst=3)
    with ConsoleSite(options) as site:
        statuses = [site.get("/api/v1/clusters").status for _ in range(5)]
    assert statuses == [200, 200, 200, 429, 429]


def test_only_get_is_served_on_read_routes(site: ConsoleSite) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        reply = site.request(method, f"/api/v1{ROOT}/topics/Orders", headers={"sec-fetch-site": "same-origin"})
        assert reply.status == 405, method
