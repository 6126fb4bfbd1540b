"""Access control: what it adds to a request, in CPU time, by path and by the size of the body.

The budget is 3 microseconds a request, plus the HMAC of its body. CPU time of this process is measured, so that other
processes do not count. On the fast path, signed sends are compared with unsigned ones to a broker without access
control.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import uvloop

from benchmarks.measure import Reading, Report
from orbitlog.access.access_model import Account, Action, PolicyEntry, Resource
from orbitlog.access.credentials import Credentials
from orbitlog.access.request_guard import AccessPolicy, RequestGuard
from orbitlog.wire.codes import RequestCode
from orbitlog.wire.command import Command
from orbitlog.wire.consume_headers import PullMessageRequest
from orbitlog.wire.send_headers import SendMessageV2Request
from tests.support.hot_path import HotPath, hot_path_at, sends, signed_sends

BUDGET_MICROSECONDS = 3.0
BODY_BYTES = (1, 128, 1024, 4096)
ADDRESS = "127.0.0.1"
_GROUP = "access: CPU time of the guard a request"
_CREDENTIALS = Credentials("bench-user", "bench-secret")
_SETTINGS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": _CREDENTIALS.access_key, "password": _CREDENTIALS.secret_key}),
}
_ROUNDS = 20
_READS, _READ_SENDS = 20, (1, 64)
_PROPERTIES = "UNIQ_KEY\x010A000001000018B4AAC27DCE00000001\x02WAIT\x01true\x02TAGS\x01TagA\x02"


def run(report: Report, *, count: int) -> None:
    entries = tuple(
        PolicyEntry(Resource.parse(name), Action.ALL, True) for name in ("Topic:TopicBenchmark", "Group:BenchConsumers")
    )
    account = Account(_CREDENTIALS.access_key, _CREDENTIALS.secret_key, custom=entries)
    guard = RequestGuard(AccessPolicy({account.name: account}))
    for size in BODY_BYTES:
        _measure_send(report, guard, _send(size), count)
    pull = _pull()
    spent = _microseconds(lambda: guard.admit(pull.code, pull.ext_fields, b"", ADDRESS), count)
    report.read(Reading(_GROUP, "pull, without decoding", spent, "us", BUDGET_MICROSECONDS))


def _measure_send(report: Report, guard: RequestGuard, send: Command, count: int) -> None:
    size, key = len(send.body), guard.policy.accounts[_CREDENTIALS.access_key].key
    hashed = _microseconds(lambda: key.sign(b"", send.body), count) - _microseconds(lambda: key.sign(b""), count)
    limit = BUDGET_MICROSECONDS + max(0.0, hashed)
    plain, signed = (uvloop.run(_fast_path(size, is_signed=is_signed)) for is_signed in (False, True))
    for together, without, spent in zip(_READ_SENDS, plain, signed, strict=True):
        name = f"send of {size} B, fast path, {together} a read"
        report.read(Reading(_GROUP, name, spent - without, "us", limit))
    slow = _microseconds(lambda: guard.admit(send.code, send.ext_fields, send.body, ADDRESS), count)
    report.read(Reading(_GROUP, f"send of {size} B, slow path, without decoding", slow, "us", limit))


async def _fast_path(body_bytes: int, *, is_signed: bool) -> list[float]:
    """Return the CPU time of a send from the read to the response, for each number of sends a read."""
    with tempfile.TemporaryDirectory(prefix="orbitlog-access-") as directory:
        async with hot_path_at(Path(directory), **(_SETTINGS if is_signed else {})) as path:
            count = _READS * max(_READ_SENDS)
            frames = signed_sends(count, _CREDENTIALS, body_bytes) if is_signed else sends(count, body_bytes)
            return [_microseconds_a_send(path, frames, together) for together in _READ_SENDS]


def _microseconds_a_send(path: HotPath, frames: list[bytes], together: int) -> float:
    reads = [b"".join(frames[at : at + together]) for at in range(0, len(frames), together)]
    times = []
    for _ in range(_ROUNDS):
        started = time.process_time_ns()
        for data in reads:
            path.feed(data)
        times.append(time.process_time_ns() - started)
        path.dispatch()
    assert b'"code":0' in path.transport.last
    return min(times) / len(frames) / 1000


def _microseconds(work: Callable[[], object], count: int) -> float:
    """Return the CPU time of one call, in the least disturbed of several rounds."""
    times = []
    for _ in range(_ROUNDS):
        started = time.process_time_ns()
        for _ in range(count):
            work()
        times.append(time.process_time_ns() - started)
    return min(times) / count / 1000


def _send(body_bytes: int) -> Command:
    header = SendMessageV2Request(
        producer_group="BenchProducers",
        topic="TopicBenchmark",
        default_topic="TBW102",
        default_topic_queue_count=4,
        queue_id=3,
        sys_flag=0,
        born_timestamp_ms=1_700_000_000_000,
        flag=0,
        properties=_PROPERTIES,
    )
    return _signed(RequestCode.SEND_MESSAGE_V2, header.to_ext_fields(), bytes(body_bytes))


def _pull() -> Command:
    header = PullMessageRequest(
        group="BenchConsumers",
        topic="TopicBenchmark",
        queue_id=3,
        queue_offset=123_456,
        message_count_max=32,
        sys_flag=2,
        commit_queue_offset=0,
        suspend_timeout_ms=15_000,
        subscription_version=1_700_000_000_000,
    )
    return _signed(RequestCode.PULL_MESSAGE, header.to_ext_fields(), b"")


def _signed(code: RequestCode, fields: dict[str, str], body: bytes) -> Command:
    command = Command(code, 1, ext_fields=fields, body=body, language="JAVA")
    _CREDENTIALS.sign(command)
    return command
