"""Messages in the console: browsing, filters, one message with its journey, and the live tail."""

from __future__ import annotations

import http.client
import json
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import pytest

from orbitlog.console.session.console_roles import Role
from orbitlog.console.session.console_users import UserFile
from orbitlog.testing.running_broker import RunningBroker
from tests.integration.console.conftest import EVIL, ORDERS, options_of
from tests.support.console_site import ConsoleSite

ROOT = "/clusters/shop"
MESSAGES = f"{ROOT}/topics/Orders/messages"


def listed(site: ConsoleSite, query: str = "") -> dict[str, Any]:
    answer: dict[str, Any] = site.api(f"{MESSAGES}?{query}")
    return answer


def test_newest_messages_come_first_and_the_answer_states_what_was_read(site: ConsoleSite) -> None:
    answer = listed(site, "limit=5")
    assert [row["keys"] for row in answer["items"]] == [f"k{number}" for number in range(ORDERS - 1, ORDERS - 6, -1)]
    assert answer["inRange"] == ORDERS and not answer["complete"]
    everything = listed(site, f"limit={ORDERS}")
    assert everything["complete"] and len(everything["items"]) == everything["lookedAt"] == ORDERS


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("tags=new", ORDERS),
        ("tags=old", 0),
        ("tags=old || new", ORDERS),
        ("key=k7", 1),
        ("key=k7&tags=old", 0),
        ("key=nothing", 0),
        ("property=note", ORDERS),
        (f'property=note="{EVIL}', ORDERS),
        ("property=note=other", 0),
        (f"text={EVIL} 12", 1),
        ("text=absent", 0),
        ("since=-1h", ORDERS),
        ("until=-1h", 0),
        ("since=2000-01-01T00:00:00&until=2000-01-02", 0),
    ],
)
def test_filters_by_tag_key_property_text_and_time(site: ConsoleSite, query: str, count: int) -> None:
    assert len(listed(site, quote(query, safe="=&") + "&limit=200")["items"]) == count


def test_one_queue_is_read_from_an_offset(site: ConsoleSite) -> None:
    rows = listed(site, "queue=1&offset=3&limit=2")["items"]
    assert [(row["queueId"], row["queueOffset"]) for row in rows] == [(1, 3), (1, 4)]


@pytest.mark.parametrize("query", ["since=yesterday", "queue=99", "offset=3", "limit=9999", "text=" + "x" * 300])
def test_invalid_searches_are_answered_with_a_sentence(site: ConsoleSite, query: str) -> None:
    assert site.get(f"/api/v1{MESSAGES}?{query}").status in (400, 404)


def test_journey_names_each_stage_of_a_message(site: ConsoleSite) -> None:
    row = listed(site, "queue=0&offset=0&limit=1")["items"][0]
    for name in ("msgId", "offsetMsgId"):
        answer = site.api(f"{ROOT}/messages/{row[name]}?topic=Orders")
        stages = {stage["stage"]: stage for stage in answer["stages"]}
        assert [stages[name]["state"] for name in ("sent", "stored", "queue", "index")] == ["done"] * 4
        assert (stages["group"]["group"], stages["group"]["state"]) == ("billing", "done")
        assert stages["trace"]["state"] == "none"
        assert answer["detail"]["body"]["text"].startswith(EVIL)
    last = listed(site, "limit=1")["items"][0]
    stages = site.api(f"{ROOT}/messages/{last['msgId']}?topic=Orders")["stages"]
    assert next(stage["state"] for stage in stages if stage["stage"] == "group") == "waiting"


def test_message_page_escapes_its_body_and_properties(site: ConsoleSite) -> None:
    row = listed(site, "limit=1")["items"][0]
    page = site.get(f"{ROOT}/messages/{row['offsetMsgId']}?topic=Orders")
    assert page.status == 200
    assert EVIL not in page.text and "&lt;script&gt;" in page.text


def test_an_id_that_names_another_address_is_not_dialled(site: ConsoleSite) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as trap:
        trap.settimeout(0.2)
        port = trap.getsockname()[1]
        message_id = f"7F000001{port:08X}{0:016X}"
        assert site.get(f"/api/v1{ROOT}/messages/{message_id}").status == 404
        with pytest.raises(TimeoutError):
            trap.accept()


@pytest.mark.parametrize("message_id", ["x", "0" * 32, "Z" * 32, "%00", "..%2f..%2fetc"])
def test_unknown_ids_are_not_found(site: ConsoleSite, message_id: str) -> None:
    assert site.get(f"/api/v1{ROOT}/messages/{message_id}").status == 404


