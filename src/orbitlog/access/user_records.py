"""Users and policies of ACL 2.0 as records, with the JSON that Java's tools send and print.

Mirrors Java `UserInfo`, `AclInfo`, `UserType`, `UserStatus`, `PolicyType`, `Decision`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from orbitlog.access.access_model import ACTION_NAMES, Action, BadPolicy, PolicyEntry, Resource, action_names
from orbitlog.access.access_settings import LIMIT_MAX, LIMIT_NAMES, NO_LIMITS, QuotaLimits
from orbitlog.access.source_addresses import BadAddress, source_ip

SUPER, NORMAL = "Super", "Normal"
ENABLED, DISABLED = "enable", "disable"
CUSTOM, DEFAULT = "Custom", "Default"
ALLOW, DENY_WORD = "Allow", "Deny"
SUBJECT_PREFIX = "User:"
NAME_CHARACTERS_MAX = 255
PASSWORD_CHARACTERS_MAX = 1024
RESOURCE_CHARACTERS_MAX = 512
SOURCE_IPS_MAX = 1_000
ENTRIES_MAX = 10_000

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class User:
    """One user; the password is never part of `repr`."""

    username: str
    password: str = field(repr=False)
    user_type: str = NORMAL
    status: str = ENABLED
    limits: QuotaLimits = NO_LIMITS

    def to_json(self) -> dict[str, str]:
        """Return the record as Java's tools read it, without the password; keys in the order of fastjson."""
        return {"password": "", "userStatus": self.status, "userType": self.user_type, "username": self.username}

    def to_file(self) -> dict[str, object]:
        """Return the record as the access file has it, with the password and the limits."""
        limits = self.limits.to_json()
        return {**self.to_json(), "password": self.password, **({"limits": limits} if limits else {})}


@dataclass(frozen=True, slots=True)
class Acl:
    """The policies of one subject (`User:name`)."""

    subject: str
    custom: tuple[PolicyEntry, ...] = ()
    default: tuple[PolicyEntry, ...] = ()

    @property
    def username(self) -> str:
        return self.subject.removeprefix(SUBJECT_PREFIX)

    def policies(self) -> tuple[tuple[str, tuple[PolicyEntry, ...]], ...]:
        """Return the policies that have entries, by type."""
        both = ((CUSTOM, self.custom), (DEFAULT, self.default))
        return tuple((policy_type, entries) for policy_type, entries in both if entries)

    def with_entries(self, policy_type: str, entries: Iterable[PolicyEntry]) -> Acl:
        """Return the ACL with another list of entries in one policy."""
        changed = tuple(entries)
        if len(changed) > ENTRIES_MAX:
            raise BadPolicy(f"{len(changed)} policy entries exceed the maximum of {ENTRIES_MAX}")
        return replace(self, custom=changed) if policy_type == CUSTOM else replace(self, default=changed)

    def to_json(self) -> dict[str, object]:
        """Return the record as Java's tools read it."""
        policies = [
            {"entries": list(map(entry_to_json, entries)), "policyType": policy_type}
            for policy_type, entries in self.policies()
        ]
        return {"policies": policies, "subject": self.subject}


def entry_to_json(entry: PolicyEntry) -> dict[str, object]:
    """Return a policy entry as Java's tools read it."""
    shown: dict[str, object] = {
        "actions": action_names(entry.actions),
        "decision": ALLOW if entry.is_allowed else DENY_WORD,
        "resource": str(entry.resource),
    }
    if entry.source_ips:
        shown["sourceIps"] = list(entry.source_ips)
    return shown


def checked_username(name: object) -> str:
    """Return a user name; raise `BadPolicy` if it is blank, exceeds its limit, or contains control characters."""
    if not isinstance(name, str) or not name.strip():
        raise BadPolicy("The username is blank")
    if len(name) > NAME_CHARACTERS_MAX or not name.isprintable() or ":" in name:
        raise BadPolicy(f"invalid username: at most {NAME_CHARACTERS_MAX} printable characters without a colon")
    return name


def checked_password(password: object) -> str:
    """Return a password; raise `BadPolicy` if it is blank or exceeds its limit."""
    if not isinstance(password, str) or not password.strip():
        raise BadPolicy("password can not be blank")
    if len(password) > PASSWORD_CHARACTERS_MAX:
        raise BadPolicy(f"a password of {len(password)} characters exceeds the maximum of {PASSWORD_CHARACTERS_MAX}")
    return password


def parse_user_type(text: object, given: str | None = None) -> str:
    """Return `Super` or `Normal`; `given` replaces an absent value."""
    return _word(text, (SUPER, NORMAL), "The user type is illegal.", given)


def parse_status(text: object, given: str | None = None) -> str:
    """Return `enable` or `disable`; `given` replaces an absent value."""
    return _word(text, (ENABLED, DISABLED), "The user status is illegal.", given)


