"""Settings of a broker, under the names of Java's `broker.conf`.

`BROKER_SETTINGS` contains the broker's own settings; those of the store are in `store_settings`. A value comes from a
properties file, from the environment (`ORBITLOG_SET_brokerName=…`, Java's `NAMESRV_ADDR`) or from `key=value` on the
command line. The last source wins, and every error names key, value and source. Java's other keys are reviewed by
`setting_review`: one that protects data or access refuses the start, one that changes behaviour is reported with its
consequence.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from orbitlog.access.access_settings import ACCESS_SETTINGS
from orbitlog.broker.runtime.replication_settings import (
    BROKER_ROLE,
    CONTROLLER_MODE,
    COORDINATOR,
    REPLICATION_SETTINGS,
    SLAVE,
    check_without_group,
)
from orbitlog.errors import FormatError
from orbitlog.formats.names import check_topic
from orbitlog.observe.metrics_settings import METRICS_SETTINGS
from orbitlog.settings import store_settings
from orbitlog.settings.limits import BROKER_LIMITS, Limits
from orbitlog.settings.listen_exposure import AnonymousAccess, is_exposed, parse_anonymous_access
from orbitlog.settings.properties_file import COMMAND_LINE, setting_sources, settings_in
from orbitlog.settings.runtime_keys import RUNTIME_KEYS, check_range
from orbitlog.settings.secret_settings import shown_settings
from orbitlog.settings.setting import (
    AdvisedText,
    Setting,
    SettingError,
    number_between,
    one_of,
    parse_truth,
)
from orbitlog.settings.store_settings import StoreSettings
from orbitlog.settings.tls_settings import TLS_SETTINGS, USE_TLS

if TYPE_CHECKING:
    from orbitlog.settings.setting_review import SettingClass

T = TypeVar("T")

ENVIRONMENT_PREFIX = "ORBITLOG_SET_"
_NAME_SERVERS_VARIABLE = "NAMESRV_ADDR"
_FRAME_BYTES_MAX = 16 * 1024 * 1024
ANSWER_BYTES_MAX = _FRAME_BYTES_MAX - 256 * 1024
"""Maximum bytes of the messages in one response: the rest of a frame is for its header."""
TIMER_LOG_BYTES_MIN = 12 * 1024 * 1024
"""One file holds the units of every timer message that a stop hands over."""


def _name(text: str) -> str:
    """Parse the name of a cluster or broker, which is also the name of a topic and so of a directory."""
    try:
        return check_topic(text)
    except FormatError as error:
        raise ValueError(f"is not a valid name: {error.problem}") from None


def _without_brackets(text: str) -> str:
    """Return an IPv6 address without the brackets in which Java's brokers have their own."""
    return text[1:-1] if text.startswith("[") and text.endswith("]") and ":" in text else text


def _address(text: str) -> str:
    text = _without_brackets(text)
    if text:
        try:
            ipaddress.ip_address(text)
        except ValueError:
            raise ValueError("is not an IP address") from None
    return text


_HOST_NAME = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63})*\.?")


def _advertised(text: str) -> str:
    """Accept an IP address or a host name, as Java does."""
    text = _without_brackets(text)
    try:
        address = ipaddress.ip_address(text) if text else None
    except ValueError:
        address = None
        if not _HOST_NAME.fullmatch(text) or text.rpartition(".")[2].isdecimal():
            raise ValueError("is neither an IP address nor a host name") from None
    if address is not None and (address.is_unspecified or address.is_multicast):
        raise ValueError("is not an address that clients can connect to")
    return text


def _key_list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(";") if part.strip())


def _message_bytes(text: str) -> int:
    try:
        return number_between(1024, _FRAME_BYTES_MAX - 64 * 1024)(text)
    except ValueError as error:
        raise ValueError(f"{error}; a request of the protocol has at most 16 MiB") from None


def _answer_bytes(text: str) -> int:
    """Parse the maximum bytes of a response, at most what a frame can hold: a client closes a longer one."""
    return min(number_between(1)(text), ANSWER_BYTES_MAX)


def parse_name_servers(text: str) -> tuple[str, ...]:
    """Read `host:port;host:port`."""
    addresses = tuple(part.strip() for part in text.split(";") if part.strip())
    for address in addresses:
        host, separator, port = address.rpartition(":")
        if not separator or not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ValueError(f"contains {address!r}, which is not host:port")
    return addresses