def test_tail_streams_new_messages_that_match(site: ConsoleSite, busy_broker: RunningBroker) -> None:
    busy_broker.client.admin.create_topic("Streamed", 2)
    parts = urlsplit(site.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=20)
    connection.request("GET", f"/api/v1{ROOT}/topics/Streamed/tail?text=wanted")
    response = connection.getresponse()
    assert response.headers["content-type"].startswith("text/event-stream")

    def event() -> dict[str, Any]:
        for _ in range(20):  # heartbeats keep a stream alive that has nothing to say
            line = response.readline()
            assert line, "the stream ended"
            if line.startswith(b"data: "):
                decoded: dict[str, Any] = json.loads(line.removeprefix(b"data: "))
                return decoded
        raise AssertionError("no event, only heartbeats")

    assert event()["messages"] == []  # the tail has begun: both messages below are part of it
    busy_broker.client.send("Streamed", "other")
    busy_broker.client.send("Streamed", "the wanted one")
    while not (found := event())["messages"]:
        pass
    connection.close()
    assert [row["preview"] for row in found["messages"]] == ["the wanted one"]
    assert found["dropped"] == 0 and found["seen"] == 2


def test_pages_of_messages_contain_each_one_and_end(site: ConsoleSite) -> None:
    for start in ("", "since=-1h&", "tags=new&"):
        seen: dict[str, None] = {}
        query = f"{start}limit=7"
        for _ in range(ORDERS + 2):
            answer = listed(site, query)
            seen |= {row["keys"]: None for row in answer["items"]}
            if not answer["more"]:
                break
            kept = start if "since" not in answer["more"] else ""
            query = f"{kept}limit=7&" + urlencode(answer["more"])
        assert len(seen) == ORDERS and not answer["more"], start
        wanted = [f"k{number}" for number in range(ORDERS)]
        assert list(seen) == (wanted if "since" in start else wanted[::-1]), start


@pytest.fixture(scope="module")
def instants(busy_broker: RunningBroker) -> str:
    """The pages of a topic with three batches, each of one store time: more messages than a page shows."""
    busy_broker.client.admin.create_topic("Instants", 2)
    for _ in range(3):
        busy_broker.client.send_batch("Instants", [f"of one instant {number}" for number in range(25)])
    return f"{ROOT}/topics/Instants/messages"


@pytest.mark.parametrize("start", ["", "since=-1h&", "text=of one&"])
def test_pages_contain_every_message_of_one_millisecond(site: ConsoleSite, instants: str, start: str) -> None:
    while site.get(f"/api/v1{instants}").status == 404:
        time.sleep(0.1)  # a console rereads its tables for an unknown name only every few seconds
    seen: set[tuple[int, int]] = set()
    query = f"{start}limit=4"
    for _ in range(75):
        answer = site.api(f"{instants}?{quote(query, safe='=&')}")
        seen |= {(row["queueId"], row["queueOffset"]) for row in answer["items"]}
        if not answer["more"]:
            break
        kept = start if "since" not in answer["more"] else ""
        query = f"{kept}limit=4&" + urlencode(answer["more"])
    assert len(seen) == 75 and not answer["more"]


def test_skip_needs_the_time_of_a_page(site: ConsoleSite) -> None:
    assert site.get(f"/api/v1{MESSAGES}?skip=4").status == 400


def test_empty_fields_of_the_form_count_as_left_out(site: ConsoleSite) -> None:
    form = f"{MESSAGES}?tags=new&key=&property=&text=&since=&until=&queue=&offset="
    assert site.get(form).status == 200
    assert len(listed(site, "tags=new&queue=&offset=&limit=200")["items"]) == ORDERS


def test_viewers_see_and_search_no_bodies_if_these_are_hidden(busy_broker: RunningBroker, tmp_path: Path) -> None:
    users = UserFile(tmp_path)
    for role in (Role.VIEWER, Role.OPERATOR):
        users.put(role.word, role, "correct horse battery")
    with ConsoleSite(options_of(busy_broker, tmp_path, hides_bodies=True)) as site:
        for role, sees in ((Role.VIEWER, False), (Role.OPERATOR, True)):
            assert site.post("/sign-in", {"name": role.word, "password": "correct horse battery"}).status == 303
            message = listed(site, "limit=1")["items"][0]
            detail = site.api(f"{ROOT}/messages/{message['offsetMsgId']}?topic=Orders")["detail"]
            page = site.get(f"{ROOT}/messages/{message['offsetMsgId']}?topic=Orders").text
            assert ("alert(1)" in message["preview"]) is sees and ("alert(1)" in page) is sees
            assert bool(detail["properties"]) is sees and bool(detail["body"]["hex"]) is sees
            for query in ("text=a", "property=note"):
                assert site.get(f"/api/v1{MESSAGES}?{query}").status == (200 if sees else 403), query
                if not sees:  # otherwise the stream has no end
                    assert site.get(f"/api/v1{ROOT}/topics/Orders/tail?{query}").status == 403, query
            assert site.get(f"/api/v1{ROOT}/dead-letters/billing?text=a").status == (200 if sees else 403)
            site.cookie = ""
