"""Settings of a name server, under the names of Java's `namesrv.conf`.

A value comes from a properties file, from the environment (`ORBITLOG_NAMESRV_listenPort=…`) or from `key=value` on the
command line; the last source wins. No request changes them. Java's other keys are reviewed as those of a `broker.conf`
are: `namesrv_keys` has their classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from orbitlog.access.access_settings import ACCESS_SETTINGS, SECRET_SETTINGS
from orbitlog.observe.metrics_settings import METRICS_SETTINGS
from orbitlog.settings.limits import NAMESERVER_LIMITS
from orbitlog.settings.listen_exposure import is_exposed
from orbitlog.settings.properties_file import setting_sources, settings_in
from orbitlog.settings.secret_settings import shown_settings
from orbitlog.settings.setting import Setting, SettingError, number_between, parse_truth
from orbitlog.settings.tls_settings import TLS_SETTINGS

ENVIRONMENT_PREFIX = "ORBITLOG_NAMESRV_"
PORT_DEFAULT = 9876


def _path(text: str) -> Path | None:
    return Path(text).expanduser() if text else None


WAITS = Setting("needWaitForService", parse_truth, False, "refuse routes after a start until brokers have registered")
WAIT_SECONDS = Setting(
    "waitSecondsForService", number_between(0), 45, "seconds for which needWaitForService refuses routes"
)
WAIT_SETTINGS: tuple[Setting[Any], ...] = (WAITS, WAIT_SECONDS)
_ALL: tuple[Setting[Any], ...] = (
    Setting("listenPort", number_between(0, 65535), PORT_DEFAULT, "port to listen on; 0 takes a free one"),
    Setting("bindAddress", str, "127.0.0.1", "address to listen on; 0.0.0.0 for every address of the machine"),
    Setting(
        "allowAnonymous",
        parse_truth,
        False,
        "serve administrative requests of every client although other machines can connect"
        " ([security](../security.md), Orbitlog's own key)",
    ),
    Setting(
        "kvConfigPath",
        _path,
        None,
        "file of key-value configs; without it they are lost at exit",
    ),
    Setting("orderMessageEnable", parse_truth, False, "routes of ordered topics contain the order of their queues"),
    Setting("returnOrderTopicConfigToBroker", parse_truth, True, "brokers get the ordered topics when they register"),
    Setting("supportActingMaster", parse_truth, False, "a slave replaces a master that is offline"),
    Setting("deleteTopicWithBrokerRegistration", parse_truth, False, "remove topics that a broker no longer registers"),
    Setting("enableTopicList", parse_truth, True, "allow lists of a cluster's topics"),
    Setting("enableAllTopicList", parse_truth, True, "allow lists of all topics"),
    *WAIT_SETTINGS,
    Setting("scanNotActiveBrokerInterval", number_between(10), 5000, "milliseconds between scans for silent brokers"),
    Setting("serverChannelMaxIdleTimeSeconds", number_between(1), 120, "seconds until an idle connection is closed"),
    Setting("connectionsMax", number_between(1), 20000, "maximum of open connections"),
    Setting(
        "protectBrokerNames",
        parse_truth,
        True,
        "while a broker is connected, no other address can register its name and id, and only it can unregister; false"
        " behaves like Java (Orbitlog's own key)",
    ),
    *NAMESERVER_LIMITS,
    *ACCESS_SETTINGS.values(),
    *TLS_SETTINGS.values(),
    *METRICS_SETTINGS,
)
NAMESERVER_SETTINGS: Mapping[str, Setting[Any]] = {setting.key: setting for setting in _ALL}


@dataclass(frozen=True, slots=True, kw_only=True)
class NameServerSettings:
    """The settings, under Java's names; `warnings` are sentences about given keys that have a side effect or none."""

    listen_port: int = PORT_DEFAULT
    bind_address: str = "127.0.0.1"
    allow_anonymous: bool = False
    kv_config_path: Path | None = None
    order_message_enable: bool = False
    return_order_topic_config_to_broker: bool = True
    support_acting_master: bool = False
    delete_topic_with_broker_registration: bool = False
    enable_topic_list: bool = True
    enable_all_topic_list: bool = True
    scan_not_active_broker_interval: int = 5000
    server_channel_max_idle_time_seconds: int = 120
    connections_max: int = 20000
    protect_broker_names: bool = True
    limits: Mapping[str, int] = field(default_factory=lambda: {limit.key: limit.default for limit in NAMESERVER_LIMITS})
    access: Mapping[str, Any] = field(
        default_factory=lambda: {key: setting.default for key, setting in ACCESS_SETTINGS.items()}, repr=False
    )
    tls: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The given texts of TLS settings."""
    waits: Mapping[str, Any] = field(
        default_factory=lambda: {setting.key: setting.default for setting in WAIT_SETTINGS}
    )
    metrics: Mapping[str, Any] = field(
        default_factory=lambda: {setting.key: setting.default for setting in METRICS_SETTINGS}
    )
    warnings: tuple[str, ...] = ()

    @property
    def is_exposed(self) -> bool:
        """Return whether other machines can connect."""
        return is_exposed(self.bind_address)

    def texts(self) -> dict[str, str]:
        """The settings as in a properties file; secrets are masked."""
        tls = {key: setting.default for key, setting in TLS_SETTINGS.items()} | shown_settings(self.tls)
        shared = {
            **self.limits,
            **self.access,
            **self.metrics,
            **self.waits,
            **{key: "***" for key in SECRET_SETTINGS if self.access[key]},
            **tls,
        }
        values = (
            (key, shared[key] if key in shared else getattr(self, _attribute(key))) for key in NAMESERVER_SETTINGS
        )
        return {key: _as_text(value) for key, value in values}


def _attribute(key: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in key)


def _as_text(value: object) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


_MAPPED_KEYS = frozenset(setting.key for setting in (*METRICS_SETTINGS, *WAIT_SETTINGS))
_SHARED_KEYS = (
    frozenset(limit.key for limit in NAMESERVER_LIMITS) | ACCESS_SETTINGS.keys() | TLS_SETTINGS.keys() | _MAPPED_KEYS
)
assert {_attribute(key) for key in NAMESERVER_SETTINGS.keys() - _SHARED_KEYS} == (
    {field.name for field in fields(NameServerSettings)} - {"limits", "access", "metrics", "waits", "tls", "warnings"}
)


def load_nameserver_settings(
    config_path: Path | None, environment: Mapping[str, str], assignments: Iterable[str]
) -> NameServerSettings:
    """Read the file, then the environment, then `key=value` texts.

    Raise a `SettingError` for an invalid value, and for a key of Java that protects and is not supported.
    """
    sources = setting_sources(config_path, settings_in(environment, ENVIRONMENT_PREFIX), assignments)
    values: dict[str, Any] = {}
    limits = {limit.key: limit.default for limit in NAMESERVER_LIMITS}
    access = {key: setting.default for key, setting in ACCESS_SETTINGS.items()}
    tls: dict[str, str] = {}
    metrics = {setting.key: setting.default for setting in METRICS_SETTINGS}
    waits = {setting.key: setting.default for setting in WAIT_SETTINGS}
    others: dict[str, tuple[str, str]] = {}
    for source, texts in sources:
        for key, text in texts.items():
            setting = NAMESERVER_SETTINGS.get(key)
            if setting is None:
                others[key] = text, source
                continue
            value = setting.check(text, source)
            if key in limits:
                limits[key] = value
            elif key in access:
                access[key] = value
            elif key in TLS_SETTINGS:
                tls[key] = text
            elif key in metrics:
                metrics[key] = value
            elif key in waits:
                waits[key] = value
            else:
                values[_attribute(key)] = value
    warnings = [sentence for key, (text, source) in others.items() if (sentence := _reviewed(key, text, source))]
    if config_path is not None and _attribute("bindAddress") not in values:
        warnings.append(
            f"{config_path} has no bindAddress: listening on 127.0.0.1, where a Java name server listens on every"
            " address; add bindAddress=0.0.0.0 for clients on other machines"
        )
    return NameServerSettings(
        **values, limits=limits, access=access, tls=tls, metrics=metrics, waits=waits, warnings=tuple(warnings)
    )


def _reviewed(key: str, text: str, source: str) -> str:
    """Return a sentence about a key that is not read, empty if it is harmless; raise `SettingError` if it protects."""
    from orbitlog.nameserver.namesrv_keys import NAMESRV_TABLES  # `up` gives no such key
    from orbitlog.settings.setting_review import SettingClass, review_setting

    verdict = review_setting(key, text, source, read_keys=NAMESERVER_SETTINGS, tables=NAMESRV_TABLES)
    if verdict.kind is SettingClass.SAFETY:
        raise SettingError(verdict.sentence, key=key)
    return verdict.sentence
