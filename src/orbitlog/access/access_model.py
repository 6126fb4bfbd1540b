"""Access model: accounts with their policies, resources, actions and the needs of a request.

One model serves both generations of RocketMQ's access control: users and policies of 2.0 are kept as they are,
accounts of 1.0 are translated (`plain_accounts`). Mirrors Java `User`, `Acl`, `Policy`, `Resource`, `Action`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, Flag, auto
from functools import cached_property
from typing import NamedTuple

from orbitlog.access.access_settings import NO_LIMITS, QuotaLimits
from orbitlog.access.request_signature import SigningKey
from orbitlog.access.source_addresses import AddressTest, source_ip
from orbitlog.errors import OrbitlogError


class BadPolicy(OrbitlogError):
    """A user or policy that is invalid."""


class Action(Flag):
    """What a request does with a resource. `ALL` in a policy stands for every action."""

    PUB = auto()
    SUB = auto()
    CREATE = auto()
    UPDATE = auto()
    DELETE = auto()
    GET = auto()
    LIST = auto()
    ALL = PUB | SUB | CREATE | UPDATE | DELETE | GET | LIST


ACTION_NAMES = {
    "All": Action.ALL,
    "Pub": Action.PUB,
    "Sub": Action.SUB,
    "Create": Action.CREATE,
    "Update": Action.UPDATE,
    "Delete": Action.DELETE,
    "Get": Action.GET,
    "List": Action.LIST,
}


class ResourceKind(Enum):
    """The type of a resource, with its name in policies; `ANY` is `*`."""

    ANY = "*"
    CLUSTER = "Cluster"
    NAMESPACE = "Namespace"
    TOPIC = "Topic"
    GROUP = "Group"


_KINDS = {kind.value.lower(): kind for kind in ResourceKind}
_LITERAL, _PREFIX, _ANY_NAME = range(3)


@dataclass(frozen=True, slots=True)
class Resource:
    """The resource of a policy entry: a kind, and a literal name, a prefix (`name*`) or any name (`*`)."""

    kind: ResourceKind
    name: str
    pattern: int

    @classmethod
    def parse(cls, text: str) -> Resource:
        """Parse `*`, `Topic:name`, `Topic:prefix*` or `Topic:*`; raise `BadPolicy` for anything else."""
        if text == "*":
            return cls(ResourceKind.ANY, "", _ANY_NAME)
        kind_text, separator, name = text.partition(":")
        kind = _KINDS.get(kind_text.strip().lower())
        if not separator or kind is None or kind is ResourceKind.ANY or not name:
            raise BadPolicy(
                f"resource {text[:255]!r} is not *, or one of Topic, Group, Cluster with a name: Topic:name"
            )
        if name == "*":
            return cls(kind, "", _ANY_NAME)
        if "*" in name:
            return cls(kind, name.partition("*")[0], _PREFIX)
        return cls(kind, name, _LITERAL)

    @classmethod
    def literal(cls, kind: ResourceKind, name: str) -> Resource:
        """Return the resource with exactly this name, also if it contains a star."""
        return cls(kind, name, _LITERAL)

    def __str__(self) -> str:
        if self.kind is ResourceKind.ANY:
            return "*"
        return f"{self.kind.value}:{self.name}{'' if self.pattern == _LITERAL else '*'}"

    def matches(self, kind: ResourceKind, name: str) -> bool:
        """Return whether a resource with this kind and name is meant."""
        if self.kind is ResourceKind.ANY:
            return True
        if self.kind is not kind:
            return False
        if self.pattern == _LITERAL:
            return name == self.name
        return self.pattern == _ANY_NAME or name.startswith(self.name)

    @property
    def rank(self) -> tuple[bool, int, int]:
        """Order of precedence, most specific first: a literal name, longer prefixes, any name, any kind."""
        return self.kind is ResourceKind.ANY, self.pattern, -len(self.name)


@dataclass(frozen=True)
class PolicyEntry:
    """One line of a policy: the resource, the actions, the addresses that it is valid for, and the decision."""

    resource: Resource
    actions: Action
    is_allowed: bool
    source_ips: tuple[str, ...] = ()

    @cached_property
    def _tests(self) -> tuple[AddressTest, ...]:
        return tuple(map(source_ip, self.source_ips))

    def applies_to(self, need: Need, ip: str) -> bool:
        """Return whether the entry has one of the needed actions on the resource, for requests from `ip`."""
        if not (self.actions & need.actions and self.resource.matches(need.kind, need.name)):
            return False
        return not self.source_ips or any(test(ip) for test in self._tests)

    def __str__(self) -> str:
        source = f" from {', '.join(self.source_ips)}" if self.source_ips else ""
        decision = "Allow" if self.is_allowed else "Deny"
        return f"{decision} {', '.join(action_names(self.actions))} on {self.resource}{source}"


def action_names(actions: Action) -> list[str]:
    """Return the names of actions as policies contain them."""
    if actions == Action.ALL:
        return ["All"]
    return [name for name, action in ACTION_NAMES.items() if action is not Action.ALL and action in actions]


class Need(NamedTuple):
    """What a request needs: one of the actions on a resource.

    `is_management`: the right to manage accounts, or to change what no policy may allow; only a super user has it.
    """

    kind: ResourceKind
    name: str
    actions: Action
    is_management: bool = False

    def __str__(self) -> str:
        return f"{self.kind.value}:{self.name}"


@dataclass(frozen=True)
class Account:
    """A user of 2.0 or an account of 1.0: its name, secret and policies. The secret is never part of `repr`."""

    name: str
    secret: str = field(repr=False)
    is_super: bool = False
    is_enabled: bool = True
    custom: tuple[PolicyEntry, ...] = ()
    default: tuple[PolicyEntry, ...] = ()
    manages_accounts: bool = False
    """Whether it may manage accounts without being a super user: `admin` of 1.0 with permissions of its own."""
    white_address: str = ""
    is_plain: bool = False
    """Whether it is an account of 1.0."""
    limits: QuotaLimits = NO_LIMITS

    @cached_property
    def key(self) -> SigningKey:
        """The signing key, computed with the first request."""
        return SigningKey(self.secret)
