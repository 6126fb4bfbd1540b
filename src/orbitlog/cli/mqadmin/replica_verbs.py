"""Verbs about replicas and groups of Apache's controller, with their flags."""

from __future__ import annotations

from orbitlog.cli.mqadmin.verb_flags import Flag
from orbitlog.cli.mqadmin.verb_record import Verb, need

_CONTROLLER = need("a", "controllerAddress", "a controller by its address")
_BROKER_NAME = Flag("b", "brokerName", "a broker by its name", one_of="where")
_CLUSTER = Flag("c", "clusterName", "all brokers of a cluster", one_of="where")
_INTERVAL = Flag("i", "interval", "repeat after this many seconds")


def _verb(name: str, function: str, help_text: str, *flags: Flag) -> Verb:
    return Verb(name, help_text, f"orbitlog.cli.mqadmin.mq_replicas:{function}", "-", flags)


REPLICA_VERBS = (
    _verb(
        "haStatus",
        "ha_status",
        "Show the slaves of a master, or the master of a slave.",
        Flag("b", "brokerAddr", "a broker by its address", one_of="where"),
        Flag("c", "clusterName", "all masters of a cluster", one_of="where"),
        _INTERVAL,
    ),
    _verb(
        "getSyncStateSet",
        "get_sync_state_set",
        "Show the in-sync set of a group of Apache's controller.",
        *(_CONTROLLER, _BROKER_NAME, _CLUSTER, _INTERVAL),
    ),
    _verb(
        "getBrokerEpoch",
        "get_broker_epoch",
        "Show the epochs of the log of each member of a group.",
        *(_BROKER_NAME, _CLUSTER, _INTERVAL),
    ),
    _verb(
        "electMaster",
        "elect_master",
        "Make a member the master of a group of Apache's controller.",
        _CONTROLLER,
        need("b", "brokerId", "the member by its id"),
        need("bn", "brokerName", "the group by its broker name"),
        need("c", "clusterName", "its cluster"),
    ),
)
