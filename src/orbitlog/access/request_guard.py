"""Request guard: authenticates the sender of every request and decides whether it may be served.

Servers call `admit` before anything else looks at a request, on the slow path and on fast paths. The verdict on an
account, address, code and resource is kept until the policy changes; a signature is verified for every request.
Mirrors Java `PlainAccessValidator`, `AuthenticationPipeline`, `AuthorizationPipeline`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from orbitlog.access.access_decision import Decision, decide
from orbitlog.access.access_model import Account, Action, Need, ResourceKind
from orbitlog.access.request_needs import ADMINISTRATIVE_CODES, ROWS, CodeRow, MessageTopic, RequestParts, needs_of
from orbitlog.access.request_signature import ACCESS_KEY, FieldOrder, SigningKey, is_signed_by
from orbitlog.access.source_addresses import AddressTest, white_address
from orbitlog.errors import RequestRefused
from orbitlog.wire.codes import RequestCode, ResponseCode

SHOWN_CHARACTERS_MAX = 255
_VERDICTS_MAX = 65_536
_RESOURCES_MAX = 16
_ACL_EXCEPTION = "org.apache.rocketmq.acl.common.AclException"
_ABSENT_KEY = SigningKey("")
_DATA_ACTIONS = Action.PUB | Action.SUB | Action.GET


def _no_message(_: int) -> None:
    return None


class AuthenticationFailed(RequestRefused):
    """A request without valid credentials, or of a disabled account."""


@dataclass(frozen=True)
class AccessPolicy:
    """Everything that decisions depend on; replaced as a whole when a user, account or file changes."""

    accounts: Mapping[str, Account]
    white_tests: tuple[AddressTest, ...] = ()
    """Addresses that need no credentials, except for requests that change the cluster."""
    is_authorizing: bool = True
    """Without it every user may do everything except manage accounts; accounts of 1.0 are always authorized."""
    is_plain: bool = False
    """Whether refusals have the form of ACL 1.0."""
    account_white_tests: Mapping[str, AddressTest] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        tests = {name: white_address(account.white_address) for name, account in self.accounts.items()}
        white = {name: test for name, test in tests.items() if self.accounts[name].white_address.strip()}
        object.__setattr__(self, "account_white_tests", white)


class AccessEvent(NamedTuple):
    """A request that was refused, or an admitted one that administers something, for the audit log."""

    is_allowed: bool
    account: str
    ip: str
    code: int
    resources: tuple[str, ...]
    reason: str = ""
    is_failed: bool = False
    """Whether it was admitted, and then answered with an error."""


# The fields that the verdict on a request depends on, for codes whose needs follow from fields alone.
_CACHED_FIELDS: dict[int, tuple[str, ...]] = {
    int(code): tuple(item.field for item in row.fields)
    for code, row in ROWS.items()
    if row.body is None and row.message is None and not row.update_field
}


class RequestGuard:
    """Admits or refuses requests; `cluster` is the name of the cluster in policies."""

    def __init__(
        self, policy: AccessPolicy, *, cluster: str = "DefaultCluster", message_topic: MessageTopic = _no_message
    ) -> None:
        self._policy = policy
        self._cluster = cluster
        self.message_topic = message_topic
        self.on_event: Callable[[AccessEvent], None] | None = None
        """Called for each refusal, and for each admitted request that administers something."""
        self._order = FieldOrder()
        self._verdicts: dict[tuple[object, ...], Decision] = {}
        self.refused_count = 0

    @property
    def policy(self) -> AccessPolicy:
        """The policy in force; assigning another one drops every kept verdict."""
        return self._policy

    @policy.setter
    def policy(self, policy: AccessPolicy) -> None:
        self._policy = policy
        self._verdicts.clear()

    def admit(self, code: int, fields: Mapping[str, str], body: bytes, ip: str) -> str:
        """Return the name of the account that sent a request, empty if its address needs none.

        Raise `RequestRefused` if the request must not be served, as `AuthenticationFailed` if its sender is unknown.
        """
        name = fields.get(ACCESS_KEY, "")
        refusal = self._refusal(name, code, fields, body, ip)
        if refusal is None and code not in ADMINISTRATIVE_CODES and not self._policy.white_tests:
            return name  # almost every request: nothing more may be computed for it
        shown = name[:SHOWN_CHARACTERS_MAX]
        if refusal is None:
            if code in ADMINISTRATIVE_CODES and self.on_event is not None:
                needs = needs_of(RequestParts(code, fields, body), self._cluster, self.message_topic)
                self.on_event(AccessEvent(True, shown, ip, code, tuple(map(_shown, needs[:_RESOURCES_MAX]))))
            return "" if self._is_white(ip) else name
        self.refused_count += 1
        if self.on_event is not None:
            resources = () if refusal.need is None else (_shown(refusal.need),)
            self.on_event(AccessEvent(False, shown, ip, code, resources, refusal.reason[:SHOWN_CHARACTERS_MAX]))
        raise (AuthenticationFailed if refusal.need is None else RequestRefused)(*self._answer(refusal, name, code))

    def is_admitted(self, code: int, fields: Mapping[str, str], body: bytes, ip: str) -> bool:
        """Return whether a request may be served; a fast path leaves one that may not to the slow path."""
        return self._refusal(fields.get(ACCESS_KEY, ""), code, fields, body, ip) is None

    def lasting_key(self, code: int, fields: Mapping[str, str], ip: str) -> SigningKey | None:
        """Return the key that signs requests with these resources and this account, if the policy admits them.

        The verdict lasts until the policy changes; the caller verifies the signature of each request. Return None if
        the verdict follows from more than the fields of the code, or the account may not send such requests.
        """
        account = self._policy.accounts.get(fields.get(ACCESS_KEY, ""))
        if account is None or not account.is_enabled or code not in _CACHED_FIELDS:
            return None
        return account.key if self._decision(account, code, fields, b"", ip).is_allowed else None

    def may_publish(self, name: str, topic: str, ip: str) -> bool:
        """Return whether messages of a topic may be shown to, or written for, the client of an account at `ip`."""
        if self._is_white(ip):
            return True
        account = self._policy.accounts.get(name)
        if account is None or not account.is_enabled:
            return False
        test = self._policy.account_white_tests.get(name)
        if test is not None and test(ip):
            return True
        return self._decision(account, RequestCode.SEND_MESSAGE_V2, {"b": topic}, b"", ip).is_allowed

    def note_failure(self, name: str, code: int, ip: str, reason: str) -> None:
        """Record that an admitted administrative request was answered with an error."""
        if self.on_event is not None:
            event = AccessEvent(True, name[:SHOWN_CHARACTERS_MAX], ip, code, (), reason[:SHOWN_CHARACTERS_MAX], True)
            self.on_event(event)

    def explain(self, name: str, needs: Sequence[Need], ip: str) -> list[Decision]:
        """Return the decision on each need of a request by an account, with the reason; no signature is verified."""
        white = self._white_reason(name, ip)
        if white and not any(_changes_cluster(need) for need in needs):
            return [Decision(True, white)]
        account = self._policy.accounts.get(name)
        if account is None:
            return [Decision(False, f"User:{name[:SHOWN_CHARACTERS_MAX]} is not found.")]
        return [decide(account, (need,), ip) for need in needs] or [decide(account, (), ip)]

    def _white_reason(self, name: str, ip: str) -> str:
        """Return why a request from an address needs no signature; empty if it needs one."""
        if self._is_white(ip):
            return f"{ip} is a global white address: it needs no credentials"
        test = self._policy.account_white_tests.get(name)
        if test is not None and test(ip):
            return f"{ip} is a white address of account {name[:SHOWN_CHARACTERS_MAX]}: it needs no signature"
        return ""

    def _refusal(self, name: str, code: int, fields: Mapping[str, str], body: bytes, ip: str) -> Decision | None:
        policy = self._policy
        if policy.white_tests and self._is_white(ip) and self._is_open(code, fields, body):
            return None
        if not name:
            return Decision(False, "username cannot be null.")
        account = policy.accounts.get(name)
        if account is None:
            # The same work as for a known name: the time of the response must not reveal which names exist.
            is_signed_by(_ABSENT_KEY, fields, body, self._order)
            return Decision(False, f"User:{name[:SHOWN_CHARACTERS_MAX]} is not found.")
        if policy.account_white_tests:
            test = policy.account_white_tests.get(name)
            if test is not None and test(ip) and self._is_open(code, fields, body):
                return None
        if not account.is_enabled:
            return Decision(False, f"User:{name[:SHOWN_CHARACTERS_MAX]} is disabled.")
        if not is_signed_by(account.key, fields, body, self._order):
            return Decision(False, "check signature failed.")
        decision = self._decision(account, code, fields, body, ip)
        return None if decision.is_allowed else decision

    def _is_white(self, ip: str) -> bool:
        """Return whether requests of an address need no credentials."""
        return any(test(ip) for test in self._policy.white_tests)

    def _is_open(self, code: int, fields: Mapping[str, str], body: bytes) -> bool:
        """Return whether a trusted address may send the request without credentials: not if it changes the cluster."""
        needs = needs_of(RequestParts(code, fields, body), self._cluster, self.message_topic)
        return not any(map(_changes_cluster, needs))

    def _decision(self, account: Account, code: int, fields: Mapping[str, str], body: bytes, ip: str) -> Decision:
        cached = _CACHED_FIELDS.get(code)
        if cached is None:
            return self._decide(account, RequestParts(code, fields, body), ip)
        get = fields.get
        if len(cached) == 1:
            key: tuple[object, ...] = account.name, ip, code, get(cached[0])
        else:
            key = account.name, ip, code, *map(get, cached)
        decision = self._verdicts.get(key)
        if decision is None:
            decision = self._decide(account, RequestParts(code, fields, body), ip)
            # A client chooses resource names freely: neither their number nor their length may fill the memory.
            if sum(len(fields.get(name, "")) for name in cached) <= SHOWN_CHARACTERS_MAX * 4:
                if len(self._verdicts) >= _VERDICTS_MAX:
                    self._verdicts.clear()
                self._verdicts[key] = decision
        return decision

    def _decide(self, account: Account, request: RequestParts, ip: str) -> Decision:
        if self._policy.is_authorizing or account.is_plain:
            return decide(account, needs_of(request, self._cluster, self.message_topic), ip)
        row = ROWS.get(request.code, CodeRow())
        needs = (Need(ResourceKind.CLUSTER, self._cluster, Action.UPDATE, is_management=True),)
        return decide(account, needs if row.is_management else (), ip)

    def _answer(self, refusal: Decision, name: str, code: int) -> tuple[int, str]:
        """Return code and remark of the response, as the generation in use has them."""
        if not self._policy.is_plain:
            return ResponseCode.NO_PERMISSION, refusal.reason
        return ResponseCode.SYSTEM_ERROR, f"{_ACL_EXCEPTION}: {self._plain_text(refusal, name, code)}"

    def _plain_text(self, refusal: Decision, name: str, code: int) -> str:
        shown = name[:SHOWN_CHARACTERS_MAX]
        need = refusal.need
        if need is None:
            if not name:
                return "No accessKey is configured"
            if name not in self._policy.accounts:
                return f"No acl config for {shown}"
            return f"Check signature failed for accessKey={shown}"
        if need.kind in (ResourceKind.TOPIC, ResourceKind.GROUP) and need.actions & _DATA_ACTIONS:
            if not need.is_management:
                return f"No default permission for {need.kind.value.lower()}:{need.name[:SHOWN_CHARACTERS_MAX]}"
        return f"Need admin permission for request code={code}, but accessKey={shown} is not"


def _changes_cluster(need: Need) -> bool:
    return need.is_management or (need.kind is ResourceKind.CLUSTER and bool(need.actions & Action.UPDATE))


def _shown(need: Need) -> str:
    return str(need)[:SHOWN_CHARACTERS_MAX]