CLUSTER_NAME = Setting("brokerClusterName", _name, "DefaultCluster", "name of the cluster")
BROKER_NAME = Setting("brokerName", _name, "broker-a", "name of the broker within its cluster")
BROKER_ID = Setting("brokerId", number_between(0, 2**31 - 1), 0, "0, a master; any other id is that of a slave")
NAME_SERVERS: Setting[tuple[str, ...]] = Setting(
    "namesrvAddr",
    parse_name_servers,
    (),
    "name servers to register with, `host:port;host:port` ([broker](../broker.md))",
)
NAME_SERVER_LOOKUP = Setting(
    "fetchNameSrvAddrByDnsLookup", parse_truth, False, "register with every address of each host name in namesrvAddr"
)
BIND_ADDRESS = Setting(
    "bindAddress",
    _address,
    "127.0.0.1",
    "address to listen on; `0.0.0.0` for every address of the machine; without it, `brokerIP1` if that is given",
)
ALLOW_ANONYMOUS = Setting(
    "allowAnonymous",
    parse_anonymous_access,
    AnonymousAccess.NONE,
    "what clients of other machines may do without access control: `false`, nothing, so that the broker does not start"
    " on their addresses; `clients`, send and consume; `true`, also administer ([security](../security.md), Orbitlog's"
    " own key)",
)
LISTEN_PORT = Setting("listenPort", number_between(0, 65535), 10911, "port to listen on; 0 takes a free one")
ADVERTISED_ADDRESS = Setting(
    "brokerIP1",
    _advertised,
    "",
    "address or host name that clients connect to; without it, the one that they reached the broker by",
)
STORE_ROOT = Setting("storePathRootDir", store_settings.parse_plain_directory, "", "directory of the store")
BROKER_PERMISSION = Setting("brokerPermission", number_between(0, 15), 6, "4 = may be read, 2 = may be written")
QUEUE_COUNT = Setting(
    "defaultTopicQueueNums",
    number_between(1, 65535),
    8,
    "queues of the template from which topics are created automatically",
)
AUTO_CREATE_TOPIC = Setting("autoCreateTopicEnable", parse_truth, True, "the first message sent to a topic creates it")
AUTO_CREATE_GROUP = Setting("autoCreateSubscriptionGroup", parse_truth, True, "a group's first consumer creates it")
CLUSTER_TOPIC = Setting("clusterTopicEnable", parse_truth, True, "allow sends to the topic with the cluster's name")
BROKER_TOPIC = Setting("brokerTopicEnable", parse_truth, True, "allow sends to the topic with the broker's name")
TRACE_TOPIC = Setting("traceTopicEnable", parse_truth, False, "create the topic for message traces")
MIXED_TYPE = Setting("enableMixedMessageType", parse_truth, False, "topics can have the message type MIXED")
MESSAGE_BYTES = Setting("maxMessageSize", _message_bytes, 4 * 1024 * 1024, "maximum bytes of a body or batch")
FLUSH_TYPE = Setting(
    "flushDiskType",
    one_of("ASYNC_FLUSH", "SYNC_FLUSH"),
    "ASYNC_FLUSH",
    "acknowledge a send when it is written, or when it is flushed to disk ([durability](../durability.md))",
)
FLUSH_TIMEOUT_MS = Setting(
    "syncFlushTimeout", number_between(1), 5_000, "ms that a send waits for its flush (SYNC_FLUSH)"
)
FLUSH_INTERVAL_MS = Setting(
    "flushIntervalCommitLog", number_between(1), 500, "ms between flushes of the log (ASYNC_FLUSH)"
)
FLUSH_LEAST_PAGES = Setting(
    "flushCommitLogLeastPages", number_between(0), 4, "minimum of unflushed pages of 4 KiB for a flush"
)
FLUSH_THOROUGH_MS = Setting(
    "flushCommitLogThoroughInterval", number_between(1), 10_000, "ms after which the log is flushed in any case"
)
QUEUE_FLUSH_INTERVAL_MS = Setting(
    "flushConsumeQueueThoroughInterval",
    number_between(1000),
    60_000,
    "ms between flushes of queues, index and checkpoint",
)
OFFSET_SAVE_INTERVAL_MS = Setting(
    "flushConsumerOffsetInterval", number_between(100), 5_000, "ms between saves of offsets"
)
DELAY_SAVE_INTERVAL_MS = Setting(
    "flushDelayOffsetInterval", number_between(100), 10_000, "ms between saves of the progress of delayed delivery"
)
LONG_POLLING = Setting("longPollingEnable", parse_truth, True, "a pull without messages waits for the next one")
SHORT_POLLING_MS = Setting(
    "shortPollingTimeMills", number_between(1), 1_000, "ms that such a pull waits with longPollingEnable=false"
)
COUNT_IN_MEMORY = Setting("maxTransferCountOnMessageInMemory", number_between(1), 32, "maximum messages of one pull")
BYTES_IN_MEMORY = Setting(
    "maxTransferBytesOnMessageInMemory", _answer_bytes, 256 * 1024, "maximum bytes of one pull, at most 15.75 MiB"
)
COUNT_ON_DISK = Setting("maxTransferCountOnMessageInDisk", number_between(1), 8, "the same for messages not in memory")
BYTES_ON_DISK = Setting(
    "maxTransferBytesOnMessageInDisk", _answer_bytes, 64 * 1024, "the same for messages not in memory"
)
MEMORY_PERCENT = Setting(
    "accessMessageInMemoryMaxRatio",
    number_between(1, 100),
    40,
    "percent of the machine's memory; messages further from the end of the log count as not in memory",
)
REGISTER_INTERVAL_MS = Setting(
    "registerNameServerPeriod", number_between(10_000, 60_000), 30_000, "ms between registrations"
)
REGISTER_TIMEOUT_MS = Setting(
    "registerBrokerTimeoutMills", number_between(100), 24_000, "ms that a registration may take"
)
SPLIT_REGISTRATION = Setting(
    "enableSplitRegistration",
    parse_truth,
    True,
    "register more topics than splitRegistrationSize in parts; a registration of 60,000 topics does not fit a frame",
)
SPLIT_REGISTRATION_SIZE = Setting(
    "splitRegistrationSize", number_between(2, 10_000), 800, "topics of one part of a registration"
)
COMPRESSED_REGISTER = Setting("compressedRegister", parse_truth, False, "compress registrations")
NOTIFY_CHANGES = Setting(
    "notifyConsumerIdsChangedEnable",
    parse_truth,
    True,
    "notify consumers when a member joins or leaves their group",
)
REJECT_TRANSACTIONS = Setting("rejectTransactionMessage", parse_truth, False, "refuse half messages")
TRANSACTION_TIMEOUT_MS = Setting(
    "transactionTimeOut",
    number_between(0),
    6_000,
    "ms after which the producer of an open transaction is asked for its outcome",
)
TRANSACTION_CHECK_MAX = Setting(
    "transactionCheckMax", number_between(1), 15, "checks of one transaction before it is given up"
)
TRANSACTION_CHECK_INTERVAL_MS = Setting(
    "transactionCheckInterval", number_between(100), 30_000, "ms between scans for open transactions"
)
STORE_REPLIES = Setting("storeReplyMessageEnable", parse_truth, True, "also store replies in the log")
TIMER_ENABLED = Setting(
    "timerWheelEnable", parse_truth, True, "allow messages scheduled at a timestamp (TIMER_DELIVER_MS)"
)
TIMER_MAX_DELAY_S = Setting(
    "timerMaxDelaySec", number_between(1), 2_147_483_647, "maximum delay of such a message in seconds"
)
TIMER_LOG_BYTES = Setting(
    "mappedFileSizeTimerLog",
    number_between(TIMER_LOG_BYTES_MIN),
    100 * 1024 * 1024,
    "bytes of the timer log written for Apache's broker; without it, the size of the existing file",
)
RECALL_ENABLED = Setting(
    "recallMessageEnable", parse_truth, True, "allow the recall of a message scheduled at a timestamp"
)
RECALL_NAMES_TOPIC = Setting(
    "appendTopicForTimerDeleteKey", parse_truth, False, "write the topic into recalls; the same for both brokers"
)
PROPERTY_FILTER = Setting(
    "enablePropertyFilter", parse_truth, False, "allow consumers to filter by SQL92 expressions over properties"
)
REQUEST_MODE = Setting(
    "defaultMessageRequestMode",
    one_of("PULL", "POP"),
    "PULL",
    "how consumers consume that ask brokers for their assignment",
)
POP_SHARE_QUEUES = Setting(
    "defaultPopShareQueueNum",
    number_between(0),
    0,
    "number of neighbours whose queues a POP consumer shares; 0: those of all",
)
POP_RETRY_V2 = Setting(
    "enableRetryTopicV2",
    parse_truth,
    False,
    "name POP retry topics %RETRY%group+topic instead of %RETRY%group_topic",
)
POP_RETRY_V1_READ = Setting(
    "retrieveMessageFromPopRetryTopicV1",
    parse_truth,
    True,
    "with enableRetryTopicV2, also deliver messages in %RETRY%group_topic",
)
POP_SEPARATE_RETRY = Setting(
    "useSeparateRetryQueue",
    parse_truth,
    False,
    "a POP retry topic has as many queues as its topic, and a message is retried in the queue of its own id",
)
CLEAR_RETRY_TOPICS = Setting(
    "clearRetryTopicWhenDeleteTopic", parse_truth, True, "delete the POP retry topics of a topic together with it"
)
REVIVE_QUEUES = Setting(
    "reviveQueueNum",
    number_between(1, 65535),
    8,
    "queues of the topic for POP checkpoints (rmq_sys_REVIVE_LOG_cluster)",
)
REGION = Setting("regionId", str, "DefaultRegion", "region named in responses and stored messages")
TRACE_ON = Setting("traceOn", parse_truth, True, "ask clients that can trace messages to do so")
SERVER_SIDE_RESET = Setting(
    "useServerSideResetOffset", parse_truth, True, "the broker keeps an offset reset until the consumer's next pull"
)
CONNECTIONS_MAX = Setting(
    "serverConnectionsMax", number_between(1), 10_000, "maximum of open connections (Orbitlog's own key)"
)
DISPATCH_ENGINE = Setting(
    "dispatchEngine",
    one_of("inline", "spark"),
    "inline",
    "process that derives queues and index: the broker, or `orbitlog pipeline dispatch` (Orbitlog's own key)",
)
BLOCKED_KEYS: Setting[tuple[str, ...]] = Setting(
    "configBlackList",
    _key_list,
    ("configBlackList", "brokerConfigPath"),
    "keys that cannot be changed while the broker runs, `key;key`",
)
VIP_CHANNEL = Setting(
    "vipChannelEnable", parse_truth, True, "also listen on listenPort-2, for clients before 4.5 (Orbitlog's own key)"
)

