"""The closed table of request codes: every served code has a row, unknown ones need the highest right."""

import pytest

from orbitlog.access.access_model import Action, Need, ResourceKind
from orbitlog.access.request_needs import ROWS, RequestParts, needs_of
from orbitlog.wire.codes import RequestCode

TOPIC, GROUP, CLUSTER = ResourceKind.TOPIC, ResourceKind.GROUP, ResourceKind.CLUSTER
HIGHEST = (Need(CLUSTER, "C", Action.UPDATE),)


def needs(code, fields=None, body=b"", topic=None):
    return needs_of(RequestParts(code, fields or {}, body), "C", lambda _: topic)


@pytest.mark.parametrize("code", [0, -1, 13, 39, 47, 5001, 99999, 200056, 3442])
def test_code_without_a_row_needs_update_of_the_cluster(code):
    assert needs(code) == HIGHEST


@pytest.mark.parametrize("code", [*range(50, 55), *range(3001, 3011)])
def test_account_codes_are_for_super_users(code):
    assert needs(code)[0].is_management


@pytest.mark.parametrize("code", [code for code, row in ROWS.items() if not row.is_free and not row.cluster])
def test_request_without_its_fields_needs_the_highest_right(code):
    assert needs(code)[0].kind is CLUSTER
    assert needs(code, body=b"{")[0].kind is CLUSTER


@pytest.mark.parametrize(
    ("code", "fields", "expected"),
    [
        (10, {"topic": "T"}, [Need(TOPIC, "T", Action.PUB)]),
        (310, {"b": "T", "topic": "U"}, [Need(TOPIC, "T", Action.PUB)]),
        (320, {"b": "T"}, [Need(TOPIC, "T", Action.PUB)]),
        (310, {"b": "%RETRY%g", "a": "other"}, [Need(GROUP, "g", Action.SUB)]),
        (310, {"b": "%RETRY%g+t"}, [Need(GROUP, "g", Action.SUB)]),
        (310, {"b": "%DLQ%g"}, list(HIGHEST)),
        (
            11,
            {"topic": "T", "consumerGroup": "g"},
            [Need(GROUP, "g", Action.SUB), Need(TOPIC, "T", Action.SUB)],
        ),
        (
            361,
            {"topic": "%RETRY%other", "consumerGroup": "g"},
            [Need(GROUP, "g", Action.SUB), Need(GROUP, "other", Action.SUB)],
        ),
        (
            11,
            {"topic": "SCHEDULE_TOPIC_XXXX", "consumerGroup": "g"},
            [Need(GROUP, "g", Action.SUB), Need(TOPIC, "SCHEDULE_TOPIC_XXXX", Action.SUB, True)],
        ),
        (105, {"topic": "T"}, [Need(TOPIC, "T", Action.PUB | Action.SUB | Action.GET)]),
        (105, {"topic": "TBW102"}, []),
        (105, {"topic": ""}, list(HIGHEST)),
        (
            11,
            {"topic": "TBW102", "consumerGroup": "g"},
            [Need(GROUP, "g", Action.SUB), Need(TOPIC, "TBW102", Action.SUB)],
        ),
        (35, {"clientID": "c"}, []),
        (35, {"consumerGroup": "g"}, [Need(GROUP, "g", Action.SUB)]),
        (25, {}, [Need(CLUSTER, "C", Action.UPDATE)]),
        (26, {}, [Need(CLUSTER, "C", Action.GET)]),
        (1006, {}, [Need(CLUSTER, "C", Action.GET)]),
        (1006, {"orbitlogSavedTables": "7"}, list(HIGHEST)),
        (
            208,
            {"consumerGroup": "g", "topic": "a;b"},
            [Need(GROUP, "g", Action.GET), Need(TOPIC, "a", Action.GET), Need(TOPIC, "b", Action.GET)],
        ),
    ],
)
def test_needs_follow_from_the_fields_that_the_handler_reads(code, fields, expected):
    assert list(needs(code, fields)) == expected


@pytest.mark.parametrize(
    ("code", "body", "expected"),
    [
        (34, b'{"clientID":"c","producerDataSet":[{"groupName":"p"}]}', []),
        (
            34,
            b'{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[{"topic":"T"}]}]}',
            [Need(GROUP, "g", Action.SUB), Need(TOPIC, "T", Action.SUB)],
        ),
        (
            41,
            b'{"consumerGroup":"g","clientId":"c","mqSet":[{"topic":"T","brokerName":"b","queueId":0}]}',
            [Need(GROUP, "g", Action.SUB), Need(TOPIC, "T", Action.SUB)],
        ),
        (
            200151,
            b'{"acks":[{"c":"g","t":"T"},{"c":"g","t":"U"}]}',
            [
                Need(GROUP, "g", Action.SUB),
                Need(TOPIC, "T", Action.SUB),
                Need(GROUP, "g", Action.SUB),
                Need(TOPIC, "U", Action.SUB),
            ],
        ),
        (200, b'{"groupName":"g"}', [Need(GROUP, "g", Action.CREATE | Action.UPDATE)]),
    ],
)
def test_needs_follow_from_the_body(code, body, expected):
    assert list(needs(code, body=body)) == expected


@pytest.mark.parametrize("code", [33, 36, 37, 309])
def test_topic_of_the_message_found_is_needed(code):
    fields = {"offset": "17", "commitLogOffset": "17", "group": "g", "consumerGroup": "g"}
    fields["msgId"] = "7F00000100002A9F0000000000000011"

    found = needs(code, fields, topic="Secret")

    assert any(need.kind is TOPIC and need.name == "Secret" for need in found)
    assert not any(need.kind is TOPIC for need in needs(code, fields, topic=None))


@pytest.mark.parametrize("text", ["+17", "-1", "1e3", "\uff19", "x" * 40])
def test_offset_that_is_not_plain_digits_needs_the_highest_right(text):
    assert needs(37, {"commitLogOffset": text}) == HIGHEST


def test_rows_are_request_codes():
    assert set(ROWS) - {54} <= set(RequestCode)


@pytest.mark.parametrize("code", [103, 104, 322, 904])
def test_request_of_a_broker_needs_the_cluster_that_it_names(code):
    assert needs(code, {"clusterName": "Other"}) == (Need(CLUSTER, "Other", Action.UPDATE),)


@pytest.mark.parametrize(("code", "field"), [(901, "clusterName"), (224, "cluster")])
def test_list_of_a_cluster_needs_the_cluster_that_it_names(code, field):
    assert needs(code, {field: "Other"}) == (Need(CLUSTER, "Other", Action.GET),)