def parse_policy_type(text: object) -> str:
    """Return `Custom`, which is the default, or `Default`."""
    return _word(text or None, (CUSTOM, DEFAULT), "The policy type is illegal.", CUSTOM)


def _word(text: object, words: tuple[str, ...], problem: str, given: str | None) -> str:
    if text is None and given is not None:
        return given
    for word in words:
        if isinstance(text, str) and text.lower() == word.lower():
            return word
    raise BadPolicy(problem)


def parse_user(fields: Mapping[str, Any]) -> User:
    """Return a user from its JSON record; raise `BadPolicy` if it is invalid."""
    return User(
        checked_username(fields.get("username")),
        checked_password(fields.get("password")),
        parse_user_type(fields.get("userType"), NORMAL),
        parse_status(fields.get("userStatus"), ENABLED),
        parse_limits(fields.get("limits")),
    )


def parse_subject(text: object) -> str:
    """Return a subject in its canonical form, `User:name`; raise `BadPolicy` for anything else."""
    kind, _, name = text.partition(":") if isinstance(text, str) else ("", "", "")
    if kind.lower() != "user":
        raise BadPolicy("The subject is null or not of the form User:name.")
    return SUBJECT_PREFIX + checked_username(name)


def parse_policies(fields: Mapping[str, Any]) -> list[tuple[str, list[PolicyEntry]]]:
    """Return the policies of an ACL from its JSON record; raise `BadPolicy` if one is invalid."""
    policies = []
    for policy in _records(fields.get("policies"), "The policies is empty."):
        entries = [parse_entry(entry) for entry in _records(policy.get("entries"), "The policy entries is empty.")]
        policies.append((parse_policy_type(policy.get("policyType")), entries))
    return policies


def _records(value: object, problem: str) -> list[Mapping[str, Any]]:
    if not isinstance(value, list) or not value or not all(isinstance(item, dict) for item in value):
        raise BadPolicy(problem)
    if len(value) > ENTRIES_MAX:
        raise BadPolicy(f"{len(value)} policy entries exceed the maximum of {ENTRIES_MAX}")
    return value


def parse_entry(fields: Mapping[str, Any]) -> PolicyEntry:
    """Return a policy entry from its JSON record; raise `BadPolicy` if it is invalid."""
    resource = fields.get("resource")
    if not isinstance(resource, str) or not resource:
        raise BadPolicy("The resource is null.")
    if len(resource) > RESOURCE_CHARACTERS_MAX:
        raise BadPolicy(f"a resource of {len(resource)} characters exceeds the maximum of {RESOURCE_CHARACTERS_MAX}")
    decision = fields.get("decision")
    if not isinstance(decision, str) or decision.lower() not in ("allow", "deny"):
        raise BadPolicy("The decision is null or illegal.")
    source_ips = fields.get("sourceIps") or []
    if not isinstance(source_ips, list) or not all(isinstance(ip, str) for ip in source_ips):
        raise BadPolicy("The source ip is invalid.")
    if len(source_ips) > SOURCE_IPS_MAX:
        raise BadPolicy(f"{len(source_ips)} source addresses exceed the maximum of {SOURCE_IPS_MAX}")
    try:
        for ip in source_ips:
            source_ip(ip)
    except BadAddress:
        raise BadPolicy("The source ip is invalid.") from None
    actions = parse_actions(fields.get("actions"))
    return PolicyEntry(Resource.parse(resource), actions, decision.lower() == "allow", tuple(source_ips))


def parse_actions(names: object) -> Action:
    """Return the actions of a policy; raise `BadPolicy` if the list is empty or contains an unknown name."""
    if not isinstance(names, list) or not names:
        raise BadPolicy("The actions is empty.")
    by_name = {name.lower(): action for name, action in ACTION_NAMES.items()}
    actions = Action(0)
    for name in names:
        word = str(name).strip().lower()
        if word == "any":
            raise BadPolicy("The actions can not be Any.")
        if word not in by_name:
            raise BadPolicy(f"The action {str(name)[:40]} is unknown; known are {', '.join(ACTION_NAMES)}.")
        actions |= by_name[word]
    return actions


def parse_limits(fields: object) -> QuotaLimits:
    """Return limits from their JSON record; raise `BadPolicy` if one is invalid or unknown."""
    if fields is None:
        return NO_LIMITS
    if not isinstance(fields, dict):
        raise BadPolicy("limits are not an object")
    unknown = sorted(str(name) for name in fields if name not in LIMIT_NAMES)
    if unknown:
        raise BadPolicy(f"unknown limit {unknown[0][:40]!r}; known are {', '.join(LIMIT_NAMES)}")
    return QuotaLimits(*(_limit(fields, name) for name in LIMIT_NAMES))


def _limit(fields: Mapping[str, Any], name: str) -> int | None:
    value = fields.get(name)
    if value is None:
        return None
    if type(value) is not int or not 0 <= value <= LIMIT_MAX:
        raise BadPolicy(f"limit {name} is not a number from 0 to {LIMIT_MAX}")
    return value