_ALL: tuple[Setting[Any], ...] = (
    CLUSTER_NAME,
    BROKER_NAME,
    BROKER_ID,
    NAME_SERVERS,
    NAME_SERVER_LOOKUP,
    BIND_ADDRESS,
    ALLOW_ANONYMOUS,
    LISTEN_PORT,
    ADVERTISED_ADDRESS,
    STORE_ROOT,
    BROKER_PERMISSION,
    QUEUE_COUNT,
    AUTO_CREATE_TOPIC,
    AUTO_CREATE_GROUP,
    CLUSTER_TOPIC,
    BROKER_TOPIC,
    TRACE_TOPIC,
    MIXED_TYPE,
    MESSAGE_BYTES,
    FLUSH_TYPE,
    FLUSH_TIMEOUT_MS,
    FLUSH_INTERVAL_MS,
    FLUSH_LEAST_PAGES,
    FLUSH_THOROUGH_MS,
    QUEUE_FLUSH_INTERVAL_MS,
    OFFSET_SAVE_INTERVAL_MS,
    DELAY_SAVE_INTERVAL_MS,
    LONG_POLLING,
    SHORT_POLLING_MS,
    COUNT_IN_MEMORY,
    BYTES_IN_MEMORY,
    COUNT_ON_DISK,
    BYTES_ON_DISK,
    MEMORY_PERCENT,
    REGISTER_INTERVAL_MS,
    REGISTER_TIMEOUT_MS,
    SPLIT_REGISTRATION,
    SPLIT_REGISTRATION_SIZE,
    COMPRESSED_REGISTER,
    NOTIFY_CHANGES,
    REJECT_TRANSACTIONS,
    TRANSACTION_TIMEOUT_MS,
    TRANSACTION_CHECK_MAX,
    TRANSACTION_CHECK_INTERVAL_MS,
    STORE_REPLIES,
    TIMER_ENABLED,
    TIMER_MAX_DELAY_S,
    TIMER_LOG_BYTES,
    RECALL_ENABLED,
    RECALL_NAMES_TOPIC,
    PROPERTY_FILTER,
    REQUEST_MODE,
    POP_SHARE_QUEUES,
    POP_RETRY_V2,
    POP_RETRY_V1_READ,
    POP_SEPARATE_RETRY,
    CLEAR_RETRY_TOPICS,
    REVIVE_QUEUES,
    REGION,
    TRACE_ON,
    SERVER_SIDE_RESET,
    CONNECTIONS_MAX,
    DISPATCH_ENGINE,
    VIP_CHANNEL,
    BLOCKED_KEYS,
    *BROKER_LIMITS,
    *REPLICATION_SETTINGS,
    USE_TLS,
    *METRICS_SETTINGS,
)
BROKER_SETTINGS = {**{setting.key: setting for setting in _ALL}, **ACCESS_SETTINGS, **TLS_SETTINGS}
_KNOWN: dict[str, Setting[Any]] = {**store_settings.SETTINGS, **BROKER_SETTINGS}

