"""Verb record: what the verb table knows about one verb, and flags that many verbs share."""

from __future__ import annotations

from dataclasses import dataclass

from orbitlog.cli.mqadmin.verb_flags import HELP, NAME_SERVER, Flag


@dataclass(frozen=True, slots=True)
class Verb:
    """One verb. `function` is `module:name`; `is_client` means that it sends, and needs a full client."""

    name: str
    help: str
    function: str
    orbitlog_command: str
    own_flags: tuple[Flag, ...] = ()
    is_client: bool = False

    @property
    def flags(self) -> tuple[Flag, ...]:
        return (*self.own_flags, NAME_SERVER, HELP)


def need(short: str, long: str, text: str) -> Flag:
    """Return a flag that must be given."""
    return Flag(short, long, text, required=True)


def switch(short: str, long: str, text: str) -> Flag:
    """Return a flag without a value."""
    return Flag(short, long, text, takes_value=False)


BROKER_OR = Flag("b", "brokerAddr", "a broker by its address", one_of="where")
OR_CLUSTER = Flag("c", "clusterName", "all masters of a cluster", one_of="where")
