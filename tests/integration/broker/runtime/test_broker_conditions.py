"""Conditions of a running broker: each appears in the log when it begins and when it ends, and at its pages."""

from __future__ import annotations

import asyncio
import json
import logging
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from orbitlog.access.access_settings import QuotaLimits
from orbitlog.nameserver.name_server import NameServer
from orbitlog.nameserver.nameserver_settings import NameServerSettings
from orbitlog.observe import conditions as kinds
from orbitlog.remoting.error_ids import REQUEST_ID
from orbitlog.remoting.tls.certificate_expiry import expiry_s, expiry_warning
from orbitlog.settings.limits import TOPICS
from orbitlog.wire.bodies.body_json import read_body
from orbitlog.wire.codes import RequestCode, ResponseCode
from tests.support.broker_desk import Desk, at_desk, desk_at, until
from tests.support.certificates import expired_server_files, server_files
from tests.support.replica_pair import Pair, run_pair
from tests.support.secured_broker import WRITER, add_writer, quota_clock, secured, send

PROM = {"metricsExporterType": "PROM", "metricsPromExporterPort": "0"}


@pytest.fixture(autouse=True)
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO)
    return caplog


def states(lines: pytest.LogCaptureFixture, name: str) -> list[str]:
    """Return whether the lines about a condition are of its begin or of its end."""
    return [record.fields["state"] for record in lines.records if getattr(record, "event", "") == name]


def check_now(desk: Desk) -> None:
    """Look at the state now instead of within a second."""
    desk.broker._check_conditions()


def page(desk: Desk, path: str) -> str:
    assert desk.broker.meters is not None and desk.broker.meters.address is not None
    host, port = desk.broker.meters.address
    with urllib.request.urlopen(f"http://{host}:{port}{path}", timeout=20) as response:
        text: str = response.read().decode()
    return text


@pytest.mark.parametrize("name", ["disk_full", "fenced", "read_only"])
def test_store_that_takes_no_messages_is_logged_and_shown(
    tmp_path: Path, lines: pytest.LogCaptureFixture, name: str
) -> None:
    async def work(desk: Desk) -> None:
        availability = desk.broker.state.store.availability
        changes: dict[str, Callable[[str], object]] = {
            "disk_full": availability.note_full_disk,
            "fenced": availability.fence,
            "read_only": lambda reason: availability.fail(OSError(reason)) if reason else None,
        }
        changes[name]("for a test")
        await until(lambda: states(lines, name) == ["begin"])
        health = json.loads(await asyncio.to_thread(page, desk, "/healthz"))
        assert [row["condition"] for row in health["conditions"]] == [name] and health["status"] == "not ready"
        assert f'orbitlog_condition{{condition="{name}",subject=""' in await asyncio.to_thread(page, desk, "/metrics")
        changes[name]("")
        if name == "read_only":
            return  # until a restart
        await until(lambda: states(lines, name) == ["begin", "end"])
        assert not json.loads(await asyncio.to_thread(page, desk, "/healthz"))["conditions"]

    at_desk(tmp_path, work, **PROM)


def test_reached_limit_is_logged_once(tmp_path: Path, lines: pytest.LogCaptureFixture) -> None:
    async def work(desk: Desk) -> None:
        check_now(desk)
        for number in range(3):
            refused = await desk.send(topic=f"More{number}")
            assert refused.code != ResponseCode.SUCCESS
            check_now(desk)
        assert states(lines, "limit_reached") == ["begin"]
        assert desk.broker.state.conditions.is_active(kinds.LIMIT_REACHED, TOPICS.key)

    at_desk(tmp_path, work, **{TOPICS.key: "1"})


