"""Endpoints of the store explorer; reading happens in a thread, as files may be large and disks slow."""

from __future__ import annotations

import asyncio
from pathlib import Path

from orbitlog.console.console_call import Call
from orbitlog.console.explorer import derived_view, doctor_view, log_view, repair_view, store_view
from orbitlog.console.session.console_roles import Role
from orbitlog.console.views.answers import ConsoleError
from orbitlog.console.web.endpoint import Endpoint


def _stores(call: Call) -> dict[str, Path]:
    return dict(call.console.options.stores)


def _number(text: str) -> int:
    if not text.isdecimal() or len(text) > 18:
        raise ConsoleError(400, f"{text[:40]!r} is not a number")
    return int(text)


async def list_stores(call: Call) -> store_view.StoreListing:
    return await asyncio.to_thread(store_view.list_stores, _stores(call))


async def show_store(call: Call) -> store_view.StoreAnswer:
    return await asyncio.to_thread(store_view.show_store, _stores(call), call.path["store"])


async def list_records(call: Call) -> log_view.LogListing:
    return await asyncio.to_thread(log_view.list_records, _stores(call), call.path["store"], call.query)


async def show_record(call: Call) -> log_view.RecordAnswer:
    offset = _number(call.path["offset"])
    return await asyncio.to_thread(log_view.show_record, _stores(call), call.path["store"], offset)


async def show_queue(call: Call) -> derived_view.QueueAnswer:
    place = call.path["topic"], _number(call.path["queue"])
    return await asyncio.to_thread(derived_view.show_queue, _stores(call), call.path["store"], place, call.query)


async def show_index(call: Call) -> derived_view.IndexAnswer:
    number = _number(call.path["number"])
    return await asyncio.to_thread(derived_view.show_index, _stores(call), call.path["store"], number, call.query)


async def examine_store(call: Call) -> doctor_view.DoctorAnswer:
    return await doctor_view.examine_store(_stores(call), call.path["store"])


async def plan_repair(call: Call) -> repair_view.RepairPlanAnswer:
    return await repair_view.plan_store_repair(_stores(call), call.path["store"])


def _endpoint(path: str, *rest: object, **more: object) -> Endpoint:
    words = {"section": "stores", "role": Role.ADMIN, "is_store": True, "is_live": False, **more}
    return Endpoint(path, *rest, **words)  # type: ignore[arg-type]


_STORE = "/stores/{store}"
STORE_ENDPOINTS = (
    _endpoint(
        "/stores",
        "listStores",
        "List the store directories of this console.",
        store_view.StoreListing,
        list_stores,
        template="stores.html",
        title="Stores",
    ),
    _endpoint(
        _STORE,
        "showStore",
        "Show what a store is, and its files with their meaning.",
        store_view.StoreAnswer,
        show_store,
        template="store.html",
        title="Store {store}",
    ),
    _endpoint(
        f"{_STORE}/log",
        "listRecords",
        "List records of the log from a physical offset on, with damaged ranges.",
        log_view.LogListing,
        list_records,
        query=log_view.LogQuery,
        template="store_log.html",
        title="Log of {store}",
    ),
    _endpoint(
        f"{_STORE}/log/{{offset}}",
        "showRecord",
        "Show one record as fields and bytes.",
        log_view.RecordAnswer,
        show_record,
        template="store_record.html",
        title="Record {offset}",
    ),
    _endpoint(
        f"{_STORE}/queues/{{queue}}/{{topic}}",
        "showStoredQueue",
        "Show units of a ConsumeQueue.",
        derived_view.QueueAnswer,
        show_queue,
        query=derived_view.UnitQuery,
        template="store_queue.html",
        title="Queue {queue} of {topic}",
    ),
    _endpoint(
        f"{_STORE}/index/{{number}}",
        "showIndexFile",
        "Show header and entries of an index file.",
        derived_view.IndexAnswer,
        show_index,
        query=derived_view.UnitQuery,
        template="store_index.html",
        title="Index file {number}",
    ),
    _endpoint(
        f"{_STORE}/doctor",
        "examineStore",
        "Check the store, and show findings with the commands that repair them.",
        doctor_view.DoctorAnswer,
        examine_store,
        template="store_doctor.html",
        title="Doctor's report of {store}",
    ),
    _endpoint(
        f"{_STORE}/repair-plan",
        "planRepair",
        "Show the steps that would repair the store.",
        repair_view.RepairPlanAnswer,
        plan_repair,
        template="store_repair.html",
        title="Repair plan of {store}",
    ),
)
