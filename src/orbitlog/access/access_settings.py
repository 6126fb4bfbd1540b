"""Settings of access control, under the names of Java's `broker.conf`; broker and name server share them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from orbitlog.errors import OrbitlogError
from orbitlog.settings.setting import Setting, SettingError, number_between, parse_truth

if TYPE_CHECKING:  # every server reads its settings; hashing is imported only with access control on
    from orbitlog.access.credentials import Credentials
    from orbitlog.access.user_records import User

LIMIT_MAX = 10**15


class QuotaLimits(NamedTuple):
    """The quotas of one account; None takes the default of the server, 0 is unlimited."""

    messages_per_second: int | None = None
    bytes_per_second: int | None = None
    connections: int | None = None
    topics: int | None = None

    def over(self, defaults: QuotaLimits) -> QuotaLimits:
        """Return the limits, with the defaults in the place of absent ones."""
        return QuotaLimits(*(given if limit is None else limit for limit, given in zip(self, defaults, strict=True)))

    @property
    def is_unlimited(self) -> bool:
        return not any(self)

    def to_json(self) -> dict[str, int]:
        """Return the limits that are given, by their names in files."""
        return {name: limit for name, limit in zip(LIMIT_NAMES, self, strict=True) if limit is not None}


LIMIT_NAMES = ("messagesPerSecond", "bytesPerSecond", "connections", "topics")
NO_LIMITS = QuotaLimits()


def _absolute(text: str) -> str:
    if text and not text.startswith("/"):
        raise ValueError("is not an absolute path")
    return text


def _object(text: str) -> dict[str, Any]:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        value = None
    if not isinstance(value, dict) or not all(isinstance(part, str) for part in value.values()):
        raise ValueError("is not a JSON object of texts")
    return value


def _first_user(text: str) -> User | None:
    if not text:
        return None
    from orbitlog.access.user_records import SUPER, parse_user

    try:
        return parse_user({**_object(text), "userType": SUPER})
    except (OrbitlogError, ValueError):
        raise ValueError('is not of the form {"username":"name","password":"secret"}') from None


def _inner_credentials(text: str) -> Credentials | None:
    if not text:
        return None
    from orbitlog.access.credentials import Credentials
    from orbitlog.access.user_records import parse_user

    try:
        fields = _object(text)
        user = parse_user({"username": fields.get("accessKey"), "password": fields.get("secretKey")})
    except (OrbitlogError, ValueError):
        raise ValueError('is not of the form {"accessKey":"name","secretKey":"secret"}') from None
    return Credentials(user.username, user.password, fields.get("securityToken"))


class SecretSetting(Setting[Any]):
    """A setting whose value is never shown, also not in errors."""

    __slots__ = ()

    def check(self, text: str, source: str) -> Any:
        try:
            return self.parse(text)
        except ValueError as error:
            raise SettingError(f"{self.key} from {source}: the value {error}", key=self.key) from None


ACL_ENABLE = Setting(
    "aclEnable",
    parse_truth,
    False,
    "check signatures and permissions of `plain_acl.yml` ([access](../access-control.md))",
)
AUTHENTICATION = Setting(
    "authenticationEnabled", parse_truth, False, "check signatures of users ([access control](../access-control.md))"
)
AUTHORIZATION = Setting(
    "authorizationEnabled", parse_truth, False, "check policies of users; needs authenticationEnabled=true"
)
FIRST_USER: Setting[User | None] = SecretSetting(
    "initAuthenticationUser",
    _first_user,
    None,
    'super user created at start if it does not exist: `{"username":"name","password":"secret"}`',
)
INNER_CREDENTIALS: Setting[Credentials | None] = SecretSetting(
    "innerClientAuthenticationCredentials",
    _inner_credentials,
    None,
    'credentials for requests to name servers and brokers: `{"accessKey":"name","secretKey":"secret"}`',
)
HOME = Setting(
    "rocketmqHome",
    _absolute,
    "",
    "directory with `conf/plain_acl.yml` and `conf/acl` (aclEnable); else `ROCKETMQ_HOME`",
)
USER_FILE = Setting(
    "accessFile",
    _absolute,
    "",
    "file with users and policies; without it, `config/access.json` of the store (Orbitlog's own key)",
)
AUDIT_FILE = Setting(
    "accessLogFile",
    _absolute,
    "",
    "audit log of refusals and administrative requests; without it, `logs/access.log` of the store, and none for a name"
    " server (Orbitlog's own key)",
)


def _quota(key: str, noun: str) -> Setting[int]:
    return Setting(
        key,
        number_between(0),
        0,
        f"{noun} of each user and account that is not a super user; 0 is unlimited (Orbitlog's own key)",
    )


QUOTAS = (
    _quota("userMessagesPerSecondMax", "messages a second"),
    _quota("userBytesPerSecondMax", "bytes of message bodies a second"),
    _quota("userConnectionsMax", "open connections"),
    _quota("userTopicsMax", "created topics"),
)
"""Default quotas, in the order of `QuotaLimits`; limits of a user replace them."""
FREE_FAILURES = Setting(
    "authenticationFailuresPerMinuteMax",
    number_between(1),
    10,
    "failed authentications of one address in a minute that are answered at once; further ones are answered after a"
    " second, and ten times as many close the connection (Orbitlog's own key)",
)

ACCESS_SETTINGS: Mapping[str, Setting[Any]] = {
    setting.key: setting
    for setting in (
        ACL_ENABLE,
        AUTHENTICATION,
        AUTHORIZATION,
        FIRST_USER,
        INNER_CREDENTIALS,
        HOME,
        USER_FILE,
        AUDIT_FILE,
        *QUOTAS,
        FREE_FAILURES,
    )
}
SECRET_SETTINGS = frozenset((FIRST_USER.key, INNER_CREDENTIALS.key))


class AccessOptions(NamedTuple):
    """The settings of access control of one server."""

    checks_plain_accounts: bool
    checks_users: bool
    checks_policies: bool
    home: Path | None
    user_file: Path
    first_user: User | None
    inner_credentials: Credentials | None
    default_limits: QuotaLimits = NO_LIMITS
    free_failures: int = FREE_FAILURES.default
    audit_file: Path | None = None
    """The audit log; None for the default of the server."""

    @property
    def is_on(self) -> bool:
        """Whether requests are checked at all."""
        return self.checks_plain_accounts or self.checks_users


def access_options(
    values: Mapping[str, Any], default_file: Path | None, environment: Mapping[str, str]
) -> AccessOptions:
    """Return the options from parsed settings by key; raise a `SettingError` if they contradict each other."""
    checks_users, checks_policies = values[AUTHENTICATION.key], values[AUTHORIZATION.key]
    if checks_policies and not checks_users:
        raise SettingError(
            "authorizationEnabled=true needs authenticationEnabled=true; else no signature proves a name",
            key=AUTHORIZATION.key,
        )
    given = values[HOME.key] or environment.get("ROCKETMQ_HOME", "")
    if values[ACL_ENABLE.key] and not given:
        raise SettingError(
            "aclEnable=true needs rocketmqHome, or ROCKETMQ_HOME in the environment: the directory with"
            " conf/plain_acl.yml",
            key=ACL_ENABLE.key,
        )
    text = values[USER_FILE.key]
    if not text and default_file is None and checks_users:
        sentence = "authenticationEnabled=true needs accessFile here: the file with users and policies"
        raise SettingError(sentence, key=AUTHENTICATION.key)
    return AccessOptions(
        values[ACL_ENABLE.key],
        checks_users,
        checks_policies,
        Path(given) if given else None,
        Path(text) if text else (default_file or Path()),
        values[FIRST_USER.key],
        values[INNER_CREDENTIALS.key],
        QuotaLimits(*(values[quota.key] for quota in QUOTAS)),
        values[FREE_FAILURES.key],
        Path(values[AUDIT_FILE.key]) if values[AUDIT_FILE.key] else None,
    )
