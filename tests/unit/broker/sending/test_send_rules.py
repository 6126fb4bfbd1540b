"""Every send rule states how the fast path obeys it, and does what it states."""

from __future__ import annotations

from dataclasses import fields

import pytest

from orbitlog.broker.sending import send_rules
from orbitlog.broker.sending.send_rules import (
    MESSAGE_FIELDS,
    SEND_RULES,
    HeaderRule,
    MessageRule,
    PropertyRule,
    Refusal,
    Send,
    SendKind,
    SendRules,
    SlowPath,
    send_limits,
)
from orbitlog.formats.records import properties as props
from orbitlog.formats.records.batch import BatchMember, encode_batch
from orbitlog.formats.records.properties import PROPERTIES_BYTES_MAX
from orbitlog.formats.tables.topic_config import TopicConfig
from orbitlog.wire.codes import ResponseCode
from orbitlog.wire.send_headers import SendMessageRequest, SendMessageV2Request

LIMITS = send_limits(100, 50, rejects_transactions=True, waits_for_flush=True, batch_messages_max=3)
PLAIN = "UNIQ_KEY\x017F000001\x02WAIT\x01true\x02"
HALF = PLAIN + "TRAN_MSG\x01true\x02PGROUP\x01P\x02"
CONFIG = TopicConfig("Orders", 4, 4)
CLIENT = ("127.0.0.1", 50_000)

# A message that each message rule keeps off the fast path.
LEFT_TO_SLOW_PATH = {
    "body fits": (b"x" * 101, PLAIN),
    "batch has few messages": (encode_batch([BatchMember(b"x")] * 4), PLAIN),
    "single message is stored as sent": (b"x", PLAIN + "DELAY\x013"),
    "half message is stored as sent": (b"x", HALF + "REAL_TOPIC\x01Other"),
    "batch waits for flush": (b"x", "WAIT\x01false"),
}


def header(**changed: object) -> SendMessageRequest:
    values = {
        **{"producer_group": "P", "topic": "Orders", "default_topic": "TBW102", "default_topic_queue_count": 4},
        **{"queue_id": 0, "sys_flag": 0, "born_timestamp_ms": 1, "flag": 0, "properties": PLAIN},
    }
    return SendMessageRequest(**{**values, **changed})


class RecordingHeader:
    """A header that records which fields are read."""

    def __init__(self, request: SendMessageRequest) -> None:
        self.request = request
        self.names: set[str] = set()

    def __getattr__(self, name: str) -> object:
        self.names.add(name)
        return getattr(self.request, name)


SEND = Send(header(), CONFIG, CLIENT, LIMITS)
SAMPLES = [
    header(),
    *(header(topic=topic) for topic in ("%RETRY%G", "%RETRY%G+T", "SCHEDULE_TOPIC_XXXX", "in valid", "")),
    *(header(queue_id=queue_id) for queue_id in (3, 4, -1)),
    *(header(sys_flag=sys_flag) for sys_flag in (4, 8, 12, 128, 1 << 8)),
    *(header(batch=True), header(properties=HALF), header(unit_mode=True), header(reconsume_times=3)),
]


def complaint(rule: object) -> str | None:
    """Return how a rule could be missed by the fast path; None if it cannot."""
    match rule:
        case HeaderRule():
            return header_complaint(rule)
        case MessageRule():
            return message_complaint(rule)
        case PropertyRule():
            return property_complaint(rule)
        case _:
            return "it is neither cacheable, nor evaluated for every message, nor about special properties"


def header_complaint(rule: HeaderRule) -> str | None:
    known = {field.name for field in fields(SendMessageRequest)}
    # Templates do not compare these; they keep the valid values of `queue_id`.
    per_message = set(MESSAGE_FIELDS) - {"queue_id"}
    if not rule.cached_on <= known - per_message:
        return f"templates do not compare {sorted(rule.cached_on - known | rule.cached_on & per_message)}"
    for request in SAMPLES:
        for config in (CONFIG, TopicConfig("Orders", 0, 0), *([None] if rule.before_topic else [])):
            recording = RecordingHeader(request)
            rule.check(Send(recording, config, CLIENT, LIMITS))  # type: ignore[arg-type]
            if not recording.names <= rule.cached_on:
                return f"it reads {sorted(recording.names - rule.cached_on)}, which it does not declare"
    return None


def message_complaint(rule: MessageRule) -> str | None:
    if rule.name not in LEFT_TO_SLOW_PATH:
        return "LEFT_TO_SLOW_PATH has no example for it"
    for kind, checks in SendRules(keeps_wait=True, rules=[rule]).message_checks.items():
        if (kind in rule.kinds) != (checks == (rule.check,)):
            return f"the fast path does not evaluate it for {kind}"
    recording = RecordingHeader(header())
    outcome = rule.check(Send(recording, CONFIG, CLIENT, LIMITS), *LEFT_TO_SLOW_PATH[rule.name])  # type: ignore[arg-type]
    if recording.names & set(MESSAGE_FIELDS):
        return f"it reads {sorted(recording.names & set(MESSAGE_FIELDS))} of the header, which templates do not have"
    return "it accepts its example" if outcome is None else None


def property_complaint(rule: PropertyRule) -> str | None:
    rules = SendRules(keeps_wait=True)
    for name in rule.names:
        kinds = [SendKind.SINGLE, *([] if name == props.TRANSACTION_PREPARED else [SendKind.HALF])]
        for kind in kinds:
            text = f"{PLAIN}{name}\x01value"
            if not any(check(SEND, b"x", text) for check in rules.message_checks[kind]):
                return f"a {kind.value} message with {name} takes the fast path"
    return None