assert _KNOWN.keys() >= RUNTIME_KEYS, "every run-time key is a setting"


@dataclass(frozen=True, slots=True)
class Complaint:
    """A given key that no table reads: its class, and a sentence unless it is harmless."""

    key: str
    kind: SettingClass
    sentence: AdvisedText


class BrokerSettings:
    """The settings of a running broker: the given values, already checked, otherwise the defaults."""

    def __init__(
        self,
        texts: Mapping[str, str] | None = None,
        complaints: Iterable[Complaint] = (),
        config_path: Path | None = None,
    ) -> None:
        self.texts = dict(texts or {})
        self.complaints = tuple(complaints)
        self.config_path = config_path  # changes at run time are saved there, as Java does
        self.change_count = 0  # grows with each `change`, so that callers can cache what they derive from settings
        self._values = {key: setting.default for key, setting in _KNOWN.items()}
        for key, text in self.texts.items():
            self._values[key] = _KNOWN[key].parse(text)

    def __getitem__(self, setting: Setting[T]) -> T:
        value: T = self._values[setting.key]
        return value

    @property
    def is_exposed(self) -> bool:
        """Return whether other machines can connect: the listen address is not a loopback address."""
        return is_exposed(self[BIND_ADDRESS])

    @property
    def store(self) -> StoreSettings:
        """The settings of the store."""
        return StoreSettings({key: text for key, text in self.texts.items() if key in store_settings.SETTINGS})

    def limits(self) -> Limits:
        """Return the limits that these settings state, with counters at zero."""
        return Limits({limit.key: self[limit] for limit in BROKER_LIMITS})

    @property
    def is_group_member(self) -> bool:
        """Return whether a coordinator or controller decides about the broker's role."""
        return bool(self[COORDINATOR]) or self[CONTROLLER_MODE]

    @property
    def is_slave(self) -> bool:
        """Return whether the broker copies a master; raise a `SettingError` if id and role contradict each other."""
        is_slave = self[BROKER_ROLE] == SLAVE
        if is_slave != bool(self[BROKER_ID]):
            role, number = f"brokerRole={self[BROKER_ROLE]}", f"brokerId={self[BROKER_ID]}"
            wanted = f"{role} needs a brokerId above 0" if is_slave else f"{number} needs brokerRole=SLAVE"
            sentence = f"{wanted} ({role} and {number} are set): a slave has an id above 0, a master has 0"
            raise SettingError(sentence, key=(BROKER_ROLE if is_slave else BROKER_ID).key)
        return is_slave

    @property
    def flushes_before_answer(self) -> bool:
        return self[FLUSH_TYPE] == "SYNC_FLUSH"

    def with_texts(self, texts: Mapping[str, str]) -> BrokerSettings:
        """Return a copy in which the options of a command replace some values."""
        for key, text in texts.items():
            _KNOWN[key].check(text, "the command line")
        return BrokerSettings({**self.texts, **texts}, self.complaints, self.config_path)

    def may_change(self, key: str) -> bool:
        """Return whether a key may be changed while the broker runs."""
        return key in RUNTIME_KEYS and key not in self[BLOCKED_KEYS]

    def change(self, texts: Mapping[str, str]) -> None:
        """Change settings while the broker runs: all of them or, with a `SettingError`, none."""
        for key, text in texts.items():
            if not self.may_change(key):
                _reviewed({} if key in _KNOWN else {key: (text, "the request")}, self.texts)
                sentence = AdvisedText(f"{key} cannot be changed while the broker runs", "set it in broker.conf")
                raise SettingError(sentence, key=key)
            _KNOWN[key].check(text, "the request")
            check_range(key, text)
        for key, text in texts.items():
            self.texts[key] = text
            self._values[key] = _KNOWN[key].parse(text)
        self.change_count += 1

    def effective(self) -> dict[str, str]:
        """Return every setting as text, as it would be written to broker.conf; secrets are masked."""
        texts = {key: self.texts.get(key, _as_text(setting.default)) for key, setting in _KNOWN.items()}
        return shown_settings(texts)


