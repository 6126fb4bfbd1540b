"""Options of clusters: every contradiction has one sentence, and secrets are not shown."""

from __future__ import annotations

import pickle

import pytest

from orbitlog.pipeline.network.network_options import ClusterOptions, TlsOptions
from orbitlog.pipeline.sources.broker_stores import OptionError
from orbitlog.pipeline.sources.source_options import TopicOptions, parse_topic_options
from orbitlog.pipeline.sources.topic_offsets import ANY_BROKER, QueueKey


def options(**more: str) -> TopicOptions:
    return parse_topic_options({"nameServer": "127.0.0.1:9876", "subscribe": "T", **more}, is_stream=False)


def test_defaults_and_values() -> None:
    assert options().cluster == ClusterOptions("127.0.0.1:9876")
    given = options(
        accessKey="k", secretKey="hidden", tls="ca", tlsCaFile="/ca.pem", pullsInFlight="3", brokerTimeoutMs="1500"
    ).cluster
    assert given is not None
    assert given.tls == TlsOptions("ca", "/ca.pem")
    assert (given.pulls_in_flight, given.broker_timeout_s) == (3, 1.5)
    assert "hidden" not in repr(given)
    assert pickle.loads(pickle.dumps(given)) == ClusterOptions.from_dict(given.as_dict()) == given


def test_offsets_without_a_broker_belong_to_the_only_one() -> None:
    assert options(startingOffsets='{"T":{"0":5}}').start.offsets == {QueueKey("T", ANY_BROKER, 0): 5}
    named = options(startingOffsets='{"T":{"any-name":{"0":5}}}').start.offsets
    assert named == {QueueKey("T", "any-name", 0): 5}


def test_assignment_without_a_broker_holds_for_all() -> None:
    parsed = parse_topic_options({"nameServer": "h:1", "assign": '{"T":[1]}'}, is_stream=True).subscription
    assert parsed.wants(QueueKey("T", "broker-a", 1))
    assert not parsed.wants(QueueKey("T", "broker-a", 0))


WRONG = [
    ({"nameServer": "h:99999"}, "nameServer: 'h:99999' is not a valid host:port address"),
    ({"nameServer": ""}, "nameServer: '' contains no name server"),
    ({"path": "/s"}, "load(path) is for reading files, but nameServer is given"),
    ({"config": "/s"}, "config is for reading files, but only nameServer is given; add storePath"),
    ({"storePath": "/s", "sql": "a > 1"}, "sql is evaluated by brokers, but storePath is given also"),
    ({"accessKey": "k"}, "accessKey is given without secretKey"),
    ({"secretKey": "k"}, "secretKey is given without accessKey"),
    ({"securityToken": "t"}, "securityToken is given without accessKey"),
    ({"tlsCaFile": "/ca"}, "tlsCaFile is given without TLS; add tls=true"),
    ({"tls": "yes"}, "tls=yes is not one of true, false, ca, none"),
    ({"tls": "true", "tlsCertFile": "/c"}, "tlsCertFile and tlsKeyFile must be given together"),
    ({"tls": "none", "tlsCaFile": "/c"}, "tls=none verifies nothing"),
    ({"nameServer": "rocketmqs://h:1", "tls": "false"}, "contradict each other"),
    ({"consumerGroup": "a b"}, "consumerGroup=a b is not a valid group name"),
    ({"pullsInFlight": "1000"}, "pullsInFlight=1000 is over the maximum of 256"),
    ({"tags": "A", "sql": "a > 1"}, "tags and sql are both given"),
    ({"sql": "a >"}, "sql is not a valid SQL92 expression"),
    ({"sql": " "}, "sql must be an expression"),
    ({"maxBytesPerSecondPerTask": "0"}, "maxBytesPerSecondPerTask=0 is not a whole number of at least 1"),
]


@pytest.mark.parametrize(("more", "sentence"), WRONG, ids=[" ".join(more) for more, _ in WRONG])
def test_every_contradiction_has_its_sentence(more: dict[str, str], sentence: str) -> None:
    with pytest.raises(OptionError) as caught:
        options(**more)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_network_options_without_a_cluster_are_refused() -> None:
    with pytest.raises(OptionError, match="sql is for reading over the network; add nameServer"):
        parse_topic_options({"storePath": "/s", "subscribe": "T", "sql": "a > 1"}, is_stream=False)
    with pytest.raises(OptionError, match="or the nameServer of a cluster"):
        parse_topic_options({"subscribe": "T"}, is_stream=False)