@pytest.mark.parametrize("rule", SEND_RULES, ids=lambda rule: rule.name)
def test_rule_is_obeyed_by_the_fast_path(rule: object) -> None:
    assert complaint(rule) is None


def _refuse(*_: object) -> Refusal:
    return Refusal(ResponseCode.NO_PERMISSION, "no")


@pytest.mark.parametrize(
    "rule",
    [
        _refuse,
        HeaderRule("by group", frozenset({"topic"}), lambda send: _refuse() if send.header.producer_group else None),
        HeaderRule("by properties", frozenset({"properties"}), _refuse),
        HeaderRule("by an unknown field", frozenset({"tenant"}), _refuse),
        MessageRule("without an example", _refuse),
        MessageRule("body fits", lambda send, body, text: _refuse() if send.header.properties else None),
        MessageRule("body fits", lambda send, body, text: None),
        PropertyRule("of a plain property", frozenset({"TAGS"}), _refuse),
    ],
)
def test_rule_that_the_fast_path_could_miss_is_reported(rule: object) -> None:
    assert complaint(rule) is not None


def test_rule_names_are_unique() -> None:
    assert len({rule.name for rule in SEND_RULES}) == len(SEND_RULES)


def test_message_fields_are_names_of_the_wire() -> None:
    sent = SendMessageV2Request(**{name.name: getattr(header(), name.name) for name in fields(SendMessageRequest)})
    ext_fields = sent.to_ext_fields()
    for name, letter in MESSAGE_FIELDS.items():
        assert ext_fields[letter] == str(getattr(sent, name))


def judged(kind: SendKind = SendKind.SINGLE, body: bytes = b"x", **changed: object) -> send_rules.Verdict:
    return SendRules(keeps_wait=True).judge(Send(header(**changed), CONFIG, CLIENT, LIMITS), kind, body)


def test_plain_send_is_stored_as_sent_and_cacheable() -> None:
    assert judged() == (None, True, {"topic", "queue_id", "sys_flag"})


@pytest.mark.parametrize(
    "changed",
    [{"sys_flag": 4}, {"topic": "%RETRY%G"}, {"properties": None}, {"properties": PLAIN + "DELAY\x013"}],
)
def test_special_send_is_rewritten_and_not_cacheable(changed: dict[str, object]) -> None:
    assert judged(**changed) == (None, False, None)


def test_send_without_wait_property_kept_is_rewritten() -> None:
    send = Send(header(), CONFIG, CLIENT, LIMITS)
    assert SendRules(keeps_wait=False).judge(send, SendKind.SINGLE, b"x") == (None, False, None)


@pytest.mark.parametrize(
    ("changed", "body", "code", "remark"),
    [
        ({"queue_id": 4}, b"x", ResponseCode.INVALID_PARAMETER, "queueId[4] is out of range"),
        ({}, b"", ResponseCode.MESSAGE_ILLEGAL, "it has no body"),
        ({}, b"x" * 101, ResponseCode.MESSAGE_ILLEGAL, "a body of 101 bytes; msg body length limit 100B"),
        ({"sys_flag": 8}, b"x", ResponseCode.MESSAGE_ILLEGAL, "sysFlag"),
        ({"sys_flag": 128}, b"x", ResponseCode.MESSAGE_ILLEGAL, "sysFlag"),
    ],
)
def test_invalid_send_is_refused(changed: dict[str, object], body: bytes, code: int, remark: str) -> None:
    refusal, is_stored_as_sent, cached_on = judged(body=body, **changed)
    assert refusal is not None and refusal.code == code and remark in refusal.remark
    assert not is_stored_as_sent and cached_on is None


def test_half_message_is_judged_by_its_own_rules() -> None:
    rules, decoded = SendRules(keeps_wait=True), {props.TRANSACTION_PREPARED: "true"}
    refused = rules.judge_special(Send(header(), CONFIG, CLIENT, LIMITS), b"x", decoded)
    assert refused.refusal is not None and "rejectTransactionMessage" in refused.refusal.remark
    limits = LIMITS._replace(rejects_transactions=False)
    accepted = rules.judge_special(Send(header(), CONFIG, CLIENT, limits), b"x", decoded)
    assert accepted == (None, False, {"topic", "queue_id", "sys_flag"})
    unmarked = rules.judge_special(Send(header(sys_flag=4), CONFIG, CLIENT, limits), b"x", {})
    assert unmarked.refusal is not None and "TRAN_MSG" in unmarked.refusal.remark


@pytest.mark.parametrize("character", ["x", "ü", "€", "😀"])
@pytest.mark.parametrize("excess", [-1, 0, 1, 2])
def test_properties_up_to_the_record_limit_take_the_fast_path(character: str, excess: int) -> None:
    (_, check), width = SendRules(keeps_wait=True).message_checks[SendKind.SINGLE], len(character.encode())
    room = LIMITS.properties_bytes_max + excess - len(PLAIN.encode()) - len(b"k\x01")
    text = f"{PLAIN}k\x01{character * (room // width)}{'x' * (room % width)}"
    assert len(text.encode()) == LIMITS.properties_bytes_max + excess
    assert check(SEND, b"x", text) is (None if excess <= 0 else SlowPath.STORE)
    assert LIMITS.properties_bytes_max + 1 + 50 == PROPERTIES_BYTES_MAX


@pytest.mark.parametrize("text", [PLAIN + "k\x01\0", HALF + "k\x01\0"])
def test_zero_in_properties_is_left_to_the_store(text: str) -> None:
    kind = SendKind.HALF if text.startswith(HALF) else SendKind.SINGLE
    outcomes = [check(SEND, b"x", text) for check in SendRules(keeps_wait=True).message_checks[kind]]
    assert outcomes == [None, SlowPath.STORE]