def test_quota_of_an_account_is_logged_without_its_name_on_pages(
    tmp_path: Path, lines: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(desk: Desk) -> None:
        quota_clock(desk, monkeypatch)
        await add_writer(desk, QuotaLimits(messages_per_second=1))
        check_now(desk)
        answers = [await send(desk, WRITER) for _ in range(5)]
        assert answers[-1].code != ResponseCode.SUCCESS
        check_now(desk)
        assert states(lines, "quota_reached") == ["begin"]
        assert "writer" not in await asyncio.to_thread(page, desk, "/healthz")

    secured(tmp_path, work, **PROM)


def test_lost_name_server_is_logged_when_it_goes_and_when_it_is_back(
    tmp_path: Path, lines: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        server = NameServer(NameServerSettings(listen_port=0))
        await server.start()
        port = server.address[1]
        async with desk_at(tmp_path, namesrvAddr=f"127.0.0.1:{port}", **PROM) as desk:
            await until(lambda: desk.broker.registration.is_known)
            await server.stop()
            await until(lambda: states(lines, "name_server_lost") == ["begin"])
            refused = await asyncio.to_thread(_status, desk, "/readyz")
            assert refused == 503
            server = NameServer(NameServerSettings(listen_port=port))
            await server.start()
            await until(lambda: states(lines, "name_server_lost") == ["begin", "end"])
            assert await asyncio.to_thread(_status, desk, "/readyz") == 200
        await server.stop()

    asyncio.run(work())


def _status(desk: Desk, path: str) -> int:
    try:
        page(desk, path)
    except HTTPError as error:
        with error:
            return error.code
    return 200


def test_name_server_logs_a_broker_that_is_lost_and_back(tmp_path: Path, lines: pytest.LogCaptureFixture) -> None:
    async def work(pair: Pair) -> None:
        await until(lambda: pair.master.broker.registration.is_known)
        connection = pair.master.broker.client.open_connection(pair.name_server)
        assert connection is not None
        connection.abort()
        await until(lambda: states(lines, "broker_lost") == ["begin", "end"])

    run_pair(tmp_path, work)


def test_lost_replica_and_lost_master_are_logged_on_both_sides(tmp_path: Path, lines: pytest.LogCaptureFixture) -> None:
    async def work(pair: Pair) -> None:
        await pair.master.send()
        check_now(pair.master)
        assert states(lines, "too_few_replicas") == ["begin"]
        async with pair.slave():
            await until(lambda: bool(check_now(pair.master)) or states(lines, "too_few_replicas") == ["begin", "end"])
        await until(lambda: not pair.master.broker._master.slaves)
        check_now(pair.master)
        assert states(lines, "replica_lost")[-1] == "begin"
        async with pair.slave():
            await until(lambda: bool(check_now(pair.master)) or states(lines, "replica_lost")[-1] == "end")

    run_pair(tmp_path, work, brokerRole="SYNC_MASTER")


def test_certificate_that_expires_is_a_condition(tmp_path: Path) -> None:
    good, old = server_files().certificate, expired_server_files().certificate
    expires_s = expiry_s(Path(good).read_text())
    assert expiry_warning(good, expires_s - 15 * 86_400) == ""
    assert expiry_warning(good, expires_s - 86_400).endswith("in 1.0 days")
    assert expiry_warning(good, expires_s).startswith("it has expired on ")
    assert expiry_warning(str(tmp_path / "missing"), 0) == expiry_warning("", 0) == ""
    assert expiry_warning(old, int(time.time())).startswith("it has expired on ")
    for position in range(0, 400, 7):
        damaged = Path(good).read_text()[:position]
        (tmp_path / "damaged").write_text(damaged)
        assert expiry_warning(str(tmp_path / "damaged"), 0) == ""


# Request ids and slow requests


def test_error_answers_have_the_id_that_the_log_has(tmp_path: Path, lines: pytest.LogCaptureFixture) -> None:
    async def work(desk: Desk) -> None:
        refused = await desk.send(topic="bad topic!")
        assert refused.code != ResponseCode.SUCCESS
        number = refused.ext_fields[REQUEST_ID]
        [record] = [record for record in lines.records if getattr(record, "event", "") == "request_refused"]
        assert record.message.startswith(f"request {number} refused: SEND_MESSAGE_V2 of 127.0.0.1:")
        usual = await desk.ask(RequestCode.GET_TOPIC_STATS_INFO, topic="None")
        assert len(usual.ext_fields[REQUEST_ID]) == 8 and usual.ext_fields[REQUEST_ID] != number

    at_desk(tmp_path, work)


def slow_lines(lines: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [record.fields for record in lines.records if getattr(record, "event", "") == "slow_request"]


def slow_down(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each append take 0.2 s."""
    log = desk.broker.state.store._log
    write = log.write

    def slow(records: bytes) -> None:
        time.sleep(0.2)
        write(records)

    monkeypatch.setattr(log, "write", slow)


def test_slow_append_is_logged_with_its_phases(
    tmp_path: Path, lines: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(desk: Desk) -> None:
        await desk.send()
        slow_down(desk, monkeypatch)
        await desk.send()
        found = slow_lines(lines)[-1]
        assert found["phases_ms"]["append"] >= 190 and found["client"].startswith("127.0.0.1:")
        assert found["phases_ms"].keys() == {"read and rules", "append"}
        numbers = read_body((await desk.ask(RequestCode.GET_BROKER_RUNTIME_INFO)).body)["table"]
        assert any(key.startswith("slowRequest_") and " append " in text for key, text in numbers.items())

    at_desk(tmp_path, work, slowRequestMs="100")


def test_slow_flush_is_logged_as_a_wait_for_the_flush(
    tmp_path: Path, lines: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(desk: Desk) -> None:
        await desk.send()
        flushes = desk.broker._flushes
        assert flushes is not None and flushes._commits is not None
        flush = flushes._commits._flush

        def slow() -> int:
            time.sleep(0.2)
            return flush()

        monkeypatch.setattr(flushes._commits, "_flush", slow)
        answer = await desk.send()
        assert answer.code == ResponseCode.SUCCESS
        found = slow_lines(lines)[-1]
        assert found["request_code"] == RequestCode.SEND_MESSAGE_V2
        assert found["phases_ms"]["flush wait"] >= 190 > found["phases_ms"]["replication wait"]

    at_desk(tmp_path, work, slowRequestMs="100", flushDiskType="SYNC_FLUSH")


def test_slow_replication_is_logged_as_a_wait_for_slaves(tmp_path: Path, lines: pytest.LogCaptureFixture) -> None:
    async def work(pair: Pair) -> None:
        await pair.master.send()
        async with pair.slave() as slave:
            await pair.copied(slave)
            flushes = pair.master.broker._flushes
            assert flushes is not None
            held = asyncio.get_running_loop().create_future()
            flushes.hold(held)  # as if the acknowledgement of the slave took this long
            sending = asyncio.ensure_future(pair.master.send())
            await asyncio.sleep(0.2)
            held.set_result(None)
            assert (await sending).code == ResponseCode.SUCCESS
        found = slow_lines(lines)[-1]
        assert found["phases_ms"].keys() == {"append", "flush wait", "replication wait"}
        assert found["duration_ms"] >= 150

    run_pair(tmp_path, work, brokerRole="SYNC_MASTER", slowRequestMs="100")


def test_no_request_is_logged_as_slow_with_0(
    tmp_path: Path, lines: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(desk: Desk) -> None:
        await desk.send()
        slow_down(desk, monkeypatch)
        await desk.send()
        assert not slow_lines(lines)

    at_desk(tmp_path, work, slowRequestMs="0")