def load_broker_settings(
    config_path: Path | None,
    assignments: Iterable[str],
    environment: Mapping[str, str],
    options: Mapping[str, str] | None = None,
) -> BrokerSettings:
    """Read the properties file, the environment, `key=value` texts and a command's own options; the last source wins.

    Raise a `SettingError` for an invalid value, for a role and an id that contradict each other, and for an unsupported
    setting that protects data or access.
    """
    texts: dict[str, str] = {}
    others: dict[str, tuple[str, str]] = {}
    sources = setting_sources(config_path, _from_environment(environment), assignments)
    sources.append((COMMAND_LINE, options or {}))
    for source, pairs in sources:
        for key, text in pairs.items():
            if key in _KNOWN:
                _KNOWN[key].check(text, source)
                texts[key] = text
            else:
                others[key] = text, source
    settings = BrokerSettings(texts, _reviewed(others, texts), config_path)
    if settings.is_group_member:
        from orbitlog.broker.replicas.group_options import check_member_settings  # most brokers are in no group

        check_member_settings(settings)
    else:
        check_without_group(settings)
    if not settings[CONTROLLER_MODE]:
        _ = settings.is_slave  # raises if role and id contradict each other
    return settings


_ADDRESS_SERVER = "fetchNamesrvAddrByAddressServer"


