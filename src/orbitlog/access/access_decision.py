"""Access decision: whether an account may do what a request needs, and which policy entry decides.

Custom entries decide before default ones. Among the entries that match, the most specific resource decides, and a
denial before a permission. Mirrors Java `AclAuthorizationHandler`, `UserAuthorizationHandler`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from orbitlog.access.access_model import Account, Action, Need, PolicyEntry, ResourceKind
from orbitlog.formats.names import TRACE_TOPIC


class Decision(NamedTuple):
    """Whether a need is met, the reason as a sentence, and the policy entry that decided, if one did."""

    is_allowed: bool
    reason: str
    need: Need | None = None
    entry: PolicyEntry | None = None


_NOTHING_NEEDED = Decision(True, "the request needs no permission")


def decide(account: Account, needs: Iterable[Need], ip: str) -> Decision:
    """Return the decision on all needs of a request from address `ip`: that of the first unmet one, if any."""
    decision = _NOTHING_NEEDED
    for need in needs:
        decision = decide_need(account, need, ip)
        if not decision.is_allowed:
            break
    return decision


def decide_need(account: Account, need: Need, ip: str) -> Decision:
    """Return the decision on one need."""
    subject = f"User:{account.name}"
    if not account.is_enabled:
        return Decision(False, f"{subject} is disabled.", need)
    if account.is_super:
        return Decision(True, f"{subject} is a super user", need)
    if need.is_management:
        if account.manages_accounts:
            return Decision(True, f"{subject} is an administrator", need)
        return Decision(False, f"{subject} has no permission to access {need} from {ip}, super users only.", need)
    if need.kind is ResourceKind.TOPIC and need.name == TRACE_TOPIC and need.actions & Action.PUB:
        return Decision(True, f"every client may write traces to {TRACE_TOPIC}", need)
    return _by_policy(account, need, ip, f"{subject} has no permission to access {need} from {ip}")


def _by_policy(account: Account, need: Need, ip: str, refusal: str) -> Decision:
    for entries, kind in ((account.custom, "custom"), (account.default, "default")):
        matching = [entry for entry in entries if entry.applies_to(need, ip)]
        if matching:
            entry = min(matching, key=_precedence)
            reason = f"{kind} policy: {entry}" if entry.is_allowed else f"{refusal}, the decision is deny."
            return Decision(entry.is_allowed, reason, need, entry)
        if account.is_plain and any(entry.resource.matches(need.kind, need.name) for entry in entries):
            break  # in 1.0 an explicit permission replaces the default one, also for actions that it does not name
    return Decision(False, f"{refusal}, no matched policies.", need)


def _precedence(entry: PolicyEntry) -> tuple[bool, int, int, bool]:
    return *entry.resource.rank, entry.is_allowed
