"""Access control: what the guard adds to a signed request, in CPU time, by path and by the size of the body.

The budget is 3 microseconds a request, plus the HMAC of its body. CPU time of this process is measured, so that other
processes do not count.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from benchmarks.measure import Reading, Report
from orbitlog.access.access_model import Account, Action, PolicyEntry, Resource
from orbitlog.access.credentials import Credentials
from orbitlog.access.request_guard import AccessPolicy, RequestGuard
from orbitlog.broker.sending.signed_patterns import SignedPatterns
from orbitlog.wire.codes import RequestCode
from orbitlog.wire.command import Command, Serialization, encode_command
from orbitlog.wire.consume_headers import PullMessageRequest
from orbitlog.wire.frames import Frame
from orbitlog.wire.send_headers import SendMessageV2Request

BUDGET_MICROSECONDS = 3.0
BODY_BYTES = (0, 128, 1024, 4096)
ADDRESS = "127.0.0.1"
_GROUP = "access: CPU time of the guard a request"
_CREDENTIALS = Credentials("bench-user", "bench-secret")
_ROUNDS = 20
_HEADER_START = 8
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
    policy, frame, size = guard.policy, _frame(send), len(send.body)
    key = policy.accounts[_CREDENTIALS.access_key].key
    hashed = _microseconds(lambda: key.sign(b"", send.body), count) - _microseconds(lambda: key.sign(b""), count)
    patterns = SignedPatterns(policy)
    while patterns.verified(frame, policy) is None:
        patterns.learn(guard, send.code, send.ext_fields, frame[1], ADDRESS)
    fast = _microseconds(lambda: patterns.verified(frame, policy), count)
    slow = _microseconds(lambda: guard.admit(send.code, send.ext_fields, send.body, ADDRESS), count)
    limit = BUDGET_MICROSECONDS + max(0.0, hashed)
    report.read(Reading(_GROUP, f"send of {size} B, fast path", fast, "us", limit))
    report.read(Reading(_GROUP, f"send of {size} B, slow path, without decoding", slow, "us", limit))


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


def _frame(command: Command) -> Frame:
    raw = encode_command(command)
    return int(Serialization.JSON), raw[_HEADER_START : len(raw) - len(command.body)], command.body