def _reviewed(others: Mapping[str, tuple[str, str]], texts: Mapping[str, str]) -> list[Complaint]:
    """Review the settings that no table reads; raise a `SettingError` for one that must not be ignored."""
    if not others:
        return []
    from orbitlog.settings.setting_review import SettingClass, review_setting  # 500 keys, which most starts do not need

    complaints = []
    for key, (text, source) in others.items():
        kind, sentence, _ = review_setting(key, text, source, read_keys=_KNOWN)
        if kind is SettingClass.SAFETY:
            raise SettingError(sentence, key=key)
        if key == _ADDRESS_SERVER and kind is SettingClass.BEHAVIOUR and not texts.get(NAME_SERVERS.key):
            problem = "address servers are not supported and the broker would register with no name server"
            sentence = AdvisedText(f"{key}={text} from {source}: {problem}", f"set {NAME_SERVERS.key}=host:port")
            raise SettingError(sentence, key=key)
        complaints.append(Complaint(key, kind, sentence))
    return complaints


def _from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    given = settings_in(environment, ENVIRONMENT_PREFIX)
    if environment.get(_NAME_SERVERS_VARIABLE):
        given.setdefault(NAME_SERVERS.key, environment[_NAME_SERVERS_VARIABLE])
    return given


def _as_text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ";".join(f"{part:02d}" if isinstance(part, int) else str(part) for part in value)
    if isinstance(value, int | str):
        return str(value)
    return store_settings_text(value)


def store_settings_text(value: object) -> str:
    """Return the text of the two store settings whose values are not plain."""
    from orbitlog.formats.compat import Compat
    from orbitlog.formats.delay_levels import DEFAULT_LEVELS

    return value.name if isinstance(value, Compat) else DEFAULT_LEVELS
