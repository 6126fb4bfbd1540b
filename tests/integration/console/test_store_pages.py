"""Store explorer: golden stores of Apache brokers, damaged and DLedger ones; no path comes from the browser."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from orbitlog.console.console_options import ConsoleOptions
from orbitlog.console.explorer.store_reading import named_stores
from orbitlog.console.session.console_roles import Role
from orbitlog.console.session.console_users import UserFile
from orbitlog.testing.golden import GoldenStore
from tests.support.console_site import ConsoleSite


def options(directory: Path, *stores: Path) -> ConsoleOptions:
    return ConsoleOptions(
        data_directory=directory,
        port=0,
        stores=named_stores(stores),
        requests_per_second=1e6,
        request_burst=1_000_000,
    )


@pytest.fixture(scope="module")
def stores(
    golden_497: GoldenStore,
    golden_497_dledger: GoldenStore,
    golden_550_crash: GoldenStore,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ConsoleSite]:
    """A console without a cluster, over three stores."""
    found = (golden_497.store, golden_497_dledger.store, golden_550_crash.store)
    with ConsoleSite(options(tmp_path_factory.mktemp("data"), *found)) as site:
        yield site


def names(site: ConsoleSite) -> list[str]:
    return [row["name"] for row in site.api("/stores")["items"]]


def test_every_store_and_all_its_files_can_be_opened(stores: ConsoleSite) -> None:
    assert stores.get("/").headers["location"] == "/stores"
    for name in names(stores):
        page = stores.get(f"/stores/{quote(name)}")
        assert page.status == 200 and page.text.count("<h1>") == 1
        answer = stores.api(f"/stores/{quote(name)}")
        assert answer["problems"] == [] and answer["facts"]
        kinds = {row["link"].split("/")[0].split("?")[0]: row for row in answer["files"] if row["link"]}
        assert {"log", "queues"} <= kinds.keys()
        for row in kinds.values():
            if row["link"]:
                path = f"/stores/{quote(name)}/{quote(row['link'], safe='/?=')}"
                assert stores.get(path).status == 200, path
                assert stores.get(f"/api/v1{path}").status == 200, path


def test_records_equal_those_of_the_golden_list(stores: ConsoleSite, golden_497: GoldenStore) -> None:
    name = names(stores)[0]
    answer = stores.api(f"/stores/{quote(name)}/log?limit=200")
    assert answer["damage"] == [] and len(answer["items"]) == 200
    following = stores.api(f"/stores/{quote(name)}/log?limit=200&start={answer['next']}")
    assert following["items"][0]["commitLogOffset"] == answer["next"]
    record = stores.api(f"/stores/{quote(name)}/log/{answer['items'][3]['commitLogOffset']}")
    fields = {field["name"]: field["value"] for field in record["fields"]}
    assert fields["physical_offset"] == str(answer["items"][3]["commitLogOffset"])
    assert int(fields["total_size"]) == record["size"]
    assert record["bytes"][0]["hex"].replace(" ", "")[:8] == f"{record['size']:08x}"
    row = answer["items"][3]
    unit = stores.api(f"/stores/{quote(name)}/queues/{row['queueId']}/{quote(row['topic'])}?start={row['queueOffset']}")
    assert unit["items"][0]["physicalOffset"] == row["commitLogOffset"]


@pytest.mark.parametrize(
    "path",
    [
        "/stores/..",
        "/stores/%2e%2e%2f%2e%2e%2fetc",
        "/stores/%2fetc",
        "/stores/NAME/queues/0/..%2f..%2fconfig",
        "/stores/NAME/queues/0/nothing",
        "/stores/NAME/index/999",
        "/stores/NAME/index/-1",
        "/stores/NAME/log/99999999999999",
        "/stores/NAME/log/x",
        "/stores/NAME/../../etc/passwd",
    ],
)
def test_nothing_outside_the_named_stores_is_reachable(stores: ConsoleSite, path: str) -> None:
    given = path.replace("NAME", quote(names(stores)[0]))
    assert stores.get(f"/api/v1{given}").status in (400, 404)


def test_damaged_bytes_are_shown_with_the_reason(
    tmp_path: Path, golden_497: GoldenStore, golden_copy: Callable[[GoldenStore], GoldenStore]
) -> None:
    golden = golden_copy(golden_497)
    segment = sorted((golden.store / "commitlog").iterdir())[0]
    with ConsoleSite(options(tmp_path, golden.store)) as site:
        name = quote(names(site)[0])
        row = site.api(f"/stores/{name}/log?limit=5")["items"][4]
        with segment.open("r+b") as file:
            file.seek(row["commitLogOffset"] + 100)
            file.write(b"\xff\xff\xff\xff")
        listed = site.api(f"/stores/{name}/log?limit=50")
        assert listed["damage"] and row["commitLogOffset"] not in [one["commitLogOffset"] for one in listed["items"]]
        record = site.api(f"/stores/{name}/log/{row['commitLogOffset']}")
        assert record["problem"] and record["detail"] is None and record["bytes"]
        report = site.api(f"/stores/{name}/doctor")
        assert report["isSound"] is False
        assert any(finding["physicalOffset"] == row["commitLogOffset"] for finding in report["findings"])
        assert site.get(f"/stores/{name}/doctor").status == 200


def test_stores_need_an_administrator_if_there_are_users(tmp_path: Path, golden_497: GoldenStore) -> None:
    users = UserFile(tmp_path)
    users.put("anna", Role.ADMIN, "long enough")
    users.put("viktor", Role.VIEWER, "long enough")
    with ConsoleSite(options(tmp_path, golden_497.store)) as site:
        site.post("/sign-in", {"name": "viktor", "password": "long enough"})
        assert site.get("/api/v1/stores").status == 403
        site.post("/sign-in", {"name": "anna", "password": "long enough"})
        assert site.get("/api/v1/stores").status == 200


def test_damaged_store_is_repaired_after_a_plan(
    tmp_path: Path, golden_497: GoldenStore, golden_copy: Callable[[GoldenStore], GoldenStore]
) -> None:
    golden = golden_copy(golden_497)
    segment = sorted((golden.store / "commitlog").iterdir())[0]
    with segment.open("r+b") as file:
        file.seek(400)
        file.write(b"\xff" * 8)
    damaged = segment.read_bytes()
    writing = dataclasses.replace(options(tmp_path, golden.store), may_write=True)
    with ConsoleSite(writing) as site:
        name = quote(names(site)[0])
        csrf = site.sign_in_locally()
        planned = site.change("POST", f"/stores/{name}/repairs?plan=true", csrf, {}).json
        assert planned["lines"] and planned["target"] == names(site)[0]
        assert segment.read_bytes() == damaged
        query = f"planId={planned['planId']}&confirm={quote(planned['confirm'])}"
        job = site.change("POST", f"/stores/{name}/repairs?{query}", csrf, {}).json["job"]
        deadline = time.monotonic() + 120
        while not site.api(f"/jobs/{job}")["isFinished"] and time.monotonic() < deadline:
            time.sleep(0.05)
        assert site.api(f"/jobs/{job}")["job"]["note"] == "sound"
        assert segment.read_bytes() != damaged
