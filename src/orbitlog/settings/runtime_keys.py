"""Run-time keys: settings that a request may change while a broker runs, and the range that a request may set.

A closed table. No path, address, class or name is among them, and none that determines the bytes of a store. The range
is narrower than that of broker.conf: an operator may switch flushing off in a file, a request may not. None stands for
a setting whose parser has a range already, or that is not a number.
"""

from __future__ import annotations

from collections.abc import Mapping

from orbitlog.settings.setting import AdvisedText, SettingError

_MIB = 1024 * 1024
_MINUTE_MS, _HOUR_MS = 60_000, 3_600_000
_DAY_MS = 24 * _HOUR_MS
_HOURS_OF_TEN_YEARS = 87_600

RUNTIME_RANGES: Mapping[str, range | None] = {
    # Access and creation
    "brokerPermission": None,
    "autoCreateTopicEnable": None,
    "autoCreateSubscriptionGroup": None,
    "maxMessageSize": None,
    "rejectTransactionMessage": None,
    "enablePropertyFilter": None,
    "recallMessageEnable": None,
    "storeReplyMessageEnable": None,
    "timerMaxDelaySec": range(1, 2_147_483_648),
    # Flushing and saving
    "syncFlushTimeout": range(1, _MINUTE_MS + 1),
    "flushIntervalCommitLog": range(1, _MINUTE_MS + 1),
    "flushCommitLogLeastPages": range(16 * 1024 + 1),
    "flushCommitLogThoroughInterval": range(1, _MINUTE_MS + 1),
    "flushConsumeQueueThoroughInterval": range(1_000, 10 * _MINUTE_MS + 1),
    "flushConsumerOffsetInterval": range(100, _MINUTE_MS + 1),
    "flushDelayOffsetInterval": range(100, _MINUTE_MS + 1),
    # Retention
    "fileReservedTime": range(1, _HOURS_OF_TEN_YEARS + 1),
    "deleteWhen": None,
    "diskMaxUsedSpaceRatio": range(10, 96),
    "diskSpaceCleanForciblyRatio": range(30, 86),
    "diskSpaceWarningLevelRatio": range(35, 91),
    "cleanFileForciblyEnable": None,
    "deleteFileBatchMax": range(1, 1_001),
    # Pulls
    "longPollingEnable": None,
    "shortPollingTimeMills": range(1, _MINUTE_MS + 1),
    "maxTransferCountOnMessageInMemory": range(1, 10_001),
    "maxTransferBytesOnMessageInMemory": range(1, 32 * _MIB + 1),
    "maxTransferCountOnMessageInDisk": range(1, 10_001),
    "maxTransferBytesOnMessageInDisk": range(1, 32 * _MIB + 1),
    "accessMessageInMemoryMaxRatio": None,
    # Consumers, registration and transactions
    "notifyConsumerIdsChangedEnable": None,
    "useServerSideResetOffset": None,
    "defaultMessageRequestMode": None,
    "defaultPopShareQueueNum": range(1_001),
    "registerNameServerPeriod": None,
    "registerBrokerTimeoutMills": range(100, _MINUTE_MS + 1),
    "traceOn": None,
    "transactionTimeOut": range(_DAY_MS + 1),
    "transactionCheckMax": range(1, 1_001),
    "transactionCheckInterval": range(1_000, _HOUR_MS + 1),
}
RUNTIME_KEYS = frozenset(RUNTIME_RANGES)
RETENTION_KEYS = frozenset(
    (
        *("fileReservedTime", "deleteWhen", "diskMaxUsedSpaceRatio", "diskSpaceCleanForciblyRatio"),
        *("diskSpaceWarningLevelRatio", "cleanFileForciblyEnable", "deleteFileBatchMax"),
    )
)


def check_range(key: str, text: str) -> None:
    """Raise `SettingError` if a request may not set this text, which the setting's parser has accepted."""
    allowed = RUNTIME_RANGES[key]
    if not text.isascii():
        raise SettingError(f"{key} from the request: not in ASCII digits and letters", key=key)
    if allowed is not None and int(text) not in allowed:
        problem = f"{key}={text} from the request: a request may set it from {allowed.start} to {allowed.stop - 1}"
        raise SettingError(AdvisedText(problem, "set other values in broker.conf"), key=key)
