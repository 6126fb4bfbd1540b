"""Options of the data sources: what is accepted, and the one sentence for everything that is not."""

from __future__ import annotations

import json

import pytest

from orbitlog.pipeline.sources.broker_stores import OptionError, parse_store_paths
from orbitlog.pipeline.sources.source_options import parse_tags, parse_topic_options
from orbitlog.pipeline.sources.topic_offsets import (
    EARLIEST,
    LATEST,
    QueueKey,
    from_nested,
    nested,
    parse_assignment,
    parse_offsets,
)

READ = {"storePath": "/data/broker-a/store", "subscribe": "T"}


def options(*, is_stream: bool = False, **more: str) -> object:
    return parse_topic_options({**READ, **more}, is_stream=is_stream)


def test_names_of_stores() -> None:
    stores = parse_store_paths("/data/broker-a/store, east=/mnt/x , /data/plain")
    assert [(store.broker_name, store.root) for store in stores] == [
        ("broker-a", "/data/broker-a/store"),
        ("east", "/mnt/x"),
        ("plain", "/data/plain"),
    ]
    assert parse_store_paths('["/a,b/store"]')[0].root == "/a,b/store"


def test_names_are_compared_without_case() -> None:
    parsed = parse_topic_options({"storepath": "/s", "SUBSCRIBE": "A,B", "maxoffsetspertrigger": "7"}, is_stream=True)
    assert parsed.subscription.topics == ("A", "B")
    assert parsed.offsets_per_trigger_max == 7


def test_defaults_of_a_batch_and_of_a_stream() -> None:
    batch, stream = options(), options(is_stream=True)
    assert (batch.start.mark, batch.end.mark, stream.start.mark) == (EARLIEST, LATEST, LATEST)
    assert batch.fail_on_data_loss
    assert batch.include_properties
    assert not options(schema="kafka").include_properties
    assert options(schema="kafka", includeHeaders="true").include_properties


def test_a_time_goes_before_times_and_those_before_offsets() -> None:
    by_queue = '{"T":{"0":5}}'
    everything = {
        "startingTimestamp": "1000",
        "startingOffsetsByTimestamp": by_queue,
        "startingOffsets": "earliest",
    }
    assert options(**everything).start.timestamp_ms == 1000
    del everything["startingTimestamp"]
    assert options(**everything).start.timestamps_ms == {QueueKey("T", "broker-a", 0): 5}


def test_tags() -> None:
    assert parse_tags("*") == parse_tags("") == parse_tags("A || *") == ()
    assert parse_tags(" A||B || A") == ("A", "B")


def test_subscriptions() -> None:
    pattern = parse_topic_options({"storePath": "/s", "subscribePattern": "Or.*"}, is_stream=False).subscription
    assert pattern.wants_topic("Orders")
    assert not pattern.wants_topic("xOrders")
    assigned = parse_topic_options({"storePath": "x=/s", "assign": '{"T":[0,2]}'}, is_stream=False).subscription
    assert assigned.wants(QueueKey("T", "x", 2))
    assert not assigned.wants(QueueKey("T", "x", 1))
    assert assigned.named_topics == ("T",)


WRONG = [
    ({"subscibe": "T"}, "unknown option 'subscibe'; did you mean subscribe?"),
    ({"frobnicate": "1"}, "unknown option 'frobnicate'; available: storePath"),
    ({"subscribePattern": "T"}, "exactly one of subscribe, subscribePattern and assign"),
    ({"nameServer": "h:9876", "path": "/s"}, "load(path) is for reading files, but nameServer is given"),
    ({"startingOffsets": "latest"}, "would read nothing in a batch"),
    ({"startingOffsets": '{"T":{"0":-1}}'}, "would read nothing in a batch"),
    ({"endingOffsets": "earliest"}, "would read nothing"),
    ({"startingOffsets": "begin"}, "neither earliest nor latest nor JSON"),
    ({"startingOffsets": '{"T":'}, "startingOffsets is not valid JSON"),
    ({"startingOffsets": "{}"}, "contains no queue"),
    ({"startingOffsets": '{"T":{"0":-3}}'}, "-3 under topic 'T' is not a valid offset"),
    ({"startingOffsets": '{"T":{"0":true}}'}, "True under topic 'T' is not a valid offset"),
    ({"startingOffsets": '{"T":{"x":1}}'}, "'x' is not a valid queue id"),
    ({"startingOffsets": '{"T":{"other":{"0":1}}}'}, "names broker 'other'; the stores of the query are broker-a"),
    ({"startingOffsets": '{"T":{"broker-a":{"0":1},"0":1}}'}, "mixes brokers and queues"),
    ({"startingOffsets": '{"T":3}'}, "is not an object"),
    ({"failOnDataLoss": "maybe"}, "failOnDataLoss=maybe is neither true nor false"),
    ({"minPartitions": "0"}, "minPartitions=0 is not a whole number of at least 1"),
    ({"maxBytesPerTrigger": "10MB"}, "maxBytesPerTrigger=10MB is not a whole number"),
    ({"schema": "pulsar"}, "schema=pulsar is not one of kafka"),
    ({"path": "/other"}, "both storePath and load(path)"),
]


@pytest.mark.parametrize(("more", "sentence"), WRONG, ids=[" ".join(more) for more, _ in WRONG])
def test_every_mistake_has_its_sentence(more: dict[str, str], sentence: str) -> None:
    with pytest.raises(OptionError) as caught:
        options(**more)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    with pytest.raises(OptionError, match=f"{name} is for batch queries"):
        options(is_stream=True, **{name: "1"})


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "storePath is empty"),
        ("/a/store,/b/../a/store", "two stores have the name"),
        ("[1]", "JSON list of strings"),
        ("[x", "starts like a JSON list, but is invalid JSON"),
        (",".join(f"n{number}=/s" for number in range(1025)), "the maximum is 1024"),
    ],
)
def test_store_paths_that_cannot_be(text: str, sentence: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_store_paths(text)
    assert sentence in str(caught.value)


def test_offsets_survive_json() -> None:
    offsets = {QueueKey("T", "a", 10): 2**60, QueueKey("T", "a", 9): 0, QueueKey("S", "b", 0): 5}
    text = json.dumps(nested(offsets))
    assert text == '{"S": {"b": {"0": 5}}, "T": {"a": {"9": 0, "10": 1152921504606846976}}}'
    assert from_nested(json.loads(text)) == offsets
    assert parse_offsets(text, ["a", "b"], "startingOffsets") == offsets


def test_one_store_needs_no_broker_in_json_and_two_do() -> None:
    assert parse_offsets('{"T":{"0":23}}', ["a"], "x") == {QueueKey("T", "a", 0): 23}
    with pytest.raises(OptionError, match="must name the broker, one of a, b"):
        parse_offsets('{"T":{"0":23}}', ["a", "b"], "x")
    assert parse_assignment('{"T":[1]}', ["a", "b"]) == {QueueKey("T", "a", 1), QueueKey("T", "b", 1)}
    assert parse_assignment('{"T":{"b":[1]}}', ["a", "b"]) == {QueueKey("T", "b", 1)}
    with pytest.raises(OptionError, match="are not a list"):
        parse_assignment('{"T":{"b":1}}', ["a", "b"])
